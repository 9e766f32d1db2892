"""Controllers, one file each: how the requests of a round share the verifier. A new one is one file here.

A controller is a frozen dataclass with a name. It sees what the drafter believes of each request, and the costs; never
what the target will say.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from castsim.costs.batch import BatchCost

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class View:
    """What a controller sees of B requests.

    Attributes:
        mass: (B, N) sorted masses of the best-first tree.
        spine, probability: (B, L) prefix masses of the chain, and its tokens' own.
        cost: of a round.
        passes: rounds before this one; last: what the one before verified, perhaps of other requests.
    """

    mass: Array
    spine: Array
    probability: Array
    cost: BatchCost
    passes: int = 0
    last: Plan | None = None


@dataclass(frozen=True, eq=False)
class Plan:
    """What is verified.

    Attributes:
        widths: (B,) nonroot nodes.
        chain: they are of the top-1 chain, else of the tree.
        ragged: the pass packs what is there; else every request is padded to the widest.
    """

    widths: NDArray[np.int64]
    chain: bool = False
    ragged: bool = True

    @property
    def packed(self) -> int:
        """Tokens of the pass, roots and padding included."""
        most = int(self.widths.max()) if len(self.widths) else 0
        return int(self.widths.sum()) + len(self.widths) if self.ragged else (1 + most) * len(self.widths)


class Controller(Protocol):
    """Plans a round."""

    name: ClassVar[str]

    def __call__(self, view: View) -> Plan:
        """What to verify of the requests in view."""
        ...

    def reserved(self, depth_max: int) -> int:
        """Nonroot nodes a request, on average over a batch, that a plan never exceeds: room for them is kept."""
        ...


def load_controllers() -> dict[str, type[Controller]]:
    """All controllers of this folder by name."""
    found: dict[str, type[Controller]] = {}
    for module in pkgutil.iter_modules(__path__):
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, type) and "name" in vars(value) and value.__module__ == f"{__name__}.{module.name}":
                found[vars(value)["name"]] = value
    return dict(sorted(found.items()))
