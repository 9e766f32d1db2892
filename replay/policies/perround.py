"""perround: the best-first tree cut where a round's own masses stop paying."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from replay.forest import Forest
from replay.policies import require_counts
from replay.rounds import Marginals
from replay.topn import best_first
from replay.width import round_budgets


@dataclass(frozen=True)
class PerRound:
    """topN, in each round at the width that its own masses and the probe favour; `budget` is the widest.

    `rate` is the throughput in tokens a ms that a round's time is worth; 0 lets each round maximise its own ratio.

    Source: CaDDTree (github.com/ZhangShuai1230/CaDDTree), which sizes each round's tree by a convex cost; here the cost
    may have any shape. The rate is Dinkelbach's for a ratio of sums: see `replay.width.best_rate`.
    """

    name: ClassVar[str] = "perround"
    nested: ClassVar[bool] = False
    budget: int = 127
    rank_cap: int = 8
    rate: float = 0.0
    round_ms: tuple[float, ...] = field(default=(), metadata={"measured": True})

    def __post_init__(self) -> None:
        require_counts(budget=self.budget, rank_cap=self.rank_cap)
        if not 0 <= self.rate < float("inf"):
            raise ValueError(f"rate must be 0 or a positive number of tokens a ms, not {self.rate}")

    def priced(self, round_ms: NDArray[np.float64], mass: NDArray[np.float64]) -> PerRound:
        """See `Priced`; the deployment's masses are not used."""
        return replace(self, round_ms=tuple(round_ms[: self.budget + 1].tolist()))

    def universe(self, marginals: Marginals) -> Marginals:
        return marginals.head(rank_cap=self.rank_cap)

    def widths(self, score: NDArray[np.float64]) -> NDArray[np.int64]:
        """See `Adaptive`."""
        if not self.round_ms:
            return np.full(len(score), self.budget)
        return round_budgets(np.exp(score), self.round_ms, self.rate or None)

    def __call__(self, marginals: Marginals) -> Forest:
        forest = best_first(self.universe(marginals), self.budget)
        return forest.cut(self.widths(forest.score[:, 1:]))
