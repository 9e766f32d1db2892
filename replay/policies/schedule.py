"""schedule: a fixed branching factor at each depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from replay.forest import Forest, level_order
from replay.policies import require_counts
from replay.rounds import Marginals


@dataclass(frozen=True)
class Schedule:
    """Every node of depth d has `branching[d]` children, its best ranks; the last factor goes on to depth L.

    Source: appendix G, "the fixed schedule (8,4,2,2,1,...)". The paper does not say how a schedule larger than the
    budget is cut. Read here: in level order. At N = 47 that is 8 + 32 + 7 nodes and R <= 4, in keeping with the printed
    3.7 / 3.0 / 3.7.
    """

    name: ClassVar[str] = "schedule"
    nested: ClassVar[bool] = True
    budget: int = 47
    branching: tuple[int, ...] = (8, 4, 2, 2, 1)

    def __post_init__(self) -> None:
        require_counts(budget=self.budget, branching=self.branching)

    def __call__(self, marginals: Marginals) -> Forest:
        return level_order(marginals, self.branching, self.budget)
