"""eagle2: expand a frontier of fixed width depth by depth, then rerank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

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
        rounds, width = len(universe), universe.rank_kept
        score, node = np.zeros((rounds, 1)), np.zeros((rounds, 1), np.intp)  # the frontier, (B, F)
        scores, parents, depths, ranks = [score], [node - 1], [node], [node]  # all candidates, the root first
        for depth in range(universe.depth_max):
            child = (score[:, :, None] + universe.logq[:, depth, None, :]).reshape(rounds, -1)  # (B, F*K)
            first = sum(s.shape[1] for s in scores)
            scores.append(child)
            parents.append(np.repeat(node, width, axis=1))
            depths.append(np.full(child.shape, depth + 1))
            ranks.append(np.tile(np.arange(width), (rounds, score.shape[1])))
            best = np.argsort(-child, axis=1, kind="stable")[:, : self.frontier]
            score, node = np.take_along_axis(child, best, axis=1), first + best
        # Stable, and candidates stand in order of depth: of equal scores the shorter comes first (Theorem 1).
        order = np.argsort(-np.hstack(scores), axis=1, kind="stable")[:, : self.budget + 1]
        place = np.zeros((rounds, sum(s.shape[1] for s in scores)), np.intp)
        np.put_along_axis(place, order, np.arange(order.shape[1])[None, :], axis=1)
        parent, depth_of, rank = (
            np.take_along_axis(np.hstack(a), order, axis=1)[:, 1:] for a in (parents, depths, ranks)
        )
        return gather(universe, np.take_along_axis(place, parent, axis=1), depth_of, rank)
