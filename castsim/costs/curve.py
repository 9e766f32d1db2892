"""What a round costs on one machine: a probe's curve, the drafter, the host; and the probe measured anew."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from castsim.base.errors import OptionError
from castsim.costs.context import Context
from replay.latency import Estimator, LatencyCurve
from replay.width import AffineCost, Overhead, affine_cost, measured_round_ms

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cost:
    """What a round takes on one machine, at one context and batch size.

    Attributes:
        curve: as measured; rules read its smoothed version.
        method: estimator of the affine rule's line.
    """

    curve: LatencyCurve
    draft_ms: float
    overhead: Overhead = field(default_factory=Overhead)
    method: Estimator = "least_squares"

    @property
    def most(self) -> int:
        """Nonroot nodes of the widest tree that is priced."""
        return int(self.curve.packed[-1]) - 1

    @property
    def ar_ms(self) -> float:
        """Time of a token without a drafter, a pass of one packed token; NaN where none was measured."""
        return float(self.curve.ms[0, 0, 0]) if self.curve.packed[0] == 1 else float("nan")

    def rounds_ms(self, budget: int, raw: bool = False) -> Array:
        """(N+1,) from the smoothed curve, or from the points as measured."""
        curve = self.curve if raw else self.curve.smoothed()
        return measured_round_ms(curve, budget, self.draft_ms, self.overhead)

    def round_ms(self, nodes: ArrayLike) -> Array:
        """Times of rounds of so many nonroot nodes, a mean where they differ; NaN for more than the probe prices."""
        at = np.asarray(nodes, np.float64)
        reached = np.where(at <= self.most, at, 0.0)
        target = self.curve.smoothed().ms_at(np.maximum(reached + 1, self.curve.packed[0]))
        times = self.draft_ms + self.overhead.fixed_ms + self.overhead.slope_ms * at + target
        return np.where(at <= self.most, times, np.nan)

    def at(self, part: LatencyCurve) -> Cost:
        """The same at another prefix or batch size, with the drafter time measured there, if one was."""
        draft = float(part.draft_ms[0, 0])
        return replace(self, curve=part, draft_ms=self.draft_ms if np.isnan(draft) else draft)

    def affine(self) -> AffineCost | None:
        """Theorem 2's law; None where the probe has no two points that the line is fitted to."""
        if len(self.curve.line_points()[0]) < 2:
            return None
        return affine_cost(self.curve, self.draft_ms, self.overhead, self.method)


def require_cost(
    curve: LatencyCurve, context: Context, batch: int, draft_ms: float | None, overhead: Overhead, method: str
) -> Cost:
    """The cost at a context and batch size; a drafter time that is given replaces the probe's.

    Raises:
        OptionError: a batch size that was not measured, no drafter time, or an unknown way to fit the line.
    """
    if method not in get_args(Estimator):
        raise OptionError(f"--line {method}: there are {', '.join(get_args(Estimator))}")
    try:
        part = context.of(curve, batch)
    except ValueError as error:
        where = f"--batch {batch}" if "--batch" in context.flags else "--probe"
        raise OptionError(f"{where}: {error}") from error
    draft = float(part.draft_ms[0, 0]) if draft_ms is None else draft_ms
    if not draft >= 0:
        given = "--draft-ms" in context.flags
        where, remedy = ("--draft-ms", "give one") if given else ("--probe", "measure it with castsim probe --drafter")
        raise OptionError(f"{where}: the probe holds no drafter time; {remedy}")
    return Cost(part, draft, overhead, cast(Estimator, method))


def require_reach(cost: Cost, budget: int) -> None:
    """Refuse a tree or chain of more nodes than the probe prices.

    Raises:
        OptionError: it ends below that.
    """
    if budget > cost.most:
        problem = f"it ends at {cost.most + 1} packed tokens, which prices {cost.most} nodes and not {budget}"
        raise OptionError(f"--probe: {problem}")


def noisy_costs(cost: Cost, draws: int, rng: np.random.Generator) -> list[Cost]:
    """The probe measured again and again: the samples of each point drawn with replacement.

    Nothing but repeats tells noise from the steps of a machine, so of medians alone there is one cost, as it is.
    """
    curve = cost.curve
    if curve.samples_ms is None:
        return [cost]
    samples = curve.samples_ms[0, 0]  # (P, S)
    picked = rng.integers(samples.shape[1], size=(draws, *samples.shape))
    drawn = np.median(np.take_along_axis(samples[None], picked, axis=2), axis=2)
    return [replace(cost, curve=LatencyCurve(curve.packed, row)) for row in drawn]


def scatter(curve: LatencyCurve) -> float | None:
    """Relative standard error of a point, the median over the points; None where no samples are known."""
    error = curve.error_ms()
    return None if error is None else float(np.median(error / curve.ms))


def overhead_of(text: str) -> Overhead:
    """Host time from "1.2" or "1.2,0.01": of a round, and of each node.

    Raises:
        OptionError: no one or two numbers of at least 0.
    """
    try:
        values = [float(part) for part in text.split(",")]
        if len(values) > 2 or not all(0 <= value < np.inf for value in values):
            raise ValueError
    except ValueError:
        raise OptionError(
            f"--overhead {text}: give milliseconds of a round, or with those of a node: 1.2,0.01"
        ) from None
    return Overhead(*values)
