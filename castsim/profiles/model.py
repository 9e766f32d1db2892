"""Rounds from a model of drafter and target, for those who have no log yet.

A prompt's output is a sequence of tokens y_0, y_1, ...; seen from the root y_t, the token s = t + d is d places ahead.

Belief. The drafter's top candidate has probability q_1 = sigmoid(z), and the rest of the mass goes to ranks r = 2, ...,
64 in proportion to (r - 1)**-a:

    z[t, d] = level + between * u + spread * e[t] + noise * (sqrt(shared) * v[s] + sqrt(1 - shared) * n[t, d])
              - decay * (d - 1)**bend,                 and z = SURE for a token s inside a sure stretch
    log a[t, d] = log(tail) + tail_spread * (link * x[t, d] + sqrt(1 - link**2) * m[t, d]) - fade * (d - 1) / 10

with u of a prompt, v of a token, n and m of one place seen from one root, all standard normal, and x what `noise`
stands before; e is a stationary AR(1) along the output, of correlation `memory` a token; sure stretches, of share
`sure`, are where another AR(1) is low. q_1 is never below q_2.

Truth. The token s has rank 1 with probability

    p[t, d] = sigmoid(sharp * logit(q_1) + shift - off * [some token between root and s had another rank])

and otherwise, but for a share `lost` that no rank holds, rank r in proportion to (r - 1)**-b with the exponent
b = tilt * tail * (a / tail)**focus. Its luck is one uniform number: with probability `common` the token's own, the same
from every root, else drawn for this root alone. A token that surprises the drafter then does so from most roots before
it, a round begins where such a token stood, and hard stretches last: a walked replay differs from a score on other
rounds.

Prompts' levels u follow a low-discrepancy sequence, and of two prompts the second mirrors the first one's e, so that a
hundred prompts have the mean of many.

With sharp = tilt = focus = 1 and shift = off = lost = 0 the truth follows the belief: a prefix is right with exactly
its product score.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RANKS = 64  # that the belief spreads over
SURE, SURE_MEMORY = 8.0, 0.97  # logit inside a sure stretch; correlation of stretches a token
EXPONENTS, WIDEST = 64, 3.0  # steps of the tail's normal deviation that are told apart, and where they end
GOLDEN = 0.6180339887498949


@dataclass(frozen=True)
class Model:
    """The parameters, in logits unless said otherwise.

    Attributes:
        level: top candidate at depth 1, in the middle of things.
        between, spread: standard deviations of prompts, and along an output.
        memory: correlation of neighbouring tokens, 0 to below 1.
        noise: standard deviation of a place's own deviation.
        shared: share of its variance that belongs to the token, 0 to 1.
        decay, bend: fall with depth, decay * (d - 1)**bend.
        tail, tail_spread: median exponent of the rest's power law at depth 1, and standard deviation of its log.
        link: correlation of that log with the top candidate's deviation: an unsure place is flat, -1 to 1.
        fade: fall of the log over ten places of depth.
        sure: share of tokens in near-deterministic stretches, 0 to below 1.
        sharp, shift: calibration of the top candidate; 1 and 0 if belief is truth.
        off: what a token loses behind one that was not the top candidate.
        common: share of a token's luck that all roots share, 0 to 1.
        tilt, focus: true exponent over the believed one in the middle, and how far it follows that one's spread.
        lost: share of misses that no rank holds, 0 to 1.

    Raises:
        ValueError: a value outside its range.
    """

    level: float = 3.0
    between: float = 0.15
    spread: float = 1.3
    memory: float = 0.92
    noise: float = 1.6
    shared: float = 0.5
    decay: float = 0.17
    bend: float = 1.0
    tail: float = 1.7
    tail_spread: float = 0.65
    link: float = 0.1
    fade: float = 0.3
    sure: float = 0.11
    sharp: float = 1.0
    shift: float = 0.0
    off: float = 1.0
    common: float = 0.5
    tilt: float = 1.3
    focus: float = 0.8
    lost: float = 0.0

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ValueError(f"{name} must lie in {low} to {high}, not {value}")


RANGES: dict[str, tuple[float, float]] = {
    "level": (-10, 15),
    "between": (0, 5),
    "spread": (0, 5),
    "memory": (0, 0.999),
    "noise": (0, 8),
    "shared": (0, 1),
    "decay": (0, 5),
    "bend": (0.02, 3),
    "tail": (0.1, 8),
    "tail_spread": (0, 2),
    "link": (-1, 1),
    "fade": (-2, 3),
    "sure": (0, 0.9),
    "sharp": (0.1, 3),
    "shift": (-5, 5),
    "off": (-1, 6),
    "common": (0, 1),
    "tilt": (0.2, 3),
    "focus": (0, 2),
    "lost": (0, 0.9),
}
PARAMETERS = tuple(f.name for f in fields(Model))


@dataclass(frozen=True, eq=False)
class Drawn:
    """One prompt: T - 1 roots.

    Attributes:
        logq: (T-1, L, K) float32.
        rank: (T-1, L) int32, rank of the true token from 0; RANKS where no rank holds it. Behind the end of the output
            it goes on as if there were more.
        top: (T-1, L) logit of the first candidate.
        exponent: (T-1, L) row of the split tables.
    """

    logq: NDArray[np.float32]
    rank: NDArray[np.int32]
    top: Array
    exponent: NDArray[np.intp]


def draw(
    model: Model, prompt: int, roots: int, depth_max: int, rank_kept: int, seed: int, splits: Splits | None = None
) -> Drawn:
    """Belief and truth at every root of one prompt's output, from a stream of its own."""
    splits, rng = splits or split_tables(model, depth_max), np.random.default_rng([seed, prompt])
    ahead = np.arange(roots)[:, None] + np.arange(depth_max)  # (roots, L) the token d ahead of a root, s - 1
    own = _deviations(model, ahead, rng)
    exponent = _exponents(model, own, rng)
    z = np.maximum(_top_logits(model, ahead, own, prompt, seed, rng), splits.floor[exponent])
    rank = _true_ranks(model, z, exponent, ahead, splits, rng)
    return Drawn(_log_probabilities(z, exponent, splits, rank_kept), rank, z, exponent)


