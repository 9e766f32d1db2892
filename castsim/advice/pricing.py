"""Prices for the policies that weigh nodes against a probe."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from castsim.advice.acceptance import round_masses
from castsim.base.errors import OptionError
from castsim.costs.context import Context, context_of, run_contexts
from castsim.costs.curve import Cost, overhead_of, require_cost, require_reach
from castsim.costs.match import differences, of_facts, of_probe, told
from castsim.costs.probefile import Probe, open_probe
from castsim.runs.manifest import Facts
from castsim.runs.reading import Run
from castsim.scoring.policies import Choice, Price
from replay.policies import Priced
from replay.policies.topn import TopN
from replay.width import Overhead

RANK_CAP = TopN.rank_cap


@dataclass(frozen=True)
class Pricing:
    """A probe, and the widest tree that it is asked for; masses come from a run.

    Attributes:
        probe: as opened; it is read at batch 1.
        draft_ms: replaces the probe's.
        prefix, holds: see `context_of`.
        strict: refuse a run of another deployment than the probe's.
        flags: see `Context`.
    """

    probe: Probe
    largest: int
    overhead: Overhead
    draft_ms: float | None = None
    prefix: int | None = None
    holds: bool = False
    strict: bool = False
    flags: Collection[str] = ()

    def context(self, run: Run) -> Context:
        """What rounds are priced at: the contexts of the run's, or where the probe has one prefix, that."""
        return context_of(self.probe.curve(), self.prefix, run_contexts(run), self.holds, True, self.flags)

    def cost(self, run: Run) -> Cost:
        """The price of a round of the run.

        Raises:
            OptionError: see `context_of` and `require_cost`, or a probe that ends below the widest tree.
        """
        cost = require_cost(self.probe.curve(), self.context(run), 1, self.draft_ms, self.overhead, "least_squares")
        require_reach(cost, self.largest)
        return cost

    def notes(self, run: Run) -> list[str]:
        """What a reader must know of the price: where run and probe differ, and the context."""
        return [*self.warning(run.facts), self.context(run).told]

    def warning(self, facts: Facts) -> list[str]:
        """Where a run and the probe differ: one line, or none.

        Raises:
            OptionError: they differ, and the user is strict.
        """
        return told(self.mismatch(facts), self.strict)

    def mismatch(self, facts: Facts) -> list[dict[str, Any]]:
        """The same for machines."""
        return differences(of_facts(facts), of_probe(self.probe))

    def of(self, choices: Sequence[Choice], run: Run) -> list[Choice]:
        """The choices, with a price for each that takes one."""
        return with_price(choices, self.cost(run), self.largest, run)


def with_price(choices: Sequence[Choice], cost: Cost, largest: int, run: Run) -> list[Choice]:
    """The choices, with a price for each that takes one: a cost, and mean masses of the run's chain rounds."""
    if not any(issubclass(c.kind, Priced) for c in choices):
        return list(choices)
    mass = round_masses(run, None, RANK_CAP, largest, lambda _: None).mean(axis=0)
    price = Price(cost.rounds_ms(largest), np.minimum.accumulate(mass))
    return [replace(c, price=price) if issubclass(c.kind, Priced) else c for c in choices]


def pricing(
    choices: Sequence[Choice],
    budgets: Sequence[int],
    probe: str | None,
    overhead: str,
    draft_ms: float | None,
    **how: Any,
) -> Pricing | None:
    """What the chosen policies weigh; None where none of them weighs anything.

    Args:
        how: prefix, holds, strict and flags of `Pricing`.

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
    opened = open_probe(probe)
    if max(budgets) >= opened.packed[-1]:
        raise OptionError(f"--budgets {max(budgets)}: the probe prices trees of at most {opened.packed[-1] - 1} nodes")
    return Pricing(opened, max(budgets), overhead_of(overhead), draft_ms, **how)


def without_priced(choices: Sequence[Choice]) -> list[Choice]:
    """The choices that need no probe: what "all" means where none is given."""
    return [c for c in choices if not issubclass(c.kind, Priced)]
