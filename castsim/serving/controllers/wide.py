"""wide: one wide tree for every request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from castsim.serving.controllers import Plan, View


@dataclass(frozen=True)
class Wide:
    """A best-first tree of `nodes` for every request: the fixed wide policy of appendix F."""

    name: ClassVar[str] = "wide"
    nodes: int = 48

    def __call__(self, view: View) -> Plan:
        """See `Controller`."""
        return Plan(np.full(len(view.mass), self.nodes))

    def reserved(self, depth_max: int) -> int:
        """See `Controller`."""
        return self.nodes