def prompt_level(prompt: int, seed: int) -> float:
    """u of a prompt: normal quantiles of a Kronecker sequence, which fills (0, 1) evenly however many are taken."""
    place = (GOLDEN * (prompt + 1) + np.random.default_rng(seed).random()) % 1.0
    return NormalDist().inv_cdf(min(max(place, 1e-6), 1 - 1e-6))


def _deviations(model: Model, ahead: NDArray[np.intp], rng: np.random.Generator) -> Array:
    """(roots, L) x, standard normal, partly the token's own."""
    token = np.sqrt(model.shared) * rng.standard_normal(sum(ahead.shape))
    return token[ahead] + np.sqrt(1 - model.shared) * rng.standard_normal(ahead.shape)


def _exponents(model: Model, own: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """(roots, L) which row of the split tables each place has: its depth's block, and in it the nearest exponent."""
    normal = model.link * own + np.sqrt(1 - model.link**2) * rng.standard_normal(own.shape)
    place = np.clip((normal + WIDEST) * (EXPONENTS / (2 * WIDEST)), 0, EXPONENTS - 1).astype(np.intp)
    return place + EXPONENTS * np.arange(own.shape[1])


def _top_logits(
    model: Model, ahead: NDArray[np.intp], own: Array, prompt: int, seed: int, rng: np.random.Generator
) -> Array:
    """(roots, L) z of the module's text."""
    roots, depth_max = ahead.shape
    mirrored = (1 - 2 * (prompt % 2)) * _ar(model.memory, roots, np.random.default_rng([seed, prompt // 2, 1]))
    drift = model.level + model.between * prompt_level(prompt, seed) + model.spread * mirrored
    z = drift[:, None] + model.noise * own - model.decay * np.arange(depth_max) ** model.bend
    if model.sure:
        stretch = _ar(SURE_MEMORY, roots + depth_max, rng) < NormalDist().inv_cdf(model.sure)
        z[stretch[ahead]] = SURE
    return z


def _ar(memory: float, steps: int, rng: np.random.Generator) -> Array:
    """A stationary AR(1) of variance 1."""
    first, *draws = rng.standard_normal(steps).tolist()
    scale, value, found = float(np.sqrt(1 - memory**2)), first, [first]
    for step in draws:
        value = memory * value + scale * step
        found.append(value)
    return np.array(found)


def _log_probabilities(z: Array, exponent: NDArray[np.intp], splits: Splits, rank_kept: int) -> NDArray[np.float32]:
    """(roots, L, K): log sigmoid(z) for rank 1, the rest split."""
    logq = np.empty((*z.shape, rank_kept), np.float32)
    z = z.astype(np.float32)
    high = np.log1p(np.exp(-np.abs(z)))
    logq[..., 0] = np.minimum(z, 0) - high
    rest = np.minimum(-z, 0) - high
    np.add(rest[..., None], splits.log[:, : rank_kept - 1][exponent], out=logq[..., 1:])
    return logq


def _true_ranks(
    model: Model,
    z: Array,
    exponent: NDArray[np.intp],
    ahead: NDArray[np.intp],
    splits: Splits,
    rng: np.random.Generator,
) -> NDArray[np.int32]:
    """(roots, L) rank of the true token from 0; RANKS where no rank holds it."""
    luck = rng.random(z.shape)
    token = rng.random(sum(z.shape))[ahead]
    luck = np.where(luck < model.common, token, (luck - model.common) / max(1 - model.common, 1e-12))
    on, off = _hit_chances(model, z)
    missed = luck >= on
    behind = np.zeros_like(missed)  # a token before it was not the top candidate
    behind[:, 1:] = np.logical_or.accumulate(missed, axis=1)[:, :-1]
    top = np.where(behind, off, on)
    missed = luck >= top
    rank = np.zeros(z.shape, np.int32)
    rest = (luck[missed] - top[missed]) / (1 - top[missed])
    held = rest >= model.lost
    place = exponent[missed]
    among = np.searchsorted(splits.edges, place + (rest - model.lost) / (1 - model.lost), side="right")
    rank[missed] = np.where(held, np.minimum(among - place * (RANKS - 1) + 1, RANKS - 1), RANKS)
    return rank


def _hit_chances(model: Model, z: Array) -> tuple[Array, Array]:
    """(roots, L) chance of rank 1, on the spine and off it."""
    logit = model.sharp * z + model.shift
    return 1 / (1 + np.exp(-logit)), 1 / (1 + np.exp(model.off - logit))


def rank_laws(model: Model, z: Array, exponent: NDArray[np.intp], splits: Splits) -> tuple[Array, Array]:
    """The law of the true rank, on the spine and off it, both (roots, L, RANKS + 1); the last place is no rank."""
    edges = splits.edges.reshape(-1, RANKS - 1) - np.arange(len(splits.log))[:, None]
    share = np.diff(edges, axis=1, prepend=0)[exponent]  # (roots, L, RANKS-1)
    laws = []
    for hit in _hit_chances(model, z):
        miss = 1 - hit[..., None]
        laws.append(np.concatenate([hit[..., None], miss * (1 - model.lost) * share, miss * model.lost], axis=2))
    return laws[0], laws[1]


@dataclass(frozen=True, eq=False)
class Splits:
    """Power laws over ranks 2, 3, ..., RANKS at each depth and exponent, E = L * EXPONENTS rows.

    Attributes:
        log: (E, RANKS-1) log of the believed shares.
        edges: (E * (RANKS-1),) cumulative true shares, row e shifted by e: one search serves all rows.
        floor: (E,) smallest logit of rank 1 that keeps it first.
    """

    log: NDArray[np.float32]
    edges: Array
    floor: Array


def split_tables(model: Model, depth_max: int) -> Splits:
    """The tail's law on a grid of its normal deviation, a block for each depth, for belief and truth."""
    normal = (np.arange(EXPONENTS) + 0.5) * (2 * WIDEST / EXPONENTS) - WIDEST
    depth = np.arange(depth_max)[:, None]
    exponent = (model.tail * np.exp(model.tail_spread * normal - model.fade * depth / 10)).ravel()
    true_exponent = model.tilt * model.tail * (exponent / model.tail) ** model.focus
    believed, true = (_power_law(a) for a in (exponent, true_exponent))
    edges = np.cumsum(true, axis=1)
    edges[:, -1] = 1.0
    return Splits(
        np.log(believed).astype(np.float32), (edges + np.arange(len(edges))[:, None]).ravel(), np.log(believed[:, 0])
    )


def _power_law(exponent: Array) -> Array:
    """(E, RANKS-1) shares (r - 1)**-a of ranks r = 2, ..., RANKS."""
    share = np.arange(1, RANKS) ** -exponent[:, None]
    return np.asarray(share / share.sum(axis=1, keepdims=True))
