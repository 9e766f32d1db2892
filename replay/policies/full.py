"""full: the best-first tree without a rank cap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from replay.forest import Forest
from replay.policies import require_counts
from replay.rounds import Marginals
from replay.topn import best_first


@dataclass(frozen=True)
class Full:
    """The N prefixes of largest product score among all logged ranks.

    Source: the full-rank side of appendix G.1. It is the paper's full rank set only where the log keeps at least N
    ranks; a log of K ranks is a rank cap of its own.
    """

    name: ClassVar[str] = "full"
    nested: ClassVar[bool] = True
    budget: int = 63

    def __post_init__(self) -> None:
        require_counts(budget=self.budget)

    def universe(self, marginals: Marginals) -> Marginals:
        return marginals

    def __call__(self, marginals: Marginals) -> Forest:
        return best_first(self.universe(marginals), self.budget)
