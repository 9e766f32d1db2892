"""binary: two children at every node, cut at the budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from replay.forest import Forest, level_order
from replay.policies import require_counts
from replay.rounds import Marginals


@dataclass(frozen=True)
class Binary:
    """Uniform two-way branching in level order.

    Source: appendix G, "uniform binary branching". Cut in level order, as `schedule` is: N = 47 reaches depth 5.
    """

    name: ClassVar[str] = "binary"
    nested: ClassVar[bool] = True
    budget: int = 47

    def __post_init__(self) -> None:
        require_counts(budget=self.budget)

    def __call__(self, marginals: Marginals) -> Forest:
        return level_order(marginals, (2,), self.budget)
