"""The prefix that a price is for: named, of the run's rounds, or the probe's own; outside the probe only as told."""

import json

import numpy as np
import pytest
from run_builders import document

from castsim.costs.context import context_of, run_contexts
from castsim.runs.reading import open_run
from replay.latency import LatencyCurve

PACKED = [1, 16, 32, 64, 128]


def probe(path, prefix, depth=0.0):
    """Times that rise with the prefix: 10 ms and 1 ms for each 100 cached tokens, whatever the width."""
    ms = [[[10 + x / 100 + n / 1e6 for n in PACKED]] for x in prefix]
    found = {"packed": PACKED, "prefix": prefix, "batch": [1], "ms": ms, "draft_ms": [[1.0]] * len(prefix)}
    path.write_text(json.dumps(found), encoding="utf-8")
    return path


def curve(prefix):
    return LatencyCurve([1, 16], np.ones((len(prefix), 1, 2)), prefix)


def test_contexts_are_the_cached_tokens_before_each_round(sample):
    """The prompt, and the output before the root, which is the token that a round starts from."""
    run = open_run(sample)
    first = run.sequences().row(0, named=True)
    before, emitted = len(first["prompt_tokens"]), len(first["output_tokens"])
    found = run_contexts(run, [first["prompt"]])
    assert found.tolist() == list(range(before, before + emitted - 1))


def test_a_price_is_that_of_the_runs_own_contexts(castsim, tmp_path, sample):
    mean = run_contexts(open_run(sample)).mean()
    file = probe(tmp_path / "probe.json", [0, 4096])
    for verb, rows in (("forecast", "results"), ("width", "widths")):
        found = document(castsim, verb, "--probe", file, "--budgets", "15")
        single = found[rows][0]
        assert single["policy"] == "AR"
        assert single["ms_per_token"] == pytest.approx(10 + mean / 100, abs=1e-3), verb
        assert any(f"{mean:.0f} on average" in line for line in found["caveats"])


def test_a_named_prefix_goes_before_them(castsim, tmp_path):
    file = probe(tmp_path / "probe.json", [0, 4096])
    for prefix in (0, 1000, 4096):
        found = document(castsim, "forecast", "--probe", file, "--budgets", "15", "--prefix", prefix)
        assert found["results"][0]["ms_per_token"] == pytest.approx(10 + prefix / 100, abs=1e-3)
        assert (found["prefix"], found["prefix_held"]) == (prefix, False)


@pytest.mark.parametrize("verb", ["width", "forecast"])
def test_outside_the_probe_is_said_once_and_held_only_where_told(castsim, tmp_path, verb):
    file = probe(tmp_path / "probe.json", [1024, 2048])
    asked = (verb, "--probe", file, "--prefix", "9000", "--budgets", "15")
    code, out, err = castsim(*asked)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--prefix 9000: outside the probe, which measured from 1024 to 2048" in err
    assert "--assume hold" in err
    found = document(castsim, *asked, "--assume", "hold")
    assert (found["prefix"], found["prefix_held"]) == (2048, True)
    assert sum("outside the probe" in line for line in found["caveats"]) == 1


def test_a_forecast_does_not_price_short_contexts_by_long_ones_unasked(castsim, tmp_path):
    """The sample's contexts are short; a probe of long ones is no price for them."""
    file = probe(tmp_path / "probe.json", [1024, 2048])
    code, out, err = castsim("forecast", "--probe", file, "--budgets", "15")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "cached tokens of the run's rounds: outside the probe" in err
    assert document(castsim, "forecast", "--probe", file, "--budgets", "15", "--assume", "hold")["prefix"] == 1024


def test_an_assumption_of_another_kind_is_refused(castsim):
    code, _, err = castsim("width", "--assume", "luck")
    assert (code, err.count("\n")) == (2, 1)
    assert "--assume luck: there is hold" in err


def test_the_question_of_a_machine_takes_a_prefix_of_its_own():
    """For width: rounds that lie outside do not stop the answer, and it says what stands for them."""
    found = context_of(curve([512, 4096]), None, np.array([10, 90]), holds=False, own=True)
    assert (found.tokens.tolist(), found.held) == ([1024], True)
    assert "which stands for the 10 to 90 cached tokens" in found.told


def test_a_probe_that_names_no_prefix_prices_every_context():
    found = context_of(curve([0]), 5000, None, holds=False)
    assert (found.tokens.tolist(), found.held) == ([0], False)
    assert "names no prefix" in found.told
