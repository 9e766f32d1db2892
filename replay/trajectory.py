"""Walk a policy along its own rounds on a dense log: the replay that a live decoder would repeat."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from replay.rounds import Rounds, refuse


def walk(rounds: Rounds, committed: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Which rounds each of C policies plays: a round's end is the next one's start.

    Args:
        rounds: a dense log, one row for each position 0, 1, ... of each prompt up to the last that is followed by a
            token, prompt by prompt.
        committed: (B, C) tokens that each policy emits from each row.

    Returns:
        (B, C) True at the rows where a policy's rounds start. Over these, committed sums to the prompt's output tokens
        less the one that prefill gave.

    Raises:
        ValueError: the rows are no dense log (`RowError`), or a round emits nothing or runs past the end.

    Source: the round state of section 2 and appendix C: the next pending root follows the committed path.
    """
    start, stop = dense_spans(rounds)
    if (committed < 1).any() or (committed > rounds.remaining[:, None]).any():
        raise ValueError("committed must lie in 1..remaining")
    visited = np.zeros(committed.shape, bool)
    columns = committed.shape[1]
    row, end = np.repeat(start, columns), np.repeat(stop, columns)  # one walker for each prompt and policy
    policy = np.tile(np.arange(columns), len(start))
    while len(row):
        visited[row, policy] = True
        row = row + committed[row, policy]
        going = row < end
        row, end, policy = row[going], end[going], policy[going]
    return visited


def dense_spans(rounds: Rounds) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """First row and row behind the last of each prompt of a dense log.

    Raises:
        RowError: a prompt's rows are not all its positions 0, 1, ..., together and in order.
    """
    first = np.flatnonzero(np.diff(rounds.prompt, prepend=-1))  # prompt ids are never negative
    stop = np.append(first, len(rounds))[1:]
    expected = np.arange(len(rounds)) - np.repeat(first, stop - first)
    left = np.repeat(stop, stop - first) - np.arange(len(rounds))
    refuse(rounds.position != expected, "its position does not follow the row before, as in a dense log")
    refuse(rounds.remaining != left, "its prompt lacks the rows of its last positions, which a dense log has")
    prompt, spans = np.unique(rounds.prompt[first], return_counts=True)
    refuse(np.isin(rounds.prompt, prompt[spans > 1]), "its prompt's rows do not stand together")
    return first, stop
