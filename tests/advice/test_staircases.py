"""Cost curves in steps, as kernels of tiles and captured sizes give: kept as they are, and weighed at every width."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_builders import document

from castsim.advice.acceptance import published
from castsim.advice.width import noise, rules
from castsim.costs.curve import Cost
from replay.latency import LatencyCurve
from replay.width import affine_cost

MASS = published("qwen3-8b-gsm8k", None, None, 127)
PACKED = np.arange(1, 129)


def stairs(base_ms, step_ms, tread):
    """(128,) a pass of n tokens takes its tiles, each of `tread` tokens."""
    return base_ms + step_ms * np.ceil(PACKED / tread)


def best_of_all(mass, times, draft_ms):
    """The best width, tried one by one: (1 + masses so far) tokens in a round of N + 1 packed ones."""
    rates = [(1 + sum(mass[:n])) / (draft_ms + times[n]) for n in range(len(mass) + 1)]
    return max(range(len(rates)), key=lambda n: (rates[n], -n))


staircases = st.tuples(st.floats(0.5, 40), st.floats(0.01, 20), st.integers(1, 64))


@given(staircases, st.floats(0.1, 5))
def test_every_width_of_a_staircase_is_weighed(steps, draft_ms):
    times = stairs(*steps)
    cost = Cost(LatencyCurve(PACKED, times), draft_ms)
    assert cost.curve.smoothed().ms[0, 0] == pytest.approx(times)  # a step is no noise
    answers = {rule["rule"]: rule for rule in rules(cost, MASS, range(1, 128))}
    best = best_of_all(MASS.mass.tolist(), times.tolist(), draft_ms)
    for rule in ("measured", "measured, raw points"):
        assert answers[rule]["budget"] == best
        assert answers[rule]["deployed"] == max(best, 1)


@given(staircases, st.integers(0, 2**32 - 1))
def test_repeats_tell_noise_from_steps(steps, seed):
    """Ten repeats of half a percent each: the steps stay, and no draw of the probe leaves the best width's rate."""
    times = stairs(*steps)
    samples = times[:, None] * (1 + 0.005 * np.random.default_rng(seed).standard_normal((128, 10)))
    cost = Cost(LatencyCurve(PACKED, np.median(samples, axis=1), samples_ms=samples[None, None]), 1.0)
    assert cost.curve.smoothed().ms[0, 0] == pytest.approx(times, rel=0.02)
    chosen = rules(cost, MASS, range(1, 128))[1]["deployed"]
    rate = (1 + np.cumsum(MASS.mass)) / (1 + times[1:])
    assert rate[chosen - 1] > 0.96 * rate.max()


@given(st.floats(0.05, 3), st.integers(16, 64))
def test_a_line_that_begins_below_zero_is_clamped(step_ms, tread):
    """Few tiles below, many above: the fitted line may start under 0, where Theorem 2 has no answer."""
    times = 0.01 + step_ms * np.maximum(np.ceil(PACKED / tread) - 1, 0) ** 2
    samples = times[:, None] * np.linspace(0.99, 1.01, 5)
    cost = Cost(LatencyCurve(PACKED, times, samples_ms=samples[None, None]), 0.01)
    line = affine_cost(cost.curve, cost.draft_ms)
    assert line.fixed_ms > 0 and line.slope_ms >= 0
    assert line.clamped == ("intercept" if cost.curve.line().intercept_ms < 0 else None)
    found = noise(cost, MASS, range(1, 128), 0)
    for shares in found["share_by_width"].values():
        assert sum(shares.values()) == pytest.approx(1)


def test_a_clamped_line_is_told(castsim, tmp_path):
    file = tmp_path / "probe.json"
    ms = (0.5 + 0.002 * PACKED**2).tolist()
    file.write_text(json.dumps({"packed": PACKED.tolist(), "ms": ms, "draft_ms": 1}), encoding="utf-8")
    found = document(castsim, "width", "--probe", file, "--masses", "qwen3-8b-gsm8k")
    assert found["rules"][0]["clamped"] == "intercept"
    assert any("the line starts below 0" in line for line in found["caveats"])


def test_the_best_width_lies_below_the_papers_grid(castsim, tmp_path):
    """Tiles of 7: six nodes and the root fill the first one, and the second costs as much again."""
    file = tmp_path / "probe.csv"
    times = stairs(0.2, 10, 7)
    rows = [f"{n},{ms},0.5" for n, ms in zip(PACKED, times, strict=True)]
    file.write_text("packed,ms,draft_ms\n" + "\n".join(rows), encoding="utf-8")
    masses = tmp_path / "masses.json"
    masses.write_text(json.dumps(MASS.mass.tolist()), encoding="utf-8")
    found = document(castsim, "width", "--probe", file, "--masses", masses)
    best = best_of_all(MASS.mass.tolist(), times.tolist(), 0.5)
    assert best == 6
    assert found["verdict"]["budget"] == best
    assert found["grid"] == list(range(1, 128))


def test_steps_of_a_table_are_no_scatter(castsim, tmp_path):
    """Medians without repeats tell nothing of noise, and that is said."""
    file = tmp_path / "probe.json"
    found = {"packed": PACKED.tolist(), "ms": stairs(20, 5, 16).tolist(), "draft_ms": 2}
    file.write_text(json.dumps(found), encoding="utf-8")
    answer = document(castsim, "width", "--probe", file)
    assert answer["noise"] is None
    assert answer["transients"] == []
    assert any("its noise is not known" in line for line in answer["caveats"])
    assert answer["widths"][2]["gain_over_chain_ci95"] is not None  # of the prompts alone
