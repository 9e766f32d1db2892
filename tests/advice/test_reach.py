"""Probes that end early or hold medians only: answered as far as they go, and what they cannot say is said."""

import json

import pytest
from run_builders import document

SHORT = {"packed": [1, 2, 4, 8], "ms": [10, 10.5, 11, 12], "draft_ms": 2}


@pytest.fixture
def short(tmp_path):
    (tmp_path / "probe.json").write_text(json.dumps(SHORT), encoding="utf-8")
    return tmp_path / "probe.json"


def test_a_forecast_of_a_short_probe_covers_what_it_can(castsim, short):
    found = document(castsim, "forecast", "--probe", short, "--budgets", "3,7,15")
    rows = {(row["policy"], row["budget"]): row for row in found["results"]}
    assert rows["topN", 7]["round_ms"] == pytest.approx(14)
    assert rows["topN", 3]["ms_per_token"] > 0 and rows["AR", 0]["ms_per_token"] == 10
    for row in (rows["chain", 15], rows["topN", 15]):
        assert (row["round_ms"], row["ms_per_token"], row["speedup_over_ar"]) == (None, None, None)
        assert row["committed_pooled"] > 1  # what needs no probe is known
    told = "The probe ends at 8 packed tokens, which prices 7 nodes: no time for chain of 15, topN of 15."
    assert told in found["caveats"]


def test_a_forecast_without_widths_takes_what_the_probe_prices(castsim, short):
    budgets = [row["budget"] for row in document(castsim, "forecast", "--probe", short)["results"]]
    assert max(b for b in budgets if b != 15) == 7
    code, out, _ = castsim("forecast", "--probe", short)
    assert code == 0 and "n/a" in out


def test_the_width_of_a_short_probe(castsim, short):
    found = document(castsim, "width", "--probe", short)
    assert found["grid"] == list(range(1, 8))
    assert found["rules"][0]["rule"] == "measured"  # no line from 16 to 128
    assert found["verdict"]["gain_over_chain"] is None and found["verdict"]["speedup_over_ar"] > 1
    text = " ".join(found["caveats"])
    assert "No affine rule: the probe has fewer than two packed counts from 16 to 128" in text
    assert "it prices trees of at most 7 nodes, and not the chain of 15" in text
    assert castsim("width", "--probe", short)[0] == 0


def test_medians_alone_give_a_forecast_without_the_probes_noise(castsim, tmp_path):
    """Uneven medians, as of a noisy machine without its repeats."""
    file = tmp_path / "probe.csv"
    times = [10, 14, 11, 19, 12.5, 30]
    rows = [f"{n},{ms},2" for n, ms in zip([1, 16, 24, 32, 64, 128], times, strict=True)]
    file.write_text("packed,ms,draft_ms\n" + "\n".join(rows), encoding="utf-8")
    for verb in ("forecast", "width"):
        found = document(castsim, verb, "--probe", file, "--budgets", "15,31,63")
        assert any("medians only" in line for line in found["caveats"]), verb
    assert castsim("width", "--probe", file)[0] == 0
    assert found["widths"][3]["gain_over_chain_ci95"] is not None  # of the prompts


def test_the_picture_of_a_short_probe_is_drawn(castsim, short, tmp_path):
    assert castsim("width", "--probe", short, "--plot", tmp_path / "w.png")[0] == 0
    assert (tmp_path / "w.png").stat().st_size > 10_000
