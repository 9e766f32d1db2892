"""How wide: expected accepted length over the budget, and the rules that stop it.

A rule takes masses and the time of a round at each budget; what those times hold (draft, overhead, a measured curve or
a line) is `measured_round_ms` and `affine_cost`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replay.latency import Estimator, LatencyCurve

FloatArray = NDArray[np.float64]
_RATE_STEPS = 100  # Dinkelbach's iteration ends in a handful


@dataclass(frozen=True)
class Overhead:
    """h(N) = fixed_ms + slope_ms * N: what building, packing, walking and committing a tree adds to the two models.

    The paper's rule leaves it out (section 3.3).
    """

    fixed_ms: float = 0.0
    slope_ms: float = 0.0


@dataclass(frozen=True)
class AffineCost:
    """Theorem 2's law of a round's time: fixed_ms + slope_ms * N.

    Attributes:
        clamped: what the probe's line had below 0, where the law can have none: "slope", then no node costs anything;
            or "intercept", then the line starts at 0. Both say more about the probe than about the GPU.
    """

    fixed_ms: float
    slope_ms: float
    clamped: Literal["slope", "intercept"] | None = None


def affine_cost(
    curve: LatencyCurve, draft_ms: float, overhead: Overhead = Overhead(), method: Estimator = "least_squares"
) -> AffineCost:
    """The affine law of one prefix and batch size: draft, overhead, and the line of `LatencyCurve.line`.

    The root's share of the line, n0 = 1, is in fixed_ms. A line that falls becomes the mean of its points, one that
    starts below 0 the line through 0: Theorem 2 needs a positive fixed time and a slope that is not negative.

    Source: section 3.3, which takes the least-squares slope over 16 <= n <= 128 for c1.
    """
    line = curve.line(method)
    clamped: Literal["slope", "intercept"] | None = None
    intercept, slope = line
    if slope < 0:
        clamped, intercept, slope = "slope", float(np.mean(curve.line_points()[1])), 0.0
    elif intercept < 0:
        clamped, intercept, slope = "intercept", 0.0, curve.slope_through_zero(method)
    return AffineCost(draft_ms + overhead.fixed_ms + intercept + slope, slope + overhead.slope_ms, clamped)


def measured_round_ms(
    curve: LatencyCurve,
    budget: int,
    draft_ms: float,
    overhead: Overhead = Overhead(),
    how: Literal["linear", "step"] = "linear",
) -> FloatArray:
    """(N+1,) time of a round at every budget 0..N from a measured curve of one prefix and batch size.

    Counts below the smallest measured one take its time.

    Raises:
        ValueError: see `LatencyCurve.ms_at`.

    Source: l(N) = c_draft + h(N) + l_tgt(n0 + N) of section 3.3.
    """
    nodes = np.arange(budget + 1)
    return (
        draft_ms
        + overhead.fixed_ms
        + overhead.slope_ms * nodes
        + curve.ms_at(np.maximum(nodes + 1, curve.packed[0]), how)
    )


def expected_accepted(mass: ArrayLike) -> NDArray[np.float64]:
    """g(N) for N = 0..M (M+1,) from the M largest masses (M,), largest first: g(N) = g(N-1) + rho_(N), g(0) = 0.

    Raises:
        ValueError: masses that rise, or lie outside 0..1.

    Source: Theorem 2; Lemma 2 for the sum.
    """
    rho = np.asarray(mass, np.float64)
    if rho.ndim != 1 or not ((rho >= 0) & (rho <= 1)).all() or (np.diff(rho) > 0).any():
        raise ValueError("masses must be one falling row of numbers in 0..1")
    return np.concatenate([[0.0], np.cumsum(rho)])


def throughput_tok_per_ms(mass: ArrayLike, *, fixed_ms: float, slope_ms: float) -> NDArray[np.float64]:
    """(1 + g(N)) / l(N) for N = 0..M (M+1,), with l(N) = fixed_ms + slope_ms * N.

    `fixed_ms` holds all that a round costs without nonroot nodes: draft, overhead and the root's share of the target.

    Raises:
        ValueError: a fixed time that is not positive, or a negative slope (Theorem 2 assumes neither).
    """
    if not fixed_ms > 0 or not slope_ms >= 0:
        raise ValueError(f"fixed_ms must be positive and slope_ms not negative, not {fixed_ms} and {slope_ms}")
    gained = expected_accepted(mass)
    return (1 + gained) / (fixed_ms + slope_ms * np.arange(len(gained)))


def stopping_budget(mass: ArrayLike, *, fixed_ms: float, slope_ms: float, smallest: int = 0) -> int:
    """The budget N* of Theorem 2: from `smallest` on, add node N+1 while rho_(N+1) >= (1 + g(N)) / l(N) * slope_ms.

    A node at equality is added. The largest budget is the number of masses.

    Raises:
        ValueError: see `throughput_tok_per_ms`.
    """
    rate = throughput_tok_per_ms(mass, fixed_ms=fixed_ms, slope_ms=slope_ms)
    rho = np.asarray(mass, np.float64)
    fails = rho < rate[:-1] * slope_ms  # (M,) at N: node N+1 does not pay
    fails[:smallest] = False
    return int(fails.argmax()) if fails.any() else len(rho)


def best_budget(mass: ArrayLike, round_ms: ArrayLike, allowed: ArrayLike | None = None) -> int:
    """The measured rule: the budget of largest (1 + g(N)) / round_ms[N], whatever the curve's shape.

    Args:
        mass: (N,) falling.
        round_ms: (N+1,) time of a round at each budget, see `measured_round_ms`.
        allowed: budgets to choose from; None is 1..N. The smallest of equals wins.

    Raises:
        ValueError: see `expected_accepted`; shapes that disagree, or a budget beyond the masses.
    """
    rate = _rate(expected_accepted(mass), round_ms)
    budgets = np.arange(1, len(rate)) if allowed is None else np.sort(np.asarray(allowed))
    if not len(budgets) or budgets[0] < 0 or budgets[-1] >= len(rate):
        raise ValueError(f"budgets must lie in 0..{len(rate) - 1}")
    return int(budgets[rate[budgets].argmax()])


def round_budgets(mass: FloatArray, round_ms: ArrayLike, rate_tok_per_ms: float | None = None) -> NDArray[np.int64]:
    """The per-round rule: a budget in 1..N for each of B rounds, from its own masses (B, N).

    Without a rate each round maximises its own (1 + g(N)) / round_ms[N], which is CaDDTree's statement; the time may
    have any shape. That favours rounds that end soon: the throughput of many rounds is a ratio of sums, not a mean of
    ratios. With a rate it maximises 1 + g(N) - rate * round_ms[N]; at the rate of `best_rate` the sums' ratio is the
    largest that budgets chosen round by round can reach.

    Source: cost-aware budget of CaDDTree (github.com/ZhangShuai1230/CaDDTree), there on a convex fit; Dinkelbach 1967.
    """
    gained = _rows(mass)
    time = _same_length(round_ms, gained.shape[1])
    value = gained[:, 1:] / time[1:] if rate_tok_per_ms is None else gained[:, 1:] - rate_tok_per_ms * time[1:]
    return np.asarray(1 + value.argmax(axis=1), np.int64)


def best_rate(mass: FloatArray, round_ms: ArrayLike) -> float:
    """The largest sum of (1 + g) over sum of round_ms (tokens a ms) that budgets in 1..N, one a round, can reach.

    Source: Dinkelbach's iteration for fractional programmes; it rises to the optimum and ends there.
    """
    gained = _rows(mass)
    time = _same_length(round_ms, gained.shape[1])
    row, rate = np.arange(len(gained)), 0.0
    for _ in range(_RATE_STEPS):
        budget = round_budgets(mass, time, rate)
        better = float(gained[row, budget].sum() / time[budget].sum())
        if better <= rate:
            break
        rate = better
    return rate


def batch_masses(mass: FloatArray) -> FloatArray:
    """(B * N,) the masses of B requests (B, N) as one falling row: the order of Proposition 2."""
    return np.sort(np.asarray(mass, np.float64), axis=None)[::-1]


def batch_stopping_budget(mass: FloatArray, *, fixed_ms: float, slope_ms: float) -> int:
    """The total budget M of Proposition 3 for B requests with masses (B, N).

    Node M+1 of the batch is added while its mass is at least (G(M) + B) / l(M, B) * slope_ms; roots are outside M, so
    the pass packs B + M tokens. Equals `stopping_budget` at B = 1.

    Raises:
        ValueError: see `throughput_tok_per_ms`.
    """
    falling, requests = batch_masses(mass), len(mass)
    if not fixed_ms > 0 or not slope_ms >= 0:
        raise ValueError(f"fixed_ms must be positive and slope_ms not negative, not {fixed_ms} and {slope_ms}")
    committed = requests + expected_accepted(falling)
    fails = falling < committed[:-1] / (fixed_ms + slope_ms * np.arange(len(falling))) * slope_ms
    return int(fails.argmax()) if fails.any() else len(falling)


def best_batch_budget(mass: FloatArray, round_ms: ArrayLike) -> int:
    """The measured rule for a batch: the total budget M of largest (B + G(M)) / round_ms[M], in 0..len(round_ms) - 1.

    Raises:
        ValueError: more times than the requests have nodes.
    """
    committed = len(mass) + expected_accepted(batch_masses(mass))
    time = np.asarray(round_ms, np.float64)
    if len(time) > len(committed):
        raise ValueError(f"{len(mass)} requests have {len(committed) - 1} nodes, fewer than {len(time) - 1}")
    return int((committed[: len(time)] / time).argmax())


def on_grid(rate: FloatArray, grid: ArrayLike) -> int:
    """The budget of a grid with the largest throughput `rate` (N+1,): how a rule's answer is rounded.

    Throughput under Theorem 2 has one peak, so this is one of the grid's two neighbours of N*.
    """
    budgets = np.asarray(grid)
    return int(budgets[rate[budgets].argmax()])


def _rows(mass: FloatArray) -> FloatArray:
    """(B, N+1) 1 + g(N) of each round."""
    rho = np.asarray(mass, np.float64)
    if rho.ndim != 2 or not ((rho >= 0) & (rho <= 1)).all() or (np.diff(rho, axis=1) > 0).any():
        raise ValueError("masses must be falling rows (B, N) of numbers in 0..1")
    return 1 + np.cumsum(np.pad(rho, ((0, 0), (1, 0))), axis=1)


def _rate(gained: FloatArray, round_ms: ArrayLike) -> FloatArray:
    return (1 + gained) / _same_length(round_ms, len(gained))


def _same_length(round_ms: ArrayLike, length: int) -> FloatArray:
    time = np.asarray(round_ms, np.float64)
    if time.shape != (length,) or not (time > 0).all():
        raise ValueError(f"round_ms must hold {length} positive times, one for each budget from 0")
    return time
