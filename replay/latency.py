"""What a pass of the target costs: measured times over packed tokens, at each prefix and batch size."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatTable = NDArray[np.float64]
Estimator = Literal["least_squares", "endpoints", "theil_sen"]
LINE_FROM, LINE_TO = 16, 128  # packed tokens of the paper's line; n = 1 is a regime of its own
ERRORS_MOVED = 3.0  # standard errors of its samples by which a point may be smoothed
CLIFF, TRANSIENT = 0.10, 0.05  # rise between neighbours, and distance from them, that are worth a word


class Line(NamedTuple):
    """ms = intercept_ms + slope_ms * packed."""

    intercept_ms: float
    slope_ms: float


class Cliff(NamedTuple):
    """Between two measured counts the time rises by a share of the smaller one."""

    below: int
    above: int
    rise: float


class Transient(NamedTuple):
    """A point measured far from what its neighbours say."""

    packed: int
    measured_ms: float
    neighbours_ms: float


@dataclass(frozen=True, slots=True, eq=False)
class LatencyCurve:
    """Times of the target's forward pass.

    Attributes:
        packed: (P,) int64, rising, tokens that each request packs, the pending root included.
        ms: (X, B, P) float64, medians; (P,) is taken for one prefix and one batch size.
        prefix: (X,) int64, rising, cached tokens.
        batch: (B,) int64, rising, requests in one pass.
        draft_ms: (X, B) float64, the drafter's one pass at each prefix and batch size; NaN where it was not measured.
        samples_ms: (X, B, P, S) raw times, or None where only medians are known.

    Raises:
        ValueError: no or unsorted counts, times that are no positive numbers, shapes that disagree.

    Source: the verify-cost probe of appendix D.
    """

    packed: NDArray[np.int64]
    ms: FloatTable
    prefix: NDArray[np.int64] = None  # type: ignore[assignment]  # filled in below
    batch: NDArray[np.int64] = None  # type: ignore[assignment]
    draft_ms: FloatTable = None  # type: ignore[assignment]
    samples_ms: FloatTable | None = None

    def __post_init__(self) -> None:
        packed = _rising(self.packed, "packed", least=1)
        prefix = _rising([0] if self.prefix is None else self.prefix, "prefix", least=0)
        batch = _rising([1] if self.batch is None else self.batch, "batch", least=1)
        cells = (len(prefix), len(batch))
        ms = _times(self.ms, "ms")
        ms = ms[None, None] if ms.ndim == 1 else ms
        draft = np.full(cells, np.nan) if self.draft_ms is None else np.asarray(self.draft_ms, np.float64)
        draft = np.broadcast_to(draft, cells) if draft.ndim == 0 else draft
        _times(draft[~np.isnan(draft)], "draft_ms")
        samples = None if self.samples_ms is None else _times(self.samples_ms, "samples_ms")
        if samples is not None and not samples.size:
            raise ValueError("samples_ms must hold a time of each point, or be left out")
        for name, array, shape in (
            ("ms", ms, (*cells, len(packed))),
            ("draft_ms", draft, cells),
            ("samples_ms", samples if samples is None else samples[..., 0], (*cells, len(packed))),
        ):
            if array is not None and array.shape != shape:
                raise ValueError(f"{name} must have shape {shape}, not {array.shape}")
        for name, value in (("packed", packed), ("ms", ms), ("prefix", prefix), ("batch", batch)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "draft_ms", draft)
        object.__setattr__(self, "samples_ms", samples)

    def at(
        self, prefix: ArrayLike | None = None, batch: int = 1, outside: Literal["refuse", "hold"] = "refuse"
    ) -> LatencyCurve:
        """The curve of one batch size, at one prefix or as the mean over many.

        Between measured prefixes times are interpolated.

        Args:
            prefix: cached tokens, a number or an array of any shape (one for each round). None is the only prefix.
            batch: requests in a pass, a measured size.
            outside: "hold" takes the nearest measured prefix for those beyond the measured ones.

        Raises:
            ValueError: a batch size that was not measured, a prefix outside the measured ones, or None for several.
        """
        if batch not in self.batch:
            raise ValueError(f"batch {batch} was not measured; there are {self.batch.tolist()}")
        wanted = np.asarray(self._only_prefix() if prefix is None else prefix, np.float64)
        low, high = self.prefix[0], self.prefix[-1]
        if outside == "refuse" and not ((wanted >= low) & (wanted <= high)).all():
            raise ValueError(
                f"prefix {wanted.min():g} to {wanted.max():g} is outside what was measured, {low} to {high}"
            )
        held = np.clip(wanted, low, high)
        weight = self.prefix_weights(held)
        cell = np.flatnonzero(self.batch == batch)

        def mean(table: FloatTable) -> FloatTable:  # a prefix of no weight may hold NaN
            used = weight > 0
            return np.tensordot(weight[used], table[used][:, cell], axes=1)[None]

        return LatencyCurve(
            self.packed,
            mean(self.ms),
            np.array([round(float(held.mean()))]),
            np.array([batch]),
            mean(self.draft_ms),
            None if self.samples_ms is None else mean(self.samples_ms),
        )

    def _only_prefix(self) -> int:
        if len(self.prefix) > 1:
            raise ValueError(f"there are prefixes {self.prefix.tolist()}; name one")
        return int(self.prefix[0])

    def prefix_weights(self, prefix: FloatTable) -> FloatTable:
        """(X,) share of each measured prefix in the mean over those asked for; the nearest stands beyond the ends."""
        place = np.interp(prefix, self.prefix, np.arange(len(self.prefix))).ravel()
        below = place.astype(np.intp)
        above = np.minimum(below + 1, len(self.prefix) - 1)
        size = len(self.prefix)
        share = np.bincount(below, 1 - (place - below), size) + np.bincount(above, place - below, size)
        return np.asarray(share / len(place))

    def ms_at(self, packed: ArrayLike, how: Literal["linear", "step"] = "linear") -> FloatTable:
        """Time at packed counts, of a curve of one prefix and batch size.

        "linear" joins measured points by lines, but for n = 1, behind which the next point's regime begins; "step"
        gives every count the time of the next measured one, as a kernel of fixed tiles does.

        Raises:
            ValueError: a count outside the measured ones, which is not guessed, or a curve of several prefixes.
        """
        n = np.asarray(packed)
        if n.size and (n.min() < self.packed[0] or n.max() > self.packed[-1]):
            raise ValueError(
                f"packed {n.min()} to {n.max()} is outside what was measured, {self.packed[0]} to {self.packed[-1]}"
            )
        stepped = self._one()[np.searchsorted(self.packed, n)]
        if how == "step":
            return np.asarray(stepped)
        second = self.packed[min(1, len(self.packed) - 1)]
        regime = (self.packed[0] == 1) & (n > 1) & (n < second)
        return np.where(regime, stepped, np.interp(n, self.packed, self._one()))

    def line(self, method: Estimator = "least_squares") -> Line:
        """The line through the points with 16 <= n <= 128, as the paper fits it; both its numbers may be negative.

        Raises:
            ValueError: fewer than two such points, or an unknown method.
        """
        n, ms = self.line_points()
        if len(n) < 2:
            raise ValueError(f"a line needs two points with {LINE_FROM} <= n <= {LINE_TO}, there are {len(n)}")
        if method == "least_squares":
            slope, intercept = np.polyfit(n, ms, 1).tolist()
            return Line(intercept, slope)
        if method == "endpoints":
            slope = float((ms[-1] - ms[0]) / (n[-1] - n[0]))
            return Line(float(ms[0] - slope * n[0]), slope)
        if method == "theil_sen":
            slope = _pair_slope(n, ms)
            return Line(float(np.median(ms - slope * n)), slope)
        raise ValueError(f"method {method}: there are least_squares, endpoints and theil_sen")

    def line_points(self) -> tuple[FloatTable, FloatTable]:
        """Packed counts with 16 <= n <= 128 and their times, (F,) each."""
        fitted = (self.packed >= LINE_FROM) & (self.packed <= LINE_TO)
        return self.packed[fitted].astype(np.float64), self._one()[fitted]

    def slope_through_zero(self, method: Estimator = "least_squares") -> float:
        """ms a packed token of the line through those points and 0, by the same method."""
        n, ms = self.line_points()
        if method == "least_squares":
            return float(n @ ms / (n @ n))
        return float(np.median(ms / n) if method == "theil_sen" else ms[-1] / n[-1])

    def slope(self, method: Estimator = "least_squares") -> float:
        """ms a packed token over 16 <= n <= 128: see `line`."""
        return self.line(method).slope_ms

    def error_ms(self) -> FloatTable | None:
        """(X, B, P) standard errors of the medians, from the samples' median absolute deviation; None without them."""
        if self.samples_ms is None:
            return None
        centre = np.median(self.samples_ms, axis=-1, keepdims=True)
        spread = 1.4826 * np.median(np.abs(self.samples_ms - centre), axis=-1)
        return np.asarray(1.2533 * spread / np.sqrt(self.samples_ms.shape[-1]))

    def smoothed(self) -> LatencyCurve:
        """Times that do not fall with n, and that no single bad point bends.

        More work takes no less time, so a fall is noise. Where samples are known a point moves by no more than three
        standard errors of its median: what they do not explain is a property of the machine and stays. n = 1 stays.
        """
        fit = np.apply_along_axis(_monotone, 2, self.ms, int(self.packed[0] == 1))
        error = self.error_ms()
        if error is not None:
            fit = self.ms + np.clip(fit - self.ms, -ERRORS_MOVED * error, ERRORS_MOVED * error)
        return replace(self, ms=fit)

    def cliffs(self) -> list[Cliff]:
        """Where the smoothed curve rises from one measured count to the next, above n = 1, by a tenth of its value
        more than its usual slope (the median over all pairs of points) explains.
        """
        first = int(self.packed[0] == 1)
        n, ms = self.packed[first:].astype(np.float64), self.smoothed()._one()[first:]
        if len(n) < 2:
            return []
        usual = _pair_slope(n, ms)
        excess = (np.diff(ms) - usual * np.diff(n)) / ms[:-1]
        return [Cliff(int(n[i]), int(n[i + 1]), float(ms[i + 1] / ms[i] - 1)) for i in np.flatnonzero(excess >= CLIFF)]

    def transients(self) -> list[Transient]:
        """Points a twentieth or more away from what their neighbours say, whatever their samples."""
        own = self._one()
        near = _monotone(own, int(self.packed[0] == 1))
        away = np.flatnonzero(np.abs(own / near - 1) >= TRANSIENT)
        return [Transient(int(self.packed[i]), float(own[i]), float(near[i])) for i in away]

    def _one(self) -> FloatTable:
        """(P,) the times of the only prefix and batch size."""
        if self.ms.shape[:2] != (1, 1):
            raise ValueError("choose a prefix and a batch size first, with at(prefix, batch)")
        return np.asarray(self.ms[0, 0])


