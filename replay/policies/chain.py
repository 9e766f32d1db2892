"""chain: the top-1 path, as standard DFlash decoding verifies it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from replay.forest import Forest
from replay.policies import require_counts
from replay.rounds import Marginals
from replay.topn import best_first


@dataclass(frozen=True)
class Chain:
    """The best candidate of each of the first `length` positions (0: of all L), cut at the budget.

    Source: section 2, "keeps the most likely token at each position and verifies the resulting chain"; a `length` below
    L stands for a shorter block, as in Table 15, whose drafter however sees the shorter block itself.
    """

    name: ClassVar[str] = "chain"
    nested: ClassVar[bool] = True
    budget: int = 15
    length: int = 0

    def __post_init__(self) -> None:
        require_counts(budget=self.budget)
        if self.length < 0:
            raise ValueError(f"length must be 0 (all positions) or more, not {self.length}")

    def universe(self, marginals: Marginals) -> Marginals:
        return marginals.head(depth_max=self.length or None, rank_cap=1)

    def __call__(self, marginals: Marginals) -> Forest:
        return best_first(self.universe(marginals), self.budget)
