"""batched: as many nodes as pay at this load, best first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from castsim.serving.controllers import Plan, View
from replay.allocate import shared_widths
from replay.width import batch_masses


@dataclass(frozen=True)
class Batched:
    """The total budget M of largest (B + G(M)) / l(M, B) over the cost as it is, on a grid of `steps` totals, then the
    batch's best nodes: Proposition 3 with the measured cost in the place of a line. The grid ends where the cost does.
    """

    name: ClassVar[str] = "batched"
    steps: int = 24
    most: int = 64  # nodes a request, on average
    every: int = 1  # rounds between two looks at the cost; between them each request has the last mean

    def __call__(self, view: View) -> Plan:
        """See `Controller`."""
        batch = len(view.mass)
        if view.last is not None and view.passes % self.every:
            return Plan(shared_widths(view.mass[None], round(batch * float(view.last.widths.mean())))[0])
        gained = np.cumsum(batch_masses(view.mass))
        most = min(self.most * batch, view.cost.reach(batch) - batch)
        grid = np.unique(np.geomspace(1, max(most, 1), self.steps).astype(int))
        grid = np.concatenate([[0], grid[grid <= min(len(gained), most)]])
        time = view.cost.draft_ms(batch) + np.array([view.cost.target_ms(batch, batch + int(m)) for m in grid])
        rate = (batch + np.concatenate([[0.0], gained])[grid]) / time
        return Plan(shared_widths(view.mass[None], int(grid[rate.argmax()]))[0])

    def reserved(self, depth_max: int) -> int:
        """See `Controller`."""
        return self.most
