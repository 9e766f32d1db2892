"""confident: chains cut at one confidence, with a shared budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from castsim.serving.controllers import Plan, View
from replay.allocate import confident_widths


@dataclass(frozen=True)
class Confident:
    """Chains pruned where their tokens grow unsure, `per_request` tokens a request on average.

    Source: verification pruned by confidence, as D-cut (arXiv 2607.14647) and adaptive verification in vLLM have it.
    """

    name: ClassVar[str] = "confident"
    per_request: int = 8

    def __call__(self, view: View) -> Plan:
        """See `Controller`."""
        return Plan(confident_widths(view.probability[None], self.per_request * len(view.spine))[0], chain=True)

    def reserved(self, depth_max: int) -> int:
        """See `Controller`."""
        return self.per_request
