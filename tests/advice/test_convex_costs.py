"""The width rules on other people's cost curves: CaDDTree's convex fits of an A800, which are not shipped with castsim.

`CASTSIM_A800_CURVE` names a CSV with columns context, nodes, verify_ms, made from its `cost_models` (MIT).
"""

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from castsim.advice.acceptance import published
from replay.latency import LatencyCurve
from replay.width import affine_cost, best_budget, measured_round_ms, round_budgets, stopping_budget

FILE = Path(os.environ.get("CASTSIM_A800_CURVE", "nowhere"))
pytestmark = pytest.mark.skipif(not FILE.is_file(), reason="the A800 curves lie outside the repository")


@pytest.fixture(scope="module")
def curve():
    table = pl.read_csv(FILE).sort("context", "nodes")
    context, nodes = (table[name].unique().sort().to_numpy() for name in ("context", "nodes"))
    ms = table["verify_ms"].to_numpy().reshape(len(context), 1, len(nodes))
    return LatencyCurve(nodes + 1, ms, context, draft_ms=np.full((len(context), 1), 6.5))


def test_the_rules_agree_with_brute_force_at_every_context(curve):
    mass = published("qwen3-8b-gsm8k", None, None, 128).mass
    for context in curve.prefix:
        times = measured_round_ms(curve.at(context), 128, 6.5)
        rate = (1 + np.concatenate([[0], np.cumsum(mass)])) / times
        assert best_budget(mass, times) == 1 + rate[1:].argmax()
        assert round_budgets(mass[None], times)[0] == best_budget(mass, times)


def test_a_convex_curve_has_no_falls_to_smooth(curve):
    for context in curve.prefix:
        part = curve.at(context)
        np.testing.assert_allclose(part.smoothed().ms[0, 0, 2:], part.ms[0, 0, 2:], rtol=1e-3)


def test_one_line_is_too_simple_for_a_convex_curve(curve):
    """At a short context the line over 16..128 stops earlier than the curve's own best width or later, never better."""
    mass, part = published("qwen3-8b-gsm8k", None, None, 128).mass, curve.at(1)
    times = measured_round_ms(part, 128, 6.5)
    rate = (1 + np.concatenate([[0], np.cumsum(mass)])) / times
    line = affine_cost(part, 6.5)
    assert rate[stopping_budget(mass, fixed_ms=line.fixed_ms, slope_ms=line.slope_ms)] <= rate[best_budget(mass, times)]