def _pair_slope(n: FloatTable, ms: FloatTable) -> float:
    """Median slope over all pairs of points (Theil and Sen)."""
    first, second = np.triu_indices(len(n), 1)
    return float(np.median((ms[second] - ms[first]) / (n[second] - n[first])))


def _monotone(ms: FloatTable, skip: int) -> FloatTable:
    """Running medians of three, then the nearest curve that does not fall; the first `skip` points stay.

    The first point may only come down to its neighbours, and the last one stays: one high point at the end is a cliff
    or a transient, and nothing behind it tells which.
    """
    own = ms[skip:]
    if len(own) < 3:
        return ms.copy()
    calm = own.copy()
    calm[1:-1] = np.median(np.stack([own[:-2], own[1:-1], own[2:]]), axis=0)
    calm[0] = min(calm[0], max(calm[1], 3 * calm[1] - 2 * calm[2]))
    return np.concatenate([ms[:skip], _pooled(calm)])


def _pooled(ms: FloatTable) -> FloatTable:
    """The least-squares curve that does not fall (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []  # mean, points
    for value in ms.tolist():
        mean, count = value, 1
        while blocks and blocks[-1][0] > mean:
            before, points = blocks.pop()
            mean, count = (before * points + mean * count) / (points + count), points + count
        blocks.append((mean, count))
    means, counts = zip(*blocks, strict=True)
    return np.repeat(means, counts)


def _rising(values: Any, name: str, least: int) -> NDArray[np.int64]:
    array = np.atleast_1d(np.asarray(values))
    if array.dtype.kind not in "iu" or array.ndim != 1 or not len(array):
        raise ValueError(f"{name} must be a row of whole numbers")
    if array[0] < least or (np.diff(array) <= 0).any():
        raise ValueError(f"{name} must rise from at least {least}, without repeats, not {array.tolist()}")
    return array.astype(np.int64)


def _times(values: Any, name: str) -> FloatTable:
    array = np.asarray(values, np.float64)
    if not (np.isfinite(array) & (array > 0)).all():
        raise ValueError(f"{name} must hold positive numbers of milliseconds")
    return array
