"""The bound on what is in reach: never over the true count, and close to it where it matters."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from strategies import rounds

from replay import entry_budgets
from replay.bound import in_reach, plain_nodes


def test_the_hand_case():
    gap, room = np.log([[2], [8]]) * 1000, np.log([0.5 / 0.09, 0.4 / 0.09]) * 1000
    assert plain_nodes(gap[:, :, None].astype(np.int16), room[:, None].astype(np.int16)).tolist() == [4]


@pytest.mark.parametrize("depth", [1, 4])
def test_plain_nodes_by_enumeration(depth):
    """All rank strings of three ranks that stray never, once, or twice by less than half the room each."""
    rng = np.random.default_rng(depth)
    gap = np.sort(rng.integers(0, 40, (depth, 2, 30)), axis=1).astype(np.int16)
    room = -np.sort(-rng.integers(0, 60, (depth, 30)), axis=0).astype(np.int16)
    for b, found in enumerate(plain_nodes(gap, room)):
        count = 0
        for length in range(1, depth + 1):
            most = room[length - 1, b]
            for path in itertools.product(range(3), repeat=length):
                gaps = [gap[i, r - 1, b] for i, r in enumerate(path) if r]
                limit = most if len(gaps) < 2 else most // 2
                count += len(gaps) <= 2 and most > 0 and all(g < limit for g in gaps)
        assert found == count


@given(rounds(max_depth=5, max_rank=4))
def test_no_prefix_within_a_budget_is_out_of_reach(found):
    logq = np.moveaxis(found.marginals.logq, 0, 2).astype(float)  # (L, K, B)
    spine = np.cumsum(logq[:, 0], axis=0)
    on_spine = (found.marginals.token[:, :, 0] == found.continuation).cumprod(axis=1).sum(axis=1)  # (B,)
    for budget in (1, 3, 20):
        entry = entry_budgets(found.marginals, found.continuation, found.known, budget=budget)
        within = np.minimum((entry <= budget).sum(axis=1), on_spine)
        assert (in_reach(logq, spine, on_spine, budget) >= within).all()


def test_infinite_and_huge_scores_are_left_to_the_kernel():
    logq = np.array([[[-1e30], [-np.inf]], [[-np.inf], [-np.inf]]])  # (2, 2, 1)
    score = np.array([[-np.inf], [-np.inf]])
    assert in_reach(logq, score, np.array([2]), 1).tolist() == [2]


def test_depths_beyond_a_byte_of_gaps():
    """The d-th node of a spine has d - 1 ahead of it."""
    logq = np.log(np.full((300, 2, 1), 0.5) * [[1.0], [0.1]])
    assert in_reach(logq, np.cumsum(logq[:, 0], axis=0), np.array([300]), 127).tolist() == [127]
