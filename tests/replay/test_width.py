"""Theorem 2: unimodal throughput, and the stopping test against the arg-max over all budgets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.width import expected_accepted, stopping_budget, throughput_tok_per_ms

falling = st.lists(st.sampled_from([1.0, 0.75, 0.5, 0.25, 0.1, 0.01, 0.0]), max_size=12).map(
    lambda m: sorted(m, reverse=True)
)
times = st.floats(0.1, 50), st.sampled_from([0.0, 0.01, 0.25, 0.5, 1.0, 3.0])


@given(falling, *times)
def test_theorem_2_throughput_is_unimodal(mass, fixed_ms, slope_ms):
    rate = throughput_tok_per_ms(mass, fixed_ms=fixed_ms, slope_ms=slope_ms)
    peak = int(rate.argmax())
    assert (np.diff(rate[: peak + 1]) >= -1e-12).all()
    assert (np.diff(rate[peak:]) <= 1e-12).all()


@given(falling, *times)
def test_theorem_2_stopping_test_finds_the_maximum(mass, fixed_ms, slope_ms):
    rate = throughput_tok_per_ms(mass, fixed_ms=fixed_ms, slope_ms=slope_ms)
    stop = stopping_budget(mass, fixed_ms=fixed_ms, slope_ms=slope_ms)
    assert rate[stop] == pytest.approx(rate.max(), rel=1e-12)


@given(falling.filter(len), *times)
def test_theorem_2_a_node_pays_if_and_only_if_throughput_does_not_fall(mass, fixed_ms, slope_ms):
    rate = throughput_tok_per_ms(mass, fixed_ms=fixed_ms, slope_ms=slope_ms)
    gap = np.asarray(mass) - rate[:-1] * slope_ms
    clear = np.abs(gap) > 1e-9  # at equality both sides are equal up to rounding
    assert ((gap >= 0) == (rate[1:] >= rate[:-1]))[clear].all()


@given(falling)
def test_theorem_2_g_is_concave_with_the_masses_as_increments(mass):
    gained = expected_accepted(mass)
    np.testing.assert_allclose(np.diff(gained), mass, atol=1e-12)
    assert gained[0] == 0


@pytest.mark.parametrize(("slope_ms", "budget"), [(0, 11), (0.056, 11), (0.5, 7), (2, 5)])
def test_scenario_20_the_rule_by_hand(slope_ms, budget):
    mass = (0.86, 0.7, 0.55, 0.4, 0.3, 0.2, 0.12, 0.08, 0.05, 0.03, 0.02)
    assert stopping_budget(mass, fixed_ms=22, slope_ms=slope_ms) == budget


def test_scenario_20_a_node_at_equality_is_added():
    """l(0) = 2, c1 = 1: .5 >= (1 / 2) * 1."""
    assert stopping_budget([0.5], fixed_ms=2, slope_ms=1) == 1


def test_the_smallest_budget_is_a_floor():
    assert stopping_budget([0.5, 0.01, 0.01, 0.001], fixed_ms=1, slope_ms=1, smallest=2) == 2


@pytest.mark.parametrize(
    ("mass", "fixed_ms", "slope_ms"),
    [
        ([0.1, 0.2], 1, 1),
        ([1.1], 1, 1),
        ([-0.1], 1, 1),
        ([np.nan], 1, 1),
        ([[0.5]], 1, 1),
        ([0.5], 0, 1),
        ([0.5], 1, -1),
    ],
)
def test_what_theorem_2_does_not_cover_is_refused(mass, fixed_ms, slope_ms):
    with pytest.raises(ValueError, match="must be"):
        stopping_budget(mass, fixed_ms=fixed_ms, slope_ms=slope_ms)
