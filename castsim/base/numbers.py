"""Numbers of a JSON document, which knows no NaN: null where there is none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def or_none(value: float) -> float | None:
    """A number for JSON: null for what is none, as a time that is not priced or a gain on nothing."""
    return float(value) if np.isfinite(value) else None


def ends_or_none(ends: Array, known: bool = True) -> list[float] | None:
    """An interval (2,) for JSON: null where it is not known, or its ends are not priced."""
    return ends.tolist() if known and np.isfinite(ends).all() else None
