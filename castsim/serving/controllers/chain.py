"""chain: standard DFlash decoding, the whole chain of every request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from castsim.serving.controllers import Plan, View


@dataclass(frozen=True)
class Chain:
    """The whole top-1 chain of every request."""

    name: ClassVar[str] = "chain"

    def __call__(self, view: View) -> Plan:
        """See `Controller`."""
        return Plan(np.full(len(view.spine), view.spine.shape[1]), chain=True)

    def reserved(self, depth_max: int) -> int:
        """See `Controller`."""
        return depth_max
