"""Latency curves: bad input, values between points, slopes, and smoothing that one bad point cannot bend (19, 20)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castsim.costs.probefile import open_probe
from replay.latency import LatencyCurve

PACKED = np.array([1, 4, 8, 16, 24, 32, 48, 64, 96, 128])


def curve(ms, packed=PACKED, **more):
    return LatencyCurve(np.asarray(packed), np.asarray(ms, float), **more)


@pytest.mark.parametrize(
    ("packed", "ms", "said"),
    [
        ([], [], "row of whole numbers"),
        ([1.5, 2.5], [1, 2], "row of whole numbers"),
        ([16, 8], [1, 2], "must rise"),
        ([16, 16], [1, 2], "must rise"),
        ([0, 16], [1, 2], "from at least 1"),
        ([8, 16], [1, np.nan], "positive numbers"),
        ([8, 16], [1, 0], "positive numbers"),
        ([8, 16], [1, -3], "positive numbers"),
        ([8, 16], [1, 2, 3], "must have shape"),
    ],
)
def test_what_is_no_curve_is_refused(packed, ms, said):
    with pytest.raises(ValueError, match=said):
        curve(ms, packed)


def test_a_draft_time_that_is_not_positive_is_refused():
    with pytest.raises(ValueError, match="draft_ms"):
        curve([1, 2], [8, 16], draft_ms=-1.0)


def test_between_points_linear_or_step():
    found = curve([10, 20, 30], [1, 4, 8])
    assert found.ms_at([1, 4, 6, 8]).tolist() == [10, 20, 25, 30]
    assert found.ms_at([2, 3]).tolist() == [20, 20]  # behind n = 1 the next regime begins
    assert found.ms_at([2, 5, 8], how="step").tolist() == [20, 30, 30]


@pytest.mark.parametrize("n", [3, 129])
def test_a_count_outside_the_measured_ones_is_not_guessed(n):
    with pytest.raises(ValueError, match="outside what was measured, 4 to 128"):
        curve(np.ones(9), PACKED[1:]).ms_at(n)


def test_prefixes_are_interpolated_and_batches_are_not():
    found = LatencyCurve([16, 32], np.arange(1, 9).reshape(2, 2, 2), [1024, 2048], [1, 8], [[1, 2], [3, 4]])
    assert found.at(1536).ms.ravel().tolist() == [3, 4]
    assert found.at(1536, 8).draft_ms.ravel().tolist() == [3]
    assert found.at([1024, 2048, 1536, 1536]).ms.ravel().tolist() == [3, 4]  # the mean over rounds
    assert found.at(10**6, outside="hold").ms.ravel().tolist() == [5, 6]
    for prefix in (10**6, 0, [1024, 4096]):
        with pytest.raises(ValueError, match="outside what was measured, 1024 to 2048"):
            found.at(prefix)
    with pytest.raises(ValueError, match=r"there are prefixes \[1024, 2048\]; name one"):
        found.at()
    with pytest.raises(ValueError, match=r"batch 4 was not measured; there are \[1, 8\]"):
        found.at(1024, batch=4)
    with pytest.raises(ValueError, match="choose a prefix"):
        found.ms_at(16)


def test_a_line_needs_two_points_of_its_range_and_a_known_method():
    with pytest.raises(ValueError, match="there are 1"):
        curve([1, 2], [1, 16]).line()
    with pytest.raises(ValueError, match="method ridge"):
        curve([1, 2], [16, 32]).slope("ridge")


@given(st.floats(1, 50), st.floats(-0.02, 1))
def test_every_estimator_finds_a_line(intercept, slope):
    found = curve(intercept + 3 + slope * PACKED)
    for method in ("least_squares", "endpoints", "theil_sen"):
        assert found.line(method) == pytest.approx((intercept + 3, slope), abs=1e-9)


@pytest.mark.parametrize(
    ("probe", "prefix", "slopes"),
    [
        ("blackwell-qwen3-8b", None, (0.0569, 0.0742, 0.0401)),
        ("a100-qwen3-8b", None, (0.0053, 0.0112, 0.0184)),
        ("h100-sxm-qwen3-8b", None, (0.0215, 0.0184, 0.0209)),
        ("h100-sxm-qwen3-8b-prefixes", 1024, (-0.0073, -0.0159, -0.0083)),
    ],
)
def test_scenario_20_slopes_of_the_published_probes(probe, prefix, slopes):
    found = open_probe(probe).curve().at(prefix)
    assert [found.slope(m) for m in ("least_squares", "endpoints", "theil_sen")] == pytest.approx(slopes, abs=5e-5)


def test_table_6_slopes_are_those_of_the_end_points():
    printed = {"8b": [-0.016, 0.010, 0.018, 0.029], "4b": [-0.002, 0.001, 0.024, 0.027]}
    for size, slopes in printed.items():
        found = open_probe(f"h100-sxm-qwen3-{size}-prefixes").curve()
        assert [round(found.at(p).slope("endpoints"), 3) for p in found.prefix] == slopes
    assert round(open_probe("h100-sxm-llama-3.1-8b").curve().slope("endpoints"), 3) == 0.001


def test_scenario_20_the_cliff_and_the_transients_are_named():
    blackwell, a100 = (open_probe(f"{gpu}-qwen3-8b").curve() for gpu in ("blackwell", "a100"))
    assert [(c.below, c.above) for c in blackwell.cliffs()] == [(96, 128)]
    assert not blackwell.transients()
    assert [t.packed for t in a100.transients()] == [32]
    assert not a100.cliffs()


rising = st.lists(st.floats(0, 3), min_size=10, max_size=10).map(lambda steps: 10 + np.cumsum(steps))


@given(rising)
def test_smoothing_leaves_a_rising_curve_near_itself(ms):
    """It moves no point beyond its neighbours, and a straight line not at all."""
    found = curve(ms).smoothed().ms[0, 0]
    assert found[0] == ms[0]
    assert (found[1:] >= np.concatenate([[0], ms[1:-1]]) - 1e-9).all()
    assert (found[1:-1] <= ms[2:] + 1e-9).all()
    line = 10 + 0.3 * PACKED
    np.testing.assert_allclose(curve(line).smoothed().ms[0, 0][4:], line[4:])


@given(rising, st.integers(1, 8), st.floats(0.01, 100))
def test_scenario_20_one_bad_point_does_not_bend_the_curve(ms, place, factor):
    """Whatever one point but the last says, the smoothed curve stays within a neighbour of the true one."""
    bad = ms.copy()
    bad[place] *= factor
    found = curve(bad).smoothed().ms[0, 0]
    low = np.array([ms[max(1, i - 2)] for i in range(10)])
    high = np.array([ms[min(9, i + 2)] for i in range(10)])
    if place == 1:  # a first point may be lower than all: nothing before it says otherwise
        low[1] = min(low[1], bad[1])
    assert (found[1:] >= low[1:] - 1e-9).all() and (found[1:] <= high[1:] + 1e-9).all()


def samples(ms, spread, count=30, seed=0):
    noise = np.random.default_rng(seed).normal(0, spread, (1, 1, len(ms), count))
    return np.asarray(ms)[None, None, :, None] + noise


def test_a_fall_that_the_samples_do_not_explain_stays():
    ms = 20 + np.array([0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, -1.0, -0.9, -0.8])
    sharp = curve(ms, samples_ms=samples(ms, 0.01))
    loose = curve(ms, samples_ms=samples(ms, 3.0))
    assert np.abs(sharp.smoothed().ms - ms).max() < 0.02
    assert (np.diff(loose.smoothed().ms[0, 0, 1:]) >= 0).all()


def test_errors_of_medians_come_from_the_samples():
    ms = np.full(10, 20.0)
    error = curve(ms, samples_ms=samples(ms, 1.0, count=1000)).error_ms()
    np.testing.assert_allclose(error, 1.2533 / np.sqrt(1000), rtol=0.2)
    assert curve(ms).error_ms() is None
