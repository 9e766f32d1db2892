"""Diagnostics: counts by hand, and that a calibrated drafter is found calibrated."""

import numpy as np
import pytest
from hypothesis import given
from strategies import rounds

from replay import Marginals, Rounds
from replay.calibrate import OFF, ON, first_rejection_ranks, rank_counts, rank_table, reliability

HAND = Rounds(  # K = 2 of a vocabulary of more; ranks of the truth: (0, 1), (1, 0), (beyond, -), (0, cut)
    Marginals(
        np.broadcast_to(np.array([[1, 2], [3, 4]]), (4, 2, 2)),
        np.broadcast_to(np.log([[0.7, 0.2], [0.6, 0.3]]), (4, 2, 2)),
    ),
    np.array([[1, 4], [2, 3], [9, 3], [1, 0]]),
    np.array([2, 2, 2, 1]),
    np.arange(4),
    np.zeros(4, int),
)


def test_reliability_by_hand():
    found = reliability(HAND, bins=10)
    assert found.count[ON, 0, [7, 2]].tolist() == [4, 4]  # .7 and .2 at depth 1, four rounds
    assert found.hits[ON, 0, [7, 2]].tolist() == [2, 1]
    assert found.count[ON, 1, [6, 3]].tolist() == [1, 1]  # only round 0 goes on along the spine with a known token
    assert found.hits[ON, 1].sum() == found.hits[ON, 1, 3] == 1
    assert found.count[OFF, 1, [6, 3]].tolist() == [1, 1]  # round 1 left the spine at depth 1
    assert found.hits[OFF, 1, 6] == 1
    assert found.count[OFF, 0].sum() == 0  # nothing stands off the spine at depth 1
    assert np.isnan(found.calibration_error()[OFF, 0])
    assert found.calibration_error()[ON, 0] == pytest.approx((abs(4 * 0.7 - 2) + abs(4 * 0.2 - 1)) / 8)


def test_first_rejections_by_hand():
    assert first_rejection_ranks(HAND).tolist() == [0, 2, 1]  # rounds 0 and 1 at rank 2, round 2 beyond; 3 has none


def test_rank_counts_by_hand():
    assert rank_counts(HAND).tolist() == [[2, 1, 1], [1, 1, 0]]
    np.testing.assert_allclose(rank_table(rank_counts(HAND)), [[0.5, 0.25], [0.5, 0.5]])


def test_reliability_below_the_first_departure_stays_off_the_spine():
    """Ranks 2, 1, 1: depths 2 and 3 are off; a rank beyond the kept ones ends the counting."""
    found = Marginals(np.broadcast_to(np.array([1, 2]), (2, 3, 2)), np.broadcast_to(np.log([0.7, 0.2]), (2, 3, 2)))
    zeros = np.zeros(2, int)
    counts = reliability(Rounds(found, [[2, 1, 1], [9, 1, 1]], np.array([3, 3]), zeros, zeros)).count
    assert counts[ON].sum(axis=1).tolist() == [4, 0, 0]
    assert counts[OFF].sum(axis=1).tolist() == [0, 2, 2]


def test_a_probability_of_one_falls_into_the_top_bin():
    found = Marginals(np.array([[[1, 2]]]), np.array([[[0.0, -np.inf]]]))
    counts = reliability(Rounds(found, [[1]], np.array([1]), np.zeros(1, int), np.zeros(1, int)))
    assert counts.hits[ON, 0, -1] == counts.count[ON, 0, -1] == counts.count[ON, 0, 0] == 1


def test_a_depth_that_is_never_reached_has_no_rates():
    assert rank_table(np.zeros((2, 3), int)).tolist() == [[0, 0], [0, 0]]


@given(rounds(max_depth=5))
def test_counts_add_up_over_batches(found):
    parts = [found.take(slice(i, i + 1)) for i in range(len(found))]
    total = reliability(parts[0])
    for part in parts[1:]:
        total = total + reliability(part)
    whole = reliability(found)
    for name in ("count", "confidence", "hits"):
        np.testing.assert_allclose(getattr(total, name), getattr(whole, name))
    assert sum(map(rank_counts, parts)).tolist() == rank_counts(found).tolist()
    assert sum(map(first_rejection_ranks, parts)).tolist() == first_rejection_ranks(found).tolist()


def test_a_drafter_that_tells_the_truth_is_found_calibrated():
    rng = np.random.default_rng(2)
    mass = -np.sort(-rng.dirichlet(np.full(4, 0.6), (20_000, 3)), axis=2)
    rank = (rng.random((20_000, 3, 1)) > np.cumsum(mass, axis=2)).sum(axis=2)
    ids = np.broadcast_to(np.arange(4), mass.shape)
    zeros = np.zeros(20_000, int)
    found = Rounds(Marginals(ids, np.log(mass)), rank, np.full(20_000, 3), zeros, zeros)
    assert np.nanmax(reliability(found).calibration_error()) < 0.02
