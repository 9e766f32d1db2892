"""jetspec: pop the best node, append all its children."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

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
        parent, depth, rank = self._expanded(universe, -(-self.budget // width) - 1)  # (B, E), the root not among them
        column = np.pad(1 + parent * width + rank, ((0, 0), (1, 0)))  # (B, 1+E) of each expanded node, the root first
        below = np.pad(np.where(depth > 0, depth + 1, 0), ((0, 0), (1, 0)), constant_values=1)
        children = (
            np.repeat(column, width, axis=1),
            np.repeat(below, width, axis=1),
            np.tile(np.arange(width), column.shape),
        )
        return gather(universe, *(child[:, : self.budget] for child in children))

    def _expanded(self, universe: Marginals, count: int) -> tuple[NDArray[np.int32], ...]:
        """The first `count` nodes that are expanded after the root: those above depth L, in best-first order."""
        if count < 1 or universe.depth_max == 1:
            return tuple(np.zeros((3, len(universe), 0), np.int32))
        return best_first_nodes(universe.head(depth_max=universe.depth_max - 1), count)
