"""spine: the whole chain first, then best-first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from replay.forest import Forest
from replay.policies import require_counts
from replay.rounds import Marginals
from replay.topn import best_first


@dataclass(frozen=True)
class Spine:
    """The top-1 path to full depth, then the other prefixes in best-first order.

    From a budget of L on it never accepts less than the chain in a round, at the price of deep nodes that the scores do
    not favour.

    Source: this project; a baseline between `chain` and `topN`.
    """

    name: ClassVar[str] = "spine"
    nested: ClassVar[bool] = True
    budget: int = 63
    rank_cap: int = 8

    def __post_init__(self) -> None:
        require_counts(budget=self.budget, rank_cap=self.rank_cap)

    def __call__(self, marginals: Marginals) -> Forest:
        return best_first(marginals.head(rank_cap=self.rank_cap), self.budget, spine_first=True)
