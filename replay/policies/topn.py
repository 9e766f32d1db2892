"""topN: the best-first tree of CAST, the paper's default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from replay.forest import Forest
from replay.policies import require_counts
from replay.rounds import Marginals
from replay.topn import best_first


@dataclass(frozen=True)
class TopN:
    """The N prefixes of largest product score among the first `rank_cap` ranks of each position.

    Source: Theorem 1, Corollary 1; section 3.2 keeps the top K = 8.
    """

    name: ClassVar[str] = "topN"
    nested: ClassVar[bool] = True
    budget: int = 63
    rank_cap: int = 8

    def __post_init__(self) -> None:
        require_counts(budget=self.budget, rank_cap=self.rank_cap)

    def universe(self, marginals: Marginals) -> Marginals:
        return marginals.head(rank_cap=self.rank_cap)

    def __call__(self, marginals: Marginals) -> Forest:
        return best_first(self.universe(marginals), self.budget)
