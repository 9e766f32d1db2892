"""costaware: the best-first tree at the width that pays, one for a whole deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from replay.forest import Forest
from replay.policies import require_counts
from replay.policies.topn import TopN
from replay.rounds import Marginals
from replay.width import best_budget


@dataclass(frozen=True)
class CostAware:
    """topN at the width of largest (1 + g(N)) / l(N), from offline mean masses and a probe; `budget` is the widest.

    Source: section 3.3; on an affine l this is the width of Theorem 2, on a measured one the best of its curve.
    """

    name: ClassVar[str] = "costaware"
    nested: ClassVar[bool] = False  # the widest allowed tree may be another one than the width chosen below it
    budget: int = 127
    rank_cap: int = 8

    def __post_init__(self) -> None:
        require_counts(budget=self.budget, rank_cap=self.rank_cap)

    def priced(self, round_ms: NDArray[np.float64], mass: NDArray[np.float64]) -> TopN:
        """See `Priced`: the tree of one width."""
        return TopN(best_budget(mass[: self.budget], round_ms[: self.budget + 1]), self.rank_cap)

    def __call__(self, marginals: Marginals) -> Forest:
        return TopN(self.budget, self.rank_cap)(marginals)
