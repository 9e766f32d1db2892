"""jetspec: pop the best node, append all its children."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from replay.forest import Forest, gather
from replay.policies import require_counts
from replay.rounds import Marginals
from replay.topn import best_first_nodes


@dataclass(frozen=True)
class JetSpec:
    """Best-first *expansion*: the best unexpanded node gets all `branching` children at once, until the budget.

    topN pays for a node when it is the best one left; here a node is paid for when its parent was. Children enter in
    order of rank and the last expansion is cut at the budget.

    Source: the expansion rule of JetSpec (arXiv 2606.18394) as appendix I of the paper describes it. JetSpec's own
    drafter conditions a node on its path; here the shared marginals take its place, and `branching` is the paper's K.
    """

    name: ClassVar[str] = "jetspec"
    nested: ClassVar[bool] = True
    budget: int = 63
    branching: int = 8

    def __post_init__(self) -> None:
        require_counts(budget=self.budget, branching=self.branching)

    def __call__(self, marginals: Marginals) -> Forest:
        universe = marginals.head(rank_cap=self.branching)
        width = universe.rank_kept
        # A node is popped in best-first order. N popped nodes are children of the root or of popped nodes above depth
        # L, so expanding those gives at least N nodes (or the universe).
        parent, depth, rank = best_first_nodes(universe, self.budget)  # (B, N)
        opens = np.pad((depth > 0) & (depth < universe.depth_max), ((0, 0), (1, 0)), constant_values=True)
        turn = np.cumsum(opens, axis=1) - 1  # (B, 1+N) when a popped node is expanded; the root is first
        column = np.pad(1 + np.take_along_axis(turn, parent, axis=1) * width + rank, ((0, 0), (1, 0)))
        order = np.argsort(~opens, axis=1, kind="stable")  # (B, 1+N) expanded nodes first, in turn
        expanded = np.take_along_axis(opens, order, axis=1)
        below = np.take_along_axis(np.pad(depth, ((0, 0), (1, 0))), order, axis=1) + 1
        children = [
            np.repeat(np.take_along_axis(column, order, axis=1), width, axis=1),
            np.repeat(np.where(expanded, below, 0), width, axis=1),
            np.tile(np.arange(width), (len(universe), self.budget + 1)),
        ]
        return gather(universe, *(child[:, : self.budget] for child in children))
