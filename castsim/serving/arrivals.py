"""When requests arrive, in milliseconds from the start."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from castsim.base.errors import OptionError

Times = NDArray[np.float64]
BURST = 8  # requests of a burst, on average
KINDS = ("poisson", "bursty")


def arrivals(kind: str, rate_per_s: float, count: int, rng: np.random.Generator) -> Times:
    """Arrival times (count,): a Poisson stream, or one of bursts of geometric size with the same mean rate.

    Raises:
        OptionError: a rate that is not positive, or an unknown kind.
    """
    if not 0 < rate_per_s < np.inf:
        raise OptionError(f"--rate {rate_per_s}: give a positive number of requests a second")
    if kind == "poisson":
        return np.cumsum(rng.exponential(1000 / rate_per_s, count))
    if kind == "bursty":
        sizes = rng.geometric(1 / BURST, count)
        starts = np.cumsum(rng.exponential(1000 * BURST / rate_per_s, count))
        return np.repeat(starts, sizes)[:count]
    raise OptionError(f"--arrivals {kind}: there are {', '.join(KINDS)}, or a trace of requests")
