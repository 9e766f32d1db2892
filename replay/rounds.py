"""The two inputs of a replay: what the drafter believed (`Marginals`) and what the target then said (`Rounds`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

IntArray = NDArray[np.integer[Any]]
FloatArray = NDArray[np.floating[Any]]

PAD = -1  # stands where a continuation has ended; no candidate has this id
ID_LIMIT = 2**31  # ids are kept as int32
MASS_SLACK = 1e-3  # what float32 log-softmax may add to a probability sum of 1


class RowError(ValueError):
    """A row of a batch breaks its contract. `row` is its index in the batch, so that a reader can name its file."""

    def __init__(self, row: int, problem: str) -> None:
        super().__init__(f"row {row}: {problem}")
        self.row = row
        self.problem = problem


def refuse(bad: NDArray[np.bool_], problem: str) -> None:
    """Raise `RowError` for the first row of `bad` (B, ...) that holds a True."""
    if bad.any():
        raise RowError(int(bad.reshape(len(bad), -1).any(axis=1).argmax()), problem)


def _ids(values: ArrayLike, name: str) -> IntArray:
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise ValueError(f"{name} must hold integers, not {array.dtype}")
    return array


def _vector(values: ArrayLike, name: str, length: int) -> NDArray[np.int32]:
    array = _ids(values, name)
    if array.shape != (length,):
        raise ValueError(f"{name} must have shape ({length},), not {array.shape}")
    refuse((array < 0) | (array >= ID_LIMIT), f"{name} is negative or over 2**31 - 1")
    return array.astype(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Marginals:
    """The top candidates of a one-pass drafter at every future position of B rounds.

    Attributes:
        token: (B, L, K) int32, target-vocabulary ids, distinct at a position.
        logq: (B, L, K) float32 or float64, natural log-probabilities over the *full* vocabulary, descending along K;
            so the kept K sum to at most 1. Equal values are put in order of token id: that order is the rank.

    Raises:
        RowError: an id below 0 or over int32, a NaN or positive log-probability, unsorted or repeated candidates,
            probabilities that sum to more than 1.
        ValueError: shapes or types that are no marginals.

    Source: the drafter interface of Assumption 1; "original q_j, not a renormalized top-K" of appendix C.
    """

    token: NDArray[np.int32]
    logq: FloatArray

    def __post_init__(self) -> None:
        token, logq = _candidates(self.token, self.logq)
        logq = logq.copy()  # checked once, so nobody else may change it
        refuse((token < 0) | (token >= ID_LIMIT), "a token id is negative or over 2**31 - 1")
        refuse(np.isnan(logq), "a log-probability is NaN")
        refuse(logq > 0, "a log-probability is positive")
        refuse(logq[:, :, 1:] > logq[:, :, :-1], "log-probabilities are not sorted, best candidate first")
        mass = np.exp(logq).sum(axis=2, dtype=np.float64)  # (B, L)
        refuse(mass > 1 + MASS_SLACK, "probabilities of a position sum to more than 1")
        token = _ties_by_id(token.astype(np.int32), logq)
        ordered = np.sort(token, axis=2)
        refuse(ordered[:, :, 1:] == ordered[:, :, :-1], "a position lists the same candidate twice")
        object.__setattr__(self, "token", token)
        object.__setattr__(self, "logq", logq)

    @classmethod
    def ranked(cls, token: ArrayLike, logq: ArrayLike) -> Marginals:
        """Marginals from candidates in any order, sorted by log-probability."""
        ids, scores = _candidates(token, logq)
        order = np.argsort(-scores, axis=-1, kind="stable")  # (B, L, K)
        return cls(np.take_along_axis(ids, order, axis=-1), np.take_along_axis(scores, order, axis=-1))

    def __len__(self) -> int:
        return len(self.token)

    @property
    def depth_max(self) -> int:
        """L, the number of future positions that one draft pass scores."""
        return int(self.token.shape[1])

    @property
    def rank_kept(self) -> int:
        """K, the number of candidates kept at a position."""
        return int(self.token.shape[2])

    def head(self, *, depth_max: int | None = None, rank_cap: int | None = None) -> Marginals:
        """The universe of the first `depth_max` positions and `rank_cap` ranks (views, no copy); None keeps all.

        Raises:
            ValueError: a cap below 1.
        """
        if (depth_max is not None and depth_max < 1) or (rank_cap is not None and rank_cap < 1):
            raise ValueError(f"depth_max and rank_cap must be at least 1, not {depth_max} and {rank_cap}")
        return self._part((slice(None), slice(depth_max), slice(rank_cap)))

    def take(self, rows: NDArray[Any] | slice) -> Marginals:
        """The rounds `rows` of the batch, by index, mask or slice."""
        return self._part((rows,))

    def _part(self, index: tuple[Any, ...]) -> Marginals:
        part = object.__new__(Marginals)  # a part of checked arrays needs no second check
        object.__setattr__(part, "token", self.token[index])
        object.__setattr__(part, "logq", self.logq[index])
        return part


def _candidates(token: ArrayLike, logq: ArrayLike) -> tuple[NDArray[Any], FloatArray]:
    """Both as arrays of one shape (B, L, K), of types that can hold ids and log-probabilities."""
    ids, scores = _ids(token, "token"), np.asarray(logq)
    if ids.ndim != 3 or ids.shape != scores.shape or 0 in ids.shape[1:]:
        raise ValueError(f"token and logq must share one shape (B, L, K), not {ids.shape} and {scores.shape}")
    if scores.dtype not in (np.float32, np.float64):
        raise ValueError(f"logq must be float32 or float64, not {scores.dtype}")
    return ids, scores


def _ties_by_id(token: NDArray[np.int32], logq: FloatArray) -> NDArray[np.int32]:
    """Tokens with candidates of equal log-probability in order of id, so that rank means one thing (Theorem 1)."""
    swapped = (logq[:, :, 1:] == logq[:, :, :-1]) & (token[:, :, 1:] < token[:, :, :-1])
    rows = np.flatnonzero(swapped.any(axis=(1, 2)))
    if len(rows):
        order = np.lexsort((token[rows], -logq[rows]), axis=-1)
        token[rows] = np.take_along_axis(token[rows], order, axis=-1)
    return token


def padded_continuation(continuation: ArrayLike, known: ArrayLike, depth_max: int) -> NDArray[np.int32]:
    """The continuation as (B, L) int32 with `PAD` from `known` on, whatever integer type and padding came in.

    Unsigned arrays cannot hold -1, so what stands behind `known` is never read.

    Raises:
        RowError: an id below 0 or over int32 in front of `known`, or `known` outside 0..L.
        ValueError: a continuation that is not (B, L).
    """
    ids = _ids(continuation, "continuation")
    if ids.ndim != 2 or ids.shape[1] != depth_max:
        raise ValueError(f"continuation must have shape (B, {depth_max}), not {ids.shape}")
    count = _vector(known, "known", len(ids))
    refuse(count > depth_max, f"known is over the depth {depth_max}")
    real = np.arange(depth_max) < count[:, None]  # (B, L)
    refuse(real & ((ids < 0) | (ids >= ID_LIMIT)), "a token id of the continuation is negative or over 2**31 - 1")
    return np.where(real, ids, PAD).astype(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Rounds:
    """B rounds: marginals and the target's own continuation after the pending root.

    Attributes:
        marginals: the drafter's candidates, L positions by K ranks.
        continuation: (B, L) int32, the target's next tokens, `PAD` from `known` on.
        known: (B,) int32, how many of them are real.
        prompt: (B,) int32, which prompt the round belongs to.
        position: (B,) int32, index of the root in the prompt's output; 0 is the token that prefill gave.
        remaining: (B,) int32, output tokens after the root; a round cannot emit more. Left out, a full continuation
            counts as going on, a shorter one as ending.

    Raises:
        RowError, ValueError: as `Marginals`, and where lengths, `known` and `remaining` disagree.
    """

    marginals: Marginals
    continuation: NDArray[np.int32]
    known: NDArray[np.int32]
    prompt: NDArray[np.int32]
    position: NDArray[np.int32]
    remaining: NDArray[np.int32] = None  # type: ignore[assignment]  # filled in below

    def __post_init__(self) -> None:
        rows, depth_max = len(self.marginals), self.marginals.depth_max
        continuation = padded_continuation(self.continuation, self.known, depth_max)
        known = _vector(self.known, "known", rows)
        endless = np.where(known < depth_max, known, depth_max + 1)
        remaining = _vector(endless if self.remaining is None else self.remaining, "remaining", rows)
        refuse(np.minimum(remaining, depth_max) != known, "known is not the smaller of L and remaining")
        object.__setattr__(self, "continuation", continuation)
        object.__setattr__(self, "known", known)
        object.__setattr__(self, "remaining", remaining)
        for name in ("prompt", "position"):
            object.__setattr__(self, name, _vector(getattr(self, name), name, rows))

    def __len__(self) -> int:
        return len(self.marginals)

    @property
    def censored(self) -> NDArray[np.bool_]:
        """(B,) rounds whose continuation the end of the output cuts short of L tokens."""
        return self.known < self.marginals.depth_max

    def take(self, rows: NDArray[Any] | slice) -> Rounds:
        """The rounds `rows` of the batch, by index, mask or slice."""
        part = object.__new__(Rounds)
        object.__setattr__(part, "marginals", self.marginals.take(rows))
        for name in ("continuation", "known", "prompt", "position", "remaining"):
            object.__setattr__(part, name, getattr(self, name)[rows])
        return part
