"""uniform: one small tree for every request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from castsim.serving.controllers import Plan, View


@dataclass(frozen=True)
class Uniform:
    """A best-first tree of `nodes` for every request, whatever it is worth: the uniform width of appendix F."""

    name: ClassVar[str] = "uniform"
    nodes: int = 8

    def __call__(self, view: View) -> Plan:
        """See `Controller`."""
        return Plan(np.full(len(view.mass), self.nodes))

    def reserved(self, depth_max: int) -> int:
        """See `Controller`."""
        return self.nodes
