"""What a round of a batch costs: the drafter's pass over B requests, and the target's over all packed tokens."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from castsim.base.errors import OptionError
from castsim.costs.match import Deployment, of_probe
from castsim.costs.probefile import open_probe
from replay.latency import LatencyCurve

TAX = {1: 0.10, 8: 0.79, 32: 2.37}  # appendix F: a pass of 64 tokens a request over one of 1, Qwen3-8B on Blackwell
TAX_TOKENS = 64
DRAFT_MS = {1: 3.2, 32: 19.3}  # appendix F
PUBLISHED = "published"
PUBLISHED_BASE = "blackwell-qwen3-8b"  # the probe that its pass of one token is from
ASSUMPTIONS = {
    "total": "one request's times price a batch by all its tokens",
    "hold": "beyond the probe's prefixes the nearest one stands",
}


@dataclass(frozen=True)
class Surface:
    """Target: base_ms * (1 + share * packed tokens of the whole batch); drafter: a line over B.

    Attributes:
        residuals: of the published width tax at each batch size it was fitted to, in points.
    """

    base_ms: float
    share: float
    draft_fixed_ms: float
    draft_slope_ms: float
    residuals: tuple[tuple[int, float], ...] = ()

    def at(self, context: NDArray[np.int64]) -> Surface:
        """The same at any context: the paper prints none."""
        return self

    def reach(self, batch: int) -> float:
        """Packed tokens that a pass over so many requests has at most: a line has no end."""
        return math.inf

    def target_ms(self, batch: int, packed: float) -> float:
        """A pass of `packed` tokens, roots included, over all requests."""
        return self.base_ms * (1 + self.share * packed)

    def draft_ms(self, batch: int) -> float:
        """The drafter's pass."""
        return self.draft_fixed_ms + self.draft_slope_ms * batch

    def prefill_ms(self, tokens: int) -> float:
        """A prompt's own pass, at the same share a token."""
        return self.target_ms(1, tokens)


@dataclass(frozen=True, eq=False)
class Measured:
    """A probe with several batch sizes; times between them, and between packed counts and prefixes, lie on lines.

    A pass is linear in each request's context, so that requests of several contexts cost the mean of their prices.

    Attributes:
        curve: smoothed, at all prefixes and batch sizes.
        share: (X,) of each prefix in the price; `at` sets it.
    """

    curve: LatencyCurve
    share: NDArray[np.float64]

    def at(self, context: NDArray[np.int64]) -> Measured:
        """The same for requests of these cached tokens (B,); the nearest prefix stands beyond the measured ones."""
        return Measured(self.curve, self.curve.prefix_weights(context))

    def reach(self, batch: int) -> float:
        """Packed tokens that a pass over so many requests has at most, as far as was measured."""
        return float(batch * self.curve.packed[-1])

    def target_ms(self, batch: int, packed: float) -> float:
        """A pass of `packed` tokens over all requests, priced as the same number a request.

        Raises:
            OptionError: more requests or tokens than were measured.
        """
        each, most, widest = packed / batch, self.curve.batch[-1], self.curve.packed[-1]
        if batch > most:
            there = f"ends at {most} requests in a pass, and {batch} are in flight"
            raise OptionError(f"--probe: {there}; measure more, or give a smaller --concurrency")
        if each > widest:
            there = f"ends at {widest} packed tokens a request, and a pass has {each:.4g}"
            raise OptionError(f"--probe: {there}; measure more, choose another --policy, or smaller trees by --set")
        times = [np.interp(each, self.curve.packed, row) for row in np.tensordot(self.share, self.curve.ms, axes=1)]
        return float(np.interp(batch, self.curve.batch, times))

    def draft_ms(self, batch: int) -> float:
        """The drafter's pass."""
        return float(np.interp(batch, self.curve.batch, self.share @ self.curve.draft_ms))

    def prefill_ms(self, tokens: int) -> float:
        """A prompt's own pass: as measured, and beyond the widest pass in proportion to its time."""
        widest = float(self.curve.packed[-1])
        return self.target_ms(1, min(tokens, widest)) * max(1.0, tokens / widest)


