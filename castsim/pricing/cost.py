"""What a round costs on one machine: a probe's curve, the drafter, the host; and the probe measured anew."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import cast, get_args

import numpy as np
from numpy.typing import NDArray

from castsim.errors import OptionError
from replay.latency import Estimator, LatencyCurve
from replay.width import AffineCost, Overhead, affine_cost, measured_round_ms

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cost:
    """What a round takes on one machine, at one prefix and batch size.

    Attributes:
        curve: as measured; rules read its smoothed version.
        method: estimator of the affine rule's line.
    """

    curve: LatencyCurve
    draft_ms: float
    overhead: Overhead = field(default_factory=Overhead)
    method: Estimator = "least_squares"

    def rounds_ms(self, budget: int, raw: bool = False) -> Array:
        """(N+1,) from the smoothed curve, or from the points as measured."""
        curve = self.curve if raw else self.curve.smoothed()
        return measured_round_ms(curve, budget, self.draft_ms, self.overhead)

    def at(self, part: LatencyCurve) -> Cost:
        """The same at another prefix or batch size, with the drafter time measured there, if one was."""
        draft = float(part.draft_ms[0, 0])
        return replace(self, curve=part, draft_ms=self.draft_ms if np.isnan(draft) else draft)

    def affine(self) -> AffineCost:
        """Theorem 2's law."""
        return affine_cost(self.curve, self.draft_ms, self.overhead, self.method)


def require_cost(
    curve: LatencyCurve, prefix: int | None, batch: int, draft_ms: float | None, overhead: Overhead, method: str
) -> Cost:
    """The cost at a prefix and batch size; a drafter time that is given replaces the probe's.

    Raises:
        OptionError: a batch size that was not measured, no drafter time, or an unknown way to fit the line.
    """
    if method not in get_args(Estimator):
        raise OptionError(f"--line {method}: there are {', '.join(get_args(Estimator))}")
    try:
        part = curve.at(prefix, batch)
    except ValueError as error:
        raise OptionError(f"--batch {batch}: {error}") from error
    draft = float(part.draft_ms[0, 0]) if draft_ms is None else draft_ms
    if not draft >= 0:
        raise OptionError("--draft-ms: the probe holds no drafter time; give one")
    return Cost(part, draft, overhead, cast(Estimator, method))


def require_reach(cost: Cost, budget: int) -> None:
    """Refuse a tree or chain of more nodes than the probe prices.

    Raises:
        OptionError: it ends below that.
    """
    most = int(cost.curve.packed[-1]) - 1
    if budget > most:
        raise OptionError(f"--probe: it ends at {most + 1} packed tokens, which prices {most} nodes and not {budget}")


def noisy_costs(cost: Cost, draws: int, rng: np.random.Generator) -> list[Cost]:
    """The probe measured again and again: samples drawn with replacement, or medians shaken by their own scatter.

    Without samples the scatter is that of the points about their neighbours.
    """
    curve = cost.curve
    if curve.samples_ms is not None:
        samples = curve.samples_ms[0, 0]  # (P, S)
        picked = rng.integers(samples.shape[1], size=(draws, *samples.shape))
        drawn = np.median(np.take_along_axis(samples[None], picked, axis=2), axis=2)
    else:
        drawn = curve.ms[0, 0] * (1 + scatter(curve) * rng.standard_normal((draws, len(curve.packed))))
    return [replace(cost, curve=LatencyCurve(curve.packed, row)) for row in drawn]


def scatter(curve: LatencyCurve) -> float:
    """Relative spread of a point, from its distance to the line between its neighbours, n = 1 left out.

    A bend of the curve counts as spread, so this is rather too much than too little. 0 for fewer than three points.
    """
    first = int(curve.packed[0] == 1)
    n, ms = curve.packed[first:].astype(np.float64), curve.ms[0, 0, first:]
    if len(n) < 3:
        return 0.0
    right = (n[1:-1] - n[:-2]) / (n[2:] - n[:-2])  # weight of the right neighbour
    away = ms[1:-1] - (1 - right) * ms[:-2] - right * ms[2:]
    single = away / ms[1:-1] / np.sqrt(1 + right**2 + (1 - right) ** 2)
    return float(1.4826 * np.median(np.abs(single)))


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
