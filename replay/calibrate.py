"""How far the drafter's probabilities can be trusted. All counts add up over batches of rounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from replay.accept import ranks_of
from replay.rounds import PAD, Rounds

ON, OFF = 0, 1  # a node whose ancestors are all top-1 candidates, or not


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """Candidates by depth and by probability, counted.

    A candidate of depth d is counted where the target's own tokens up to depth d - 1 are among the kept ranks: there
    the true next token is known, and a hit is a candidate that equals it (appendix G). *On* the spine those tokens
    are the top-1 candidates, *off* it at least one is not. Positions behind a cut continuation are not counted.

    Attributes:
        count, confidence, hits: (2, L, bins) number of candidates, sum of their probabilities, number of hits; first
            axis ON or OFF. Bin i holds probabilities in [i, i+1) / bins, the last one 1 as well.
    """

    count: NDArray[np.float64]
    confidence: NDArray[np.float64]
    hits: NDArray[np.float64]

    def __add__(self, other: Reliability) -> Reliability:
        return Reliability(self.count + other.count, self.confidence + other.confidence, self.hits + other.hits)

    def calibration_error(self) -> NDArray[np.float64]:
        """(2, L) expected calibration error: a candidate's mean |confidence - hit rate| of its bin; NaN if none."""
        with np.errstate(invalid="ignore"):
            gap = np.abs(self.confidence - self.hits).sum(axis=2)
            return np.asarray(gap / self.count.sum(axis=2))


def reliability(rounds: Rounds, *, rank_cap: int = 8, bins: int = 10) -> Reliability:
    """`Reliability` of the first `rank_cap` candidates of each position (Figure 4b at depth 1)."""
    universe = rounds.marginals.head(rank_cap=rank_cap)
    rank = ranks_of(universe, rounds.continuation)  # (B, L)
    before = np.pad(rank, ((0, 0), (1, 0)), constant_values=0)[:, :-1]  # rank of the token one position earlier
    reached = np.cumprod(before != PAD, axis=1).astype(bool)
    reached &= np.arange(universe.depth_max) < rounds.known[:, None]
    off = np.cumsum(before > 0, axis=1) > 0
    probability = np.exp(universe.logq[reached].astype(np.float64))  # (m, K)
    cell = np.minimum((probability * bins).astype(np.intp), bins - 1)
    key = ((off[reached] * universe.depth_max + np.nonzero(reached)[1]) * bins)[:, None] + cell
    hit = np.arange(universe.rank_kept) == rank[reached][:, None]
    shape = (2, universe.depth_max, bins)

    def total(weight: NDArray[np.generic]) -> NDArray[np.float64]:
        sums = np.bincount(key.ravel(), weight.ravel(), minlength=int(np.prod(shape)))
        return sums.astype(np.float64).reshape(shape)

    return Reliability(total(np.ones_like(probability)), total(probability), total(hit))


def first_rejection_ranks(rounds: Rounds) -> NDArray[np.int64]:
    """(K+1,) how often the target's correction at the chain's first rejection has each rank; last: beyond the kept K.

    Rank counted from 0, so place 0 stays empty. Rounds that the chain passes without a rejection are not in it.

    Source: Figure 4a.
    """
    rank = ranks_of(rounds.marginals, rounds.continuation)
    rejected = (rank != 0) & (np.arange(rank.shape[1]) < rounds.known[:, None])  # (B, L)
    row = np.flatnonzero(rejected.any(axis=1))
    correction = rank[row, rejected[row].argmax(axis=1)]
    kept = rounds.marginals.rank_kept
    return np.bincount(np.where(correction == PAD, kept, correction), minlength=kept + 1)


def rank_counts(rounds: Rounds) -> NDArray[np.int64]:
    """(L, K+1) how often the true token of each depth has each rank (last: beyond), where all earlier ones are kept.

    Divided by its row sums, the first K columns are the rank-acceptance table that `sequoia` takes.

    Source: "beyond rank 8" of appendix G.1, which does not say over which positions; read here: as above.
    """
    rank = ranks_of(rounds.marginals, rounds.continuation)
    reached = np.cumprod(np.pad(rank != PAD, ((0, 0), (1, 0)), constant_values=True)[:, :-1], axis=1).astype(bool)
    reached &= np.arange(rank.shape[1]) < rounds.known[:, None]
    kept = rounds.marginals.rank_kept
    key = np.nonzero(reached)[1] * (kept + 1) + np.where(rank == PAD, kept, rank)[reached]
    return np.bincount(key, minlength=rank.shape[1] * (kept + 1)).reshape(-1, kept + 1)


def rank_table(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """(L, K) share of each rank at each depth from `rank_counts`; a depth never reached has zeros."""
    return np.asarray(counts[:, :-1] / np.maximum(counts.sum(axis=1, keepdims=True), 1))
