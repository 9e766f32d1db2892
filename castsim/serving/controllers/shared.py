"""shared: a shared budget, best first, verified raggedly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from castsim.serving.controllers import Plan, View
from replay.allocate import shared_widths


@dataclass(frozen=True)
class Shared:
    """Global best-first allocation of `per_request` nodes a request on average, in a ragged pass (Proposition 2)."""

    name: ClassVar[str] = "shared"
    per_request: int = 8

    def __call__(self, view: View) -> Plan:
        """See `Controller`."""
        return Plan(shared_widths(view.mass[None], self.per_request * len(view.mass))[0])

    def reserved(self, depth_max: int) -> int:
        """See `Controller`."""
        return self.per_request
