"""Prices for the policies that weigh nodes against a probe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from castsim.errors import OptionError
from castsim.options import Choice, Price
from castsim.pricing.acceptance import round_masses
from castsim.pricing.cost import Cost, overhead_of, require_cost, require_reach
from castsim.pricing.probefile import open_probe
from castsim.runlog import Run
from replay.policies import Priced
from replay.policies.topn import TopN

RANK_CAP = TopN.rank_cap


@dataclass(frozen=True)
class Pricing:
    """A cost, and the widest tree that it is asked for; masses come from a run.

    Attributes:
        cost: of the probe's smallest prefix, batch 1.
    """

    cost: Cost
    largest: int

    def of(self, choices: Sequence[Choice], run: Run) -> list[Choice]:
        """The choices, with a price for each that takes one: mean masses of the run's chain rounds."""
        if not any(issubclass(c.kind, Priced) for c in choices):
            return list(choices)
        mass = round_masses(run, None, RANK_CAP, self.largest, lambda _: None).mean(axis=0)
        price = Price(self.cost.rounds_ms(self.largest), np.minimum.accumulate(mass))
        return [replace(c, price=price) if issubclass(c.kind, Priced) else c for c in choices]


def pricing(
    choices: Sequence[Choice], budgets: Sequence[int], probe: str | None, overhead: str, draft_ms: float | None
) -> Pricing | None:
    """What the chosen policies weigh; None where none of them weighs anything.

    Raises:
        OptionError: such a policy without a probe, a probe without such a policy, or one that ends below a budget.
        ProbeError: see `open_probe`.
    """
    names = [c.kind.name for c in choices if issubclass(c.kind, Priced)]
    if bool(names) != (probe is not None):
        problem = f"--policy {names[0]}: needs --probe" if names else f"--probe {probe}: no chosen policy weighs it"
        raise OptionError(f"{problem}; costaware and perround go with one, for example --probe blackwell-qwen3-8b")
    if probe is None:
        return None
    cost = require_cost(open_probe(probe).curve(), None, 1, draft_ms, overhead_of(overhead), "least_squares")
    require_reach(cost, max(budgets))
    return Pricing(cost, max(budgets))


def without_priced(choices: Sequence[Choice]) -> list[Choice]:
    """The choices that need no probe: what "all" means where none is given."""
    return [c for c in choices if not issubclass(c.kind, Priced)]
