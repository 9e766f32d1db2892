"""dense: a shared budget, best first, verified with every request padded to the widest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from castsim.serving.controllers import Plan, View
from replay.allocate import shared_widths


@dataclass(frozen=True)
class Dense:
    """Best-first nodes of the whole batch, `per_request` a request on average, padded: appendix F's dense prototype."""

    name: ClassVar[str] = "dense"
    per_request: int = 8

    def __call__(self, view: View) -> Plan:
        """See `Controller`."""
        return Plan(shared_widths(view.mass[None], self.per_request * len(view.mass))[0], ragged=False)

    def reserved(self, depth_max: int) -> int:
        """See `Controller`."""
        return self.per_request
