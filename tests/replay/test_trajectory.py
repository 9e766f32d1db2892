"""Walked replay: a policy's rounds start where its own previous round ended."""

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay import Marginals, Rounds, accepted, committed, entry_budgets, walk


def dense(lengths, depth=3):
    """A dense log of prompts with so many rows each; marginals are of no interest."""
    remaining = np.concatenate([np.arange(n, 0, -1) for n in lengths])
    position = np.concatenate([np.arange(n) for n in lengths])
    rows = len(position)
    found = Marginals(np.zeros((rows, depth, 1), int), np.full((rows, depth, 1), -1.0))
    known = np.minimum(remaining, depth)
    return Rounds(
        found, np.zeros((rows, depth), int), known, np.repeat(np.arange(len(lengths)), lengths), position, remaining
    )


@given(st.lists(st.integers(1, 30), min_size=1, max_size=5), st.integers(0, 2**32 - 1))
def test_equals_a_walk_prompt_by_prompt(lengths, seed):
    rounds = dense(lengths)
    emitted = np.random.default_rng(seed).integers(1, 5, (len(rounds), 3)).astype(np.int32)
    emitted = np.minimum(emitted, rounds.remaining[:, None])
    visited = walk(rounds, emitted)
    first = 0
    for length in lengths:
        for column in range(3):
            rows = np.flatnonzero(visited[first : first + length, column]).tolist()
            assert rows == oracle.walk(emitted[first : first + length, column].tolist(), length)
            assert emitted[first : first + length, column][rows].sum() == length  # every token leaves once
        first += length


def periodic_log(periods=200):
    """Scenario 9: L = 2, the target's token at position p is 100 + p, marginals repeat with period 4 by start."""
    length = 4 * periods + 1
    q1 = [((1, 0.50), (2, 0.45)), ((2, 0.9), (1, 0.05)), ((2, 0.9), (1, 0.05)), ((1, 0.9), (3, 0.05))]  # 2 is right
    q2 = [((1, 0.5), (3, 0.05)), ((2, 0.9), (1, 0.05)), ((1, 0.9), (3, 0.05)), ((2, 0.9), (1, 0.05))]
    token, logq = np.empty((length - 1, 2, 2), int), np.empty((length - 1, 2, 2))
    for p in range(length - 1):
        for d, law in enumerate((q1, q2)):
            for r, (mark, mass) in enumerate(law[p % 4]):
                token[p, d, r] = 101 + p + d if mark == 2 else mark
                logq[p, d, r] = np.log(mass)
    remaining = np.arange(length - 1, 0, -1)
    target = 100 + np.arange(length + 2)
    continuation = np.stack([target[1:length], target[2 : length + 1]], axis=1)
    zeros = np.zeros(length - 1, int)
    return Rounds(
        Marginals(token, logq), continuation, np.minimum(remaining, 2), zeros, np.arange(length - 1), remaining
    )


def test_scenario_9_walked_per_round_and_dense_average_differ():
    """Chain walked 2.0; tree of N = 2 on the chain's rounds 2.5, walked 2.0; averaged over all rows 2.0 and 1.75."""
    rounds = periodic_log()
    tree = entry_budgets(rounds.marginals, rounds.continuation, rounds.known, budget=2)
    chain = entry_budgets(rounds.marginals, rounds.continuation, rounds.known, budget=2, rank_cap=1)
    played = np.hstack([accepted(chain, [2]), accepted(tree, [2])])
    emitted = committed(played, rounds.remaining)
    visited = walk(rounds, emitted)
    whole = ~rounds.censored
    walked = [emitted[visited[:, c], c].mean() for c in (0, 1)]
    assert walked == pytest.approx([2.0, 2.0], abs=0.01)
    on_chain = emitted[visited[:, 0] & whole]
    assert on_chain.mean(axis=0) == pytest.approx([2.0, 2.5], abs=0.01)
    assert (played[whole] + 1).mean(axis=0) == pytest.approx([1.75, 2.0], abs=0.01)


@pytest.mark.parametrize(
    ("field", "change", "words"),
    [
        ("position", lambda p: p[[0, 2, 1, 3, 4]], "row 1: its position does not follow"),
        ("prompt", lambda p: np.array([0, 0, 1, 0, 0]), "row 2: its position does not follow"),
        ("remaining", lambda r: r + 1, "row 0: its prompt lacks the rows"),
    ],
)
def test_rows_that_are_no_dense_log(field, change, words):
    good = dense([5], depth=1)
    fields = {n: getattr(good, n) for n in ("continuation", "known", "prompt", "position", "remaining")}
    broken = Rounds(good.marginals, **{**fields, field: change(fields[field])})
    with pytest.raises(ValueError, match=words):
        walk(broken, np.ones((5, 1), np.int32))


@pytest.mark.parametrize("value", [0, 4])
def test_a_round_emits_at_least_one_token_and_at_most_what_is_left(value):
    with pytest.raises(ValueError, match=r"1\.\.remaining"):
        walk(dense([3]), np.full((3, 1), value, np.int32))


def test_a_prompt_in_two_places_is_refused():
    halves = dense([2, 2, 2], depth=1)
    fields = {n: getattr(halves, n) for n in ("continuation", "known", "position", "remaining")}
    with pytest.raises(ValueError, match="row 0: its prompt's rows do not stand together"):
        walk(Rounds(halves.marginals, prompt=np.array([0, 0, 1, 1, 0, 0]), **fields), np.ones((6, 1), np.int32))


def test_no_prompts_no_rounds():
    assert walk(dense([2]).take(slice(0, 0)), np.empty((0, 2), np.int32)).shape == (0, 2)
