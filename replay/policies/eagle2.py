"""eagle2: expand a frontier of fixed width depth by depth, then rerank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from replay.forest import Forest, gather
from replay.policies import require_counts
from replay.rounds import Marginals


@dataclass(frozen=True)
class Eagle2:
    """At each depth the `frontier` best nodes are expanded with their best `frontier` children; then the N best of all
    expanded children form the tree.

    Differs from topN only where a prefix among the N best has an ancestor outside its depth's frontier.

    Source: EAGLE-2 (arXiv 2406.16858), sections 4.1 (expansion) and 4.2 (reranking); its default frontier is 10 and its
    depth 6. Read here: depth L, since one draft pass has scored all L positions, and a frontier of 8, the paper's K.
    """

    name: ClassVar[str] = "eagle2"
    nested: ClassVar[bool] = True
    budget: int = 63
    frontier: int = 8

    def __post_init__(self) -> None:
        require_counts(budget=self.budget, frontier=self.frontier)

    def __call__(self, marginals: Marginals) -> Forest:
        universe = marginals.head(rank_cap=self.frontier)
        score, parent, depth, rank = self._candidates(universe)
        # Stable, and candidates stand in order of depth, then of ranks: the tie rule of Theorem 1.
        order = np.argsort(-score, axis=1, kind="stable")[:, : self.budget]
        column = np.zeros((len(universe), 1 + score.shape[1]), np.intp)  # of each candidate; 0 is the root
        np.put_along_axis(column, order + 1, np.arange(1, order.shape[1] + 1)[None], axis=1)
        parent, depth, rank = (np.take_along_axis(a, order, axis=1) for a in (parent, depth, rank))
        return gather(universe, np.take_along_axis(column, parent, axis=1), depth, rank)

    def _candidates(self, universe: Marginals) -> list[NDArray[Any]]:
        """Score, parent (candidates count from 1, the root is 0), depth and rank, (B, C) each, in order of depth."""
        rounds, width = len(universe), universe.rank_kept
        score, node = np.zeros((rounds, 1)), np.zeros((rounds, 1), np.intp)  # the frontier, (B, F)
        levels, first = [], 1
        for depth in range(universe.depth_max):
            size = score.shape[1] * width
            child = (score[:, :, None] + universe.logq[:, depth, None, :]).reshape(rounds, size)
            rank = np.broadcast_to(np.tile(np.arange(width), score.shape[1]), child.shape)
            levels.append((child, np.repeat(node, width, axis=1), np.full(child.shape, depth + 1), rank))
            best = np.argsort(-child, axis=1, kind="stable")[:, : self.frontier]
            best = np.sort(best, axis=1)  # back in order of rank, so that a later tie is one of ranks
            score, node = np.take_along_axis(child, best, axis=1), first + best
            first += size
        return [np.hstack(part) for part in zip(*levels, strict=True)]
