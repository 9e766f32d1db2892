"""castsim serve: what a user sees, and the shape of Figure 7."""

import pytest
import runs
from runs import document

from castsim.simulation.profile import open_profile
from castsim.simulation.runs import Shape, simulate_run


def test_closed_loads_of_the_sample_run(castsim, tmp_path):
    ask = ("serve", "--requests", "12", "--concurrency", "1,6")
    found = document(castsim, *ask, "--plot", str(tmp_path / "a.svg"))
    assert (tmp_path / "a.svg").stat().st_size > 1000
    assert len(found["results"]) == 2 * 7
    for row in found["results"]:
        assert 0 < row["requests_in_pass"] <= row["batch"] and row["goodput_tok_per_s"] > 0
    best = [row for row in found["results"] if row["best"]]
    assert [row["load"] for row in best] == ["1 in flight", "6 in flight"]
    alone = {row["controller"]: row for row in found["results"] if row["batch"] == 1}
    assert alone["shared"]["goodput_tok_per_s"] == alone["uniform"]["goodput_tok_per_s"]  # nothing to share
    assert document(castsim, *ask, "--jobs", "2")["results"] == found["results"]


def test_open_loads_and_a_trace(castsim, tmp_path):
    found = document(castsim, "serve", "--requests", "20", "--rate", "1,50", "--policy", "chain", "--concurrency", "4")
    slow, fast = found["results"]
    assert slow["busy_share"] < fast["busy_share"]
    assert slow["first_token_ms"]["p95"] < fast["first_token_ms"]["p95"]
    file = tmp_path / "trace.csv"
    file.write_text("ms\n0\n10\n20000\n")
    traced = document(castsim, "serve", "--arrivals", str(file), "--policy", "shared")["results"]
    assert [row["load"] for row in traced] == ["trace.csv"] and traced[0]["busy_share"] < 0.5


def test_figure_7_wide_first_then_the_chain_and_the_shared_rule_above_both(castsim, tmp_path):
    run = tmp_path / "run"
    simulate_run(open_profile("qwen3-8b-gsm8k").model(), Shape(prompts=64, tokens=160, seed=7), run, "qwen3-8b-gsm8k")
    ask = [part for name in ("chain", "wide", "batched") for part in ("--policy", name)]
    rows = document(castsim, "serve", str(run), "--requests", "96", "--concurrency", "4,8,16,32", *ask)["results"]
    speed = {(row["batch"], row["controller"]): row["goodput_tok_per_s"] for row in rows}
    assert all(speed[b, "wide"] > speed[b, "chain"] for b in (4, 8))
    assert all(speed[b, "wide"] < speed[b, "chain"] for b in (16, 32))
    assert all(speed[b, "batched"] > 1.05 * max(speed[b, "wide"], speed[b, "chain"]) for b in (16, 32))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--rate", "0"], "--rate 0"),
        (["--rate", "2,-1"], "--rate 2,-1"),
        (["--rate", "fast"], "--rate fast"),
        (["--rate", "nan"], "--rate nan"),
        (["--arrivals", "weekly", "--rate", "2"], "--arrivals weekly"),
        (["--arrivals", "weekly"], "--arrivals weekly"),
        (["--arrivals", "bursty"], "give --rate"),
        (["--arrivals", "trace.csv", "--rate", "2"], "--rate 2"),
        (["--policy", "best"], "--policy best"),
        (["--set", "colour=3"], "--set colour=3"),
        (["--set", "nodes=0"], "--set nodes=0"),
        (["--set", "nodes=few"], "--set nodes=few"),
        (["--concurrency", "4096"], "outputs"),
        (["--probe", "blackwell-qwen3-8b"], "no batch axis"),
        (["--arrivals", "nowhere.csv"], "nowhere.csv"),
        (["--kv-tokens", "3"], "--kv-tokens 3"),
    ],
)
def test_bad_input_is_one_line(castsim, options, said):
    code, out, err = castsim("serve", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_a_run_of_one_policy_is_refused(castsim, tmp_path):
    sequences, rounds = runs.prompts([6, 6])
    folder = runs.write(tmp_path / "sparse", [(sequences, rounds)], runs.facts(layout="sparse"))
    code, _, err = castsim("serve", folder, "--concurrency", "1")
    assert code == 2 and "without --sparse" in err
