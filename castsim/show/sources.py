"""What pictures are drawn from: published data always; a run, a probe and a profile where they are given."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from castsim.advice.acceptance import Acceptance, Scored, of_run, scored
from castsim.costs.context import context_of, run_contexts
from castsim.costs.curve import Cost, require_cost
from castsim.costs.probefile import Probe
from castsim.runs.reading import Run
from castsim.scoring.calibrate import Diagnosis, diagnose
from castsim.scoring.policies import Choice
from castsim.scoring.tally import domains_of
from replay.policies.topn import TopN
from replay.width import Overhead

WIDTHS = (15, 31, 47, 63, 95, 127)
PUBLISHED = "published"


class MissingSourceError(Exception):
    """A figure, or a side of it, that cannot be drawn; the text says why."""


@dataclass(frozen=True, eq=False)
class Sources:
    """What there is beside the published data.

    Attributes:
        run: a recorded or simulated run.
        probe: a latency curve, of the machine that the run's times are asked for.
    """

    run: Run | None = None
    probe: Probe | None = None

    @property
    def own(self) -> str:
        """What the run is called on a picture.

        Raises:
            MissingSourceError: there is none.
        """
        run = self.need_run()
        kind = "simulated" if run.facts.simulated else "recorded"
        return f"{kind} run {run.folder.name}"

    def need_run(self) -> Run:
        """The run.

        Raises:
            MissingSourceError: there is none.
        """
        if self.run is None:
            raise MissingSourceError("no run was given")
        return self.run

    def need_probe(self) -> Probe:
        """The probe.

        Raises:
            MissingSourceError: there is none.
        """
        if self.probe is None:
            raise MissingSourceError("no probe was given")
        return self.probe

    @cached_property
    def domains(self) -> dict[int, str]:
        """Domain of each prompt of the run."""
        return domains_of(self.need_run(), [])

    @cached_property
    def diagnoses(self) -> dict[str, Diagnosis]:
        """Diagnostics of the chain's rounds, by domain and for all."""
        return diagnose(self.need_run(), None, self.domains, TopN.rank_cap, lambda _: None)

    @cached_property
    def scored(self) -> Scored:
        """topN at the paper's widths, beside the chain."""
        return scored(self.need_run(), None, (Choice(TopN),), WIDTHS)

    @cached_property
    def acceptance(self) -> Acceptance:
        """Masses and R of the run."""
        return of_run(self.need_run(), None, WIDTHS, TopN.rank_cap, WIDTHS[-1])

    @cached_property
    def cost(self) -> Cost:
        """The probe at the contexts of the run, the nearest prefix where they lie outside; batch 1."""
        probe = self.need_probe()
        curve = probe.curve()
        if curve.packed[-1] <= WIDTHS[-1]:
            raise MissingSourceError(f"the probe ends at {curve.packed[-1]} packed tokens")
        try:
            rounds = None if self.run is None else run_contexts(self.run)
            context = context_of(curve, None, rounds, True, own=True)
            return require_cost(curve, context, 1, None, Overhead(), "least_squares")
        except Exception as error:
            raise MissingSourceError(str(error)) from error
