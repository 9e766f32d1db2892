"""Marginals and Rounds: what they refuse, and that types and padding do not matter."""

import numpy as np
import pytest
from hypothesis import given
from strategies import marginals

from replay import Marginals, Rounds, RowError, entry_budgets

TOKEN = np.array([[[5, 3], [9, 8]], [[1, 2], [3, 4]]])  # (B, L, K) = (2, 2, 2)
LOGQ = np.log(np.array([[[0.6, 0.3], [0.9, 0.1]], [[0.5, 0.25], [1.0, 1e-9]]]))


def changed(array, place, value):
    out = array.copy()
    out[place] = value
    return out


@pytest.mark.parametrize(
    ("token", "logq", "row", "words"),
    [
        (changed(TOKEN, (1, 0, 0), -1), LOGQ, 1, "negative"),
        (changed(TOKEN, (1, 1, 1), 2**31), LOGQ, 1, "over 2"),
        (TOKEN, changed(LOGQ, (1, 0, 1), np.nan), 1, "NaN"),
        (TOKEN, changed(LOGQ, (0, 0, 0), 0.01), 0, "positive"),
        (TOKEN, changed(LOGQ, (1, 0, 0), -5.0), 1, "not sorted"),
        (TOKEN, changed(LOGQ, (0, 0, 1), -0.6), 0, "more than 1"),
        (changed(TOKEN, (1, 1, 0), 4), LOGQ, 1, "twice"),
        (TOKEN, changed(LOGQ, (1, 1, 0), 1e-7), 1, "positive"),
        (TOKEN, changed(LOGQ, (0, 0, 1), np.log(0.41)), 0, "more than 1"),
    ],
)
def test_a_bad_row_is_named(token, logq, row, words):
    with pytest.raises(RowError, match=words) as caught:
        Marginals(token, logq)
    assert caught.value.row == row


@pytest.mark.parametrize(
    ("token", "logq", "words"),
    [
        (TOKEN[0], LOGQ[0], "one shape"),
        (TOKEN, LOGQ[:, :, :1], "one shape"),
        (TOKEN[:, :, :0], LOGQ[:, :, :0], "one shape"),
        (TOKEN.astype(float), LOGQ, "integers"),
        (TOKEN > 4, LOGQ, "integers"),
        (TOKEN, LOGQ.astype(np.float16), "float32 or float64"),
    ],
)
def test_shapes_and_types_that_are_no_marginals(token, logq, words):
    with pytest.raises(ValueError, match=words):
        Marginals(token, logq)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("continuation", [[5, 9], [-4, 3]], "row 1: a token id of the continuation is negative"),
        ("continuation", [[5, 9, 1], [1, 3, 1]], "shape"),
        ("known", [2, 3], "row 1: known is over the depth 2"),
        ("known", [-1, 2], "row 0: known is negative"),
        ("remaining", [1, 2], "row 0: known is not the smaller"),
        ("prompt", [0], "shape"),
        ("position", [0.5, 1.0], "integers"),
        ("position", [0, 2**31], "row 1: position is negative or over"),
    ],
)
def test_rounds_that_contradict_themselves(field, value, words):
    good = {
        "continuation": [[5, 9], [1, 3]],
        "known": [2, 2],
        "prompt": [0, 0],
        "position": [0, 1],
        "remaining": [9, 2],
    }
    with pytest.raises(ValueError, match=words):
        Rounds(Marginals(TOKEN, LOGQ), **{**good, field: np.array(value)})


@pytest.mark.parametrize("kind", [np.uint32, np.int32, np.int64, np.uint64])
def test_scenario_31_every_integer_type_replays_alike(kind):
    """Padding of an unsigned array cannot be -1; whatever stands behind `known` equals no candidate."""
    padded = np.array([[5, 5], [1, 3]]).astype(kind)
    padded[0, 1] = np.iinfo(kind).max  # what -1 becomes in an unsigned array, and out of range in any
    known = np.array([1, 2], kind)
    rounds = Rounds(Marginals(TOKEN.astype(kind), LOGQ), padded, known, np.zeros(2, kind), np.arange(2).astype(kind))
    assert rounds.continuation.dtype == np.int32
    assert rounds.continuation.tolist() == [[5, -1], [1, 3]]
    found = entry_budgets(Marginals(TOKEN.astype(kind), LOGQ), padded, known, budget=6)
    assert found.tolist() == [[1, 7], [1, 2]]


def test_scenario_16_rank_is_by_probability_then_by_id():
    """q1 = {7: .5, 4: .5}: the lower id is the better rank, in whatever order the log lists them."""
    half = np.log(np.full((1, 1, 2), 0.5))
    for order in ([7, 4], [4, 7]):
        assert Marginals(np.array([[order]]), half).token.tolist() == [[[4, 7]]]
        assert Marginals.ranked(np.array([[order]]), half).token.tolist() == [[[4, 7]]]


@given(marginals())
def test_shuffled_candidates_rank_back_to_the_same_marginals(found):
    shuffle = np.random.default_rng(0).permutation(found.rank_kept)
    again = Marginals.ranked(found.token[:, :, shuffle], found.logq[:, :, shuffle])
    np.testing.assert_array_equal(again.token, found.token)
    np.testing.assert_array_equal(again.logq, found.logq)


def test_a_sum_of_one_may_carry_float32_rounding():
    Marginals(TOKEN[:1, :1], np.log([[[0.60001, 0.39999 + 5e-4]]]))


def test_parts_are_views_with_the_same_rules():
    found = Marginals(TOKEN, LOGQ)
    assert found.head(rank_cap=1).token.shape == (2, 2, 1)
    assert found.head(depth_max=1, rank_cap=64).token.shape == (2, 1, 2)
    assert np.shares_memory(found.head(rank_cap=1).token, found.token)
    assert len(found.take(np.array([True, False]))) == 1


def test_a_short_continuation_is_censored_and_caps_what_is_left():
    rounds = Rounds(
        Marginals(TOKEN, LOGQ), np.array([[5, 9], [1, 0]]), np.array([2, 1]), np.zeros(2, int), np.arange(2)
    )
    assert rounds.censored.tolist() == [False, True]
    assert rounds.remaining.tolist() == [3, 1]
    assert rounds.take(slice(1, 2)).known.tolist() == [1]


def test_read_only_and_strided_inputs_are_left_alone():
    token, logq = np.repeat(TOKEN, 2, axis=0)[::2], LOGQ.copy()
    token.flags.writeable = logq.flags.writeable = False
    Marginals(token, logq)
    np.testing.assert_array_equal(token, TOKEN)


def test_checked_arrays_are_copies():
    logq = LOGQ.copy()
    found = Marginals(TOKEN, logq)
    logq[:] = 1
    np.testing.assert_array_equal(found.logq, LOGQ)


def test_ties_are_ordered_in_a_copy():
    token = np.array([[[7, 4]]], np.int32)
    assert Marginals(token, np.log(np.full((1, 1, 2), 0.5))).token.tolist() == [[[4, 7]]]
    assert token.tolist() == [[[7, 4]]]


@pytest.mark.parametrize("caps", [{"rank_cap": 0}, {"rank_cap": -1}, {"depth_max": 0}])
def test_a_universe_without_candidates_is_refused(caps):
    with pytest.raises(ValueError, match="at least 1"):
        Marginals(TOKEN, LOGQ).head(**caps)