@dataclass(frozen=True, eq=False)
class Total:
    """A probe of one request, taken for a batch: the target's time depends on the tokens of all requests only, beyond
    the widest pass by the slope from end to end, and the drafter's not at all.

    Attributes:
        curve: smoothed, of one request; share: see `Measured`.
    """

    curve: LatencyCurve
    share: NDArray[np.float64]

    def at(self, context: NDArray[np.int64]) -> Total:
        """See `Measured.at`."""
        return Total(self.curve, self.curve.prefix_weights(context))

    def reach(self, batch: int) -> float:
        """Packed tokens that a pass over so many requests has at most: the slope goes on."""
        return math.inf

    def target_ms(self, batch: int, packed: float) -> float:
        """A pass of `packed` tokens over all requests."""
        count, ms = self.curve.packed, self.share @ self.curve.ms[:, 0]
        slope = (ms[-1] - ms[0]) / max(int(count[-1] - count[0]), 1)
        return float(np.interp(packed, count, ms) + slope * max(0.0, packed - float(count[-1])))

    def draft_ms(self, batch: int) -> float:
        """The drafter's pass."""
        return float(self.share @ self.curve.draft_ms[:, 0])

    def prefill_ms(self, tokens: int) -> float:
        """A prompt's own pass."""
        return self.target_ms(1, tokens)


BatchCost = Surface | Measured | Total


def published_surface() -> Surface:
    """The least-squares share for the three width taxes that appendix F prints; the base is Table 5's pass at n = 1.

    The paper prints no times of batched passes, so that one number carries the whole shape; its residuals are kept.
    """
    batches, tax = np.array(list(TAX)), np.array(list(TAX.values()))
    shares = np.geomspace(1e-4, 1e-2, 2000)
    said = shares[:, None] * batches * (TAX_TOKENS - 1) / (1 + shares[:, None] * batches)
    error = np.log1p(said) - np.log1p(tax)
    best = int((error**2).sum(axis=1).argmin())
    one = float(open_probe(PUBLISHED_BASE).curve().ms[0, 0, 0])
    (low, low_ms), (high, high_ms) = DRAFT_MS.items()
    slope = (high_ms - low_ms) / (high - low)
    residuals = tuple((int(b), float(100 * (s - t))) for b, s, t in zip(batches, said[best], tax, strict=True))
    share = float(shares[best])
    return Surface(one / (1 + share), share, low_ms - slope * low, slope, residuals)


def deployment_of(probe: str) -> Deployment:
    """What the costs of `batch_cost` were measured with."""
    return of_probe(open_probe(PUBLISHED_BASE if probe == PUBLISHED else probe))


def batch_cost(probe: str, assume: Collection[str] = ()) -> BatchCost:
    """`published` for the fitted surface, or a probe with batch sizes.

    Args:
        assume: of `ASSUMPTIONS`.

    Raises:
        OptionError: a probe of one batch size, which says nothing of a batch unless "total" is assumed, or without
            drafter times, or an unknown assumption.
    """
    if unknown := sorted(set(assume) - set(ASSUMPTIONS)):
        raise OptionError(f"--assume {unknown[0]}: there are {', '.join(f'{k} ({v})' for k, v in ASSUMPTIONS.items())}")
    if probe == PUBLISHED:
        if assume:
            raise OptionError(f"--assume {min(assume)}: the published costs need no assumption; name a --probe")
        return published_surface()
    curve = open_probe(probe).curve().smoothed()
    share = curve.prefix_weights(curve.prefix[:1])
    if np.isnan(curve.draft_ms).any():
        raise OptionError(f"--probe {probe}: holds no drafter times; measure them with castsim probe --drafter")
    if len(curve.batch) > 1 and "total" in assume:
        raise OptionError(f"--assume total: the probe {probe} has batch sizes of its own; leave it out")
    if "total" in assume and curve.batch[0] == 1:
        return Total(curve, share)
    if len(curve.batch) < 2 or curve.batch[0] != 1:
        raise OptionError(
            f"--probe {probe}: has no batch axis from 1 on; measure one with castsim probe --batch 1,8,32, or give "
            f"--assume total or --probe {PUBLISHED}"
        )
    return Measured(curve, share)
