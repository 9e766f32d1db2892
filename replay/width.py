"""How wide: expected accepted length over the budget, and the marginal stopping rule of Theorem 2."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


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
