"""Width rules: Theorem 2, Proposition 3, measured curves and rounds one by one, each against brute force."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.latency import LatencyCurve
from replay.width import (
    Overhead,
    affine_cost,
    batch_stopping_budget,
    best_batch_budget,
    best_budget,
    best_rate,
    expected_accepted,
    measured_round_ms,
    on_grid,
    round_budgets,
    stopping_budget,
    throughput_tok_per_ms,
)

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


PACKED = np.array([1, 16, 32, 64, 128])


def test_an_affine_cost_holds_draft_overhead_and_the_root():
    curve = LatencyCurve(PACKED, 5 + 0.25 * PACKED)
    cost = affine_cost(curve, 2.0, Overhead(1.0, 0.5))
    assert (cost.fixed_ms, cost.slope_ms) == pytest.approx((2 + 1 + 5 + 0.25, 0.75))
    assert not cost.clamped
    times = measured_round_ms(curve, 127, 2.0, Overhead(1.0, 0.5))
    np.testing.assert_allclose(times[15:], cost.fixed_ms + cost.slope_ms * np.arange(15, 128))


def test_scenario_20_a_falling_line_is_clamped_and_says_so():
    """Then every node pays, so the rule goes to the largest allowed budget."""
    cost = affine_cost(LatencyCurve(PACKED, 30 - 0.01 * PACKED), 2.0)
    assert cost.clamped
    assert cost.slope_ms == 0
    assert cost.fixed_ms == pytest.approx(2 + 30 - 0.01 * PACKED[1:].mean())
    assert stopping_budget([0.5, 1e-9], fixed_ms=cost.fixed_ms, slope_ms=cost.slope_ms) == 2


masses = falling.filter(len)
costs = st.lists(st.floats(0.5, 50), min_size=13, max_size=13)


@given(masses, costs)
def test_the_measured_rule_is_the_brute_force_maximum(mass, time):
    time = time[: len(mass) + 1]
    rate = [(1 + sum(mass[:n])) / time[n] for n in range(len(mass) + 1)]
    best = best_budget(mass, time)
    assert best >= 1
    assert rate[best] == pytest.approx(max(rate[1:]), rel=1e-12)
    assert rate[best_budget(mass, time, [0, len(mass)])] == pytest.approx(max(rate[0], rate[-1]), rel=1e-12)


@given(masses, *times)
def test_the_measured_rule_on_a_line_is_theorem_2(mass, fixed_ms, slope_ms):
    line = fixed_ms + slope_ms * np.arange(len(mass) + 1)
    rate = throughput_tok_per_ms(mass, fixed_ms=fixed_ms, slope_ms=slope_ms)
    stop = stopping_budget(mass, fixed_ms=fixed_ms, slope_ms=slope_ms)
    assert rate[best_budget(mass, line, range(len(mass) + 1))] == pytest.approx(rate[stop], rel=1e-12)


batches = st.integers(1, 4).flatmap(
    lambda n: st.lists(st.lists(st.floats(0, 1), min_size=n, max_size=n), min_size=1, max_size=4).map(
        lambda rows: -np.sort(-np.array(rows), axis=1)
    )
)


@given(batches, costs)
def test_the_per_round_rule_is_each_rounds_brute_force_maximum(mass, time):
    """The curve may have any shape."""
    time = np.array(time[: mass.shape[1] + 1])
    for row, budget in zip(mass, round_budgets(mass, time), strict=True):
        assert budget == best_budget(row, time)


@given(batches, costs)
def test_the_best_rate_is_the_largest_ratio_of_sums_over_all_choices(mass, time):
    time = np.array(time[: mass.shape[1] + 1])
    gained = 1 + np.cumsum(np.pad(mass, ((0, 0), (1, 0))), axis=1)
    every = itertools.product(range(1, mass.shape[1] + 1), repeat=len(mass))
    best = max(sum(g[n] for g, n in zip(gained, ns, strict=True)) / sum(time[list(ns)]) for ns in every)
    rate = best_rate(mass, time)
    assert rate == pytest.approx(best, rel=1e-9)
    chosen = round_budgets(mass, time, rate)
    assert gained[np.arange(len(mass)), chosen].sum() / time[chosen].sum() == pytest.approx(best, rel=1e-9)


@given(batches, *times)
def test_proposition_3_stops_at_the_brute_force_maximum(mass, fixed_ms, slope_ms):
    """Among all totals M, and all splits of M among the requests."""
    best = 0.0
    for split in itertools.product(range(mass.shape[1] + 1), repeat=len(mass)):
        committed = sum(1 + row[:n].sum() for row, n in zip(mass, split, strict=True))
        best = max(best, committed / (fixed_ms + slope_ms * sum(split)))
    total = batch_stopping_budget(mass, fixed_ms=fixed_ms, slope_ms=slope_ms)
    falling = -np.sort(-mass.ravel())
    assert (len(mass) + falling[:total].sum()) / (fixed_ms + slope_ms * total) == pytest.approx(best, rel=1e-9)
    line = fixed_ms + slope_ms * np.arange(mass.size + 1)
    measured = best_batch_budget(mass, line)
    assert (len(mass) + falling[:measured].sum()) / line[measured] == pytest.approx(best, rel=1e-9)


@given(falling, *times)
def test_proposition_3_at_one_request_is_theorem_2(mass, fixed_ms, slope_ms):
    cost = {"fixed_ms": fixed_ms, "slope_ms": slope_ms}
    assert batch_stopping_budget(np.array([mass]), **cost) == stopping_budget(mass, **cost)


def test_a_batch_that_has_fewer_nodes_than_times_is_refused():
    with pytest.raises(ValueError, match="2 requests have 4 nodes, fewer than 5"):
        best_batch_budget(np.full((2, 2), 0.5), np.ones(6))


@given(masses, *times)
def test_the_grids_best_is_a_neighbour_of_the_rules_answer(mass, fixed_ms, slope_ms):
    rate = throughput_tok_per_ms(mass, fixed_ms=fixed_ms, slope_ms=slope_ms)
    grid = np.arange(0, len(rate), 3)
    stop = stopping_budget(mass, fixed_ms=fixed_ms, slope_ms=slope_ms)
    below = grid[grid <= stop][-1]
    near = [n for n in (below, below + 3) if n in grid]
    assert rate[on_grid(rate, grid)] == pytest.approx(max(rate[near]), rel=1e-9)


@pytest.mark.parametrize(
    ("mass", "time", "said"),
    [
        ([0.1, 0.5], [1, 1, 1], "falling row"),
        ([1.5], [1, 1], "falling row"),
        ([0.5], [1], "must hold 2 positive times"),
        ([0.5], [1, 0], "must hold 2 positive times"),
    ],
)
def test_bad_masses_and_times_are_refused(mass, time, said):
    with pytest.raises(ValueError, match=said):
        best_budget(mass, time)
    with pytest.raises(ValueError, match=said.replace("row", "rows") if "row" in said else said):
        round_budgets(np.array([mass]), time)


def test_a_budget_beyond_the_masses_is_refused():
    with pytest.raises(ValueError, match=r"budgets must lie in 0..1"):
        best_budget([0.5], [1, 1], [2])
