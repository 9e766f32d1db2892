"""Means of R with a name, and their paired prompt-level intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

FloatTable = NDArray[np.float64]
_CELLS_AT_ONCE = 2**19  # 4 MB, so that a block stays in the cache


def pooled_mean(weight: FloatTable, committed: FloatTable, rounds: FloatTable) -> FloatTable:
    """(D, C) sum of committed over sum of rounds, under prompt weights (D, P) of tables (P, C). NaN without rounds."""
    with np.errstate(invalid="ignore"):
        return (weight @ committed) / (weight @ rounds)


def prompt_mean(weight: FloatTable, committed: FloatTable, rounds: FloatTable) -> FloatTable:
    """(D, C) mean of the prompts' own means; a prompt without rounds has none and is left out."""
    played = (rounds > 0).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return (weight @ (committed / np.maximum(rounds, 1))) / (weight @ played)


def paired_bootstrap(
    statistic: Callable[[FloatTable], FloatTable],
    prompts: int,
    *,
    rng: np.random.Generator,
    draws: int = 2000,
    level: float = 0.95,
) -> FloatTable:
    """Percentile interval (2, C) of a statistic over resampled prompts.

    Pairing: one draw of prompts serves all C columns, so a ratio or difference of columns has its own interval.

    Args:
        statistic: maps prompt weights (D, P) to values (D, C).
        prompts: P. With fewer than two the interval is NaN: one prompt says nothing about others.
        rng: the random stream; the caller's, so that a seed repeats an interval.
        draws: how many times P prompts are drawn with replacement.
        level: the share of draws inside the interval.

    Source: the paired prompt bootstrap of the paper's Table 3 and appendix D.2 (which draws 10,000).
    """
    interval = np.full((2, statistic(np.ones((1, prompts))).shape[1]), np.nan)
    if prompts < 2:
        return interval
    samples = np.concatenate([statistic(block) for block in prompt_weights(prompts, draws, rng)])  # (draws, C)
    known = np.isfinite(samples).any(axis=0)
    tail = (1 - level) / 2
    interval[:, known] = np.nanquantile(samples[:, known], [tail, 1 - tail], axis=0)
    return interval


def prompt_weights(prompts: int, draws: int, rng: np.random.Generator) -> Iterator[FloatTable]:
    """How often each prompt is drawn with replacement, (D, P) a block, in blocks of bounded size."""
    size = max(1, _CELLS_AT_ONCE // prompts)
    for start in range(0, draws, size):
        rows = min(size, draws - start)
        drawn = rng.integers(prompts, size=(rows, prompts)) + prompts * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * prompts).reshape(rows, prompts).astype(np.float64)
