"""castsim serve: what a user sees, and the shape of Figure 7."""

import gzip
import json

import pytest
import run_builders as runs
from run_builders import document

from castsim.profiles.profile import open_profile
from castsim.profiles.simulate import Shape, simulate_run
from castsim.runs.reading import open_run
from castsim.serving import requests


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
    traced = document(castsim, "serve", "--arrivals", str(file), "--policy", "shared", "--window", "all")["results"]
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
        (["--rate", "1e-300"], "--rate 1e-300"),
        (["--rate", ","], "give requests a second"),
        (["--arrivals", "weekly", "--rate", "2"], "--arrivals weekly"),
        (["--arrivals", "weekly"], "--arrivals weekly"),
        (["--arrivals", "bursty"], "give --rate"),
        (["--arrivals", "poisson"], "give --rate"),
        (["--rate", "2", "--concurrency", "1,8,32"], "--concurrency 1,8,32: --rate 2 has one number"),
        (["--window", "middle"], "--window middle: there are steady, all"),
        (["--assume", "luck"], "--assume luck: there are total"),
        (["--assume", "hold"], "published costs need no assumption"),
        (["--arrivals", "trace.csv", "--rate", "2"], "--rate 2"),
        (["--policy", "best"], "--policy best"),
        (["--set", "colour=3"], "--set colour=3"),
        (["--set", "nodes=0"], "--set nodes=0"),
        (["--set", "nodes=few"], "--set nodes=few"),
        (["--concurrency", "4096", "--requests", "5000"], "outputs"),
        (["--requests", "12", "--concurrency", "8,32"], "--concurrency 32: a load has 12 requests"),
        (["--requests", "12", "--concurrency", "32", "--rate", "2"], "--concurrency 32: a load has 12 requests"),
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


def test_a_trace_is_served_whole_and_options_that_would_cut_it_are_refused(castsim, tmp_path):
    """400 arrivals stay 400, and several numbers in flight are no number."""
    file = tmp_path / "trace.csv"
    file.write_text(
        "arrived_at,num_prefill_tokens,num_decode_tokens\n" + "".join(f"{i / 9},90,5\n" for i in range(400))
    )
    asked = ("serve", "--arrivals", file, "--policy", "chain")
    found = document(castsim, *asked)
    assert found["asked"]["requests"] == 400
    assert any("prompts as long as there" in line for line in found["caveats"])
    assert document(castsim, *asked, "--requests", "30")["asked"]["requests"] == 30
    for more, said in (
        (("--concurrency", "1,8,32"), "has one number, the most in flight; give 32 alone"),
        (("--requests", "500"), "has 400"),
        (("--rate", "3"), "has its own times"),
    ):
        code, out, err = castsim(*asked, *more)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert said in err


def test_a_result_of_vllm_bench_serve_is_a_trace_and_what_failed_there_is_said(castsim, tmp_path):
    file = tmp_path / "result.json"
    lists = {"start_times": [2.0, 1.0, 3.0], "input_lens": [5, 6, 7], "output_lens": [4, 0, 8]}
    file.write_text(json.dumps({"duration": 3, "completed": 2, **lists}), encoding="utf-8")
    found = document(castsim, "serve", "--arrivals", str(file), "--policy", "chain")
    assert found["asked"]["requests"] == 3
    (told,) = [note for note in found["caveats"] if note.startswith("Arrivals of")]
    assert "(vllm bench serve); prompts as long as there" in told
    assert told.endswith("1 of all got no token there; here they are answered.")


@pytest.mark.parametrize("name", ["trace.csv.gz", "trace.txt", "trace.CSV"])
def test_a_file_is_opened_whatever_its_ending(castsim, tmp_path, name):
    file = tmp_path / name
    file.write_bytes(gzip.compress(b"ms\n1\n") if name.endswith("gz") else b"ms\n1\n")
    code, _, err = castsim("serve", "--arrivals", str(file), "--policy", "chain")
    packed = name.endswith("gz")
    assert code == (2 if packed else 0) and ("packed by gzip: unpack it" in err) == packed


def test_a_load_is_measured_while_it_is_steady(castsim):
    asked = ("serve", "--requests", "40", "--concurrency", "8", "--policy", "shared")
    (steady,), (whole,) = (document(castsim, *asked, *more)["results"] for more in ((), ("--window", "all")))
    assert (steady["window"], whole["window"]) == ("steady", "all")
    caveats = document(castsim, *asked, "--window", "all")["caveats"]
    assert [line for line in caveats if line.startswith("Measured")] == [
        "Measured from the first arrival to the last token."
    ]
    assert whole["window_ms"][0] == 0 < steady["window_ms"][0] < steady["window_ms"][1] < whole["window_ms"][1]
    assert steady["requests_in_pass"] > 7.9 > whole["requests_in_pass"]
    short = document(castsim, "serve", "--requests", "8", "--concurrency", "8", "--policy", "shared")
    assert short["results"][0]["window"] == "all"
    assert any("too few requests leave no steady part" in line for line in short["caveats"])


def test_the_usual_loads_are_those_that_the_requests_fill(castsim, tmp_path):
    asked = ("serve", "--policy", "chain", "--requests", "5")
    assert [row["batch"] for row in document(castsim, *asked)["results"]] == [1, 2, 4]
    assert [row["batch"] for row in document(castsim, *asked, "--rate", "2")["results"]] == [5]
    (tmp_path / "trace.csv").write_text("ms\n0\n10\n20000\n")
    code, out, err = castsim("serve", "--arrivals", tmp_path / "trace.csv", "--concurrency", "4")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--concurrency 4: a load has 3 requests" in err


def probe(path, prefix):
    """A pass of 10 ms, and 1 ms more for each 100 cached tokens."""
    ms = [[[10 + x / 100 + n / 1e6 for n in (1, 64, 128)] for _ in (1, 32)] for x in prefix]
    found = {"packed": [1, 64, 128], "prefix": prefix, "batch": [1, 32], "ms": ms, "draft_ms": [[1, 1]] * len(prefix)}
    path.write_text(json.dumps(found))
    return path


def test_passes_are_priced_at_the_requests_own_contexts(castsim, tmp_path):
    """Prompts of 2,000 tokens take the 30 ms of their prefix, not the 10 of the smallest that was measured."""
    file, trace = probe(tmp_path / "probe.json", [0, 4000]), tmp_path / "trace.csv"
    trace.write_text("ms,prompt_tokens\n" + "".join(f"{100 * i},2000\n" for i in range(20)))
    asked = ("serve", "--arrivals", trace, "--policy", "chain", "--concurrency", "1", "--probe", file)
    found = document(castsim, *asked)
    (row,) = found["results"]
    assert 31 < row["output_token_ms"]["p50"] * row["round_length"] < 34
    assert not found["context_held"]
    assert sum("cached tokens of the run's rounds" in line for line in found["caveats"]) == 1


def test_contexts_outside_the_probe_need_to_be_held(castsim, tmp_path):
    asked = ("serve", "--requests", "4", "--policy", "chain", "--concurrency", "2", "--probe")
    file = probe(tmp_path / "probe.json", [1000, 4000])
    code, out, err = castsim(*asked, file)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "outside the probe, which measured from 1000 to 4000" in err and "--assume hold" in err
    found = document(castsim, *asked, file, "--assume", "hold")
    assert found["context_held"]
    assert sum("outside the probe" in line for line in found["caveats"]) == 1


@pytest.mark.parametrize("widest", [16, 64])
def test_batched_looks_no_further_than_the_probe(castsim, tmp_path, widest):
    """Passes of a probe that ends at few packed tokens are priced; only more requests than it has are refused."""
    packed = [1, widest // 2, widest]
    ms = [[[10 + b * n / 1e3 for n in packed] for b in (1, 8)]]  # so cheap that every node pays
    found = {"packed": packed, "batch": [1, 8], "ms": ms, "draft_ms": [[1, 1]]}
    (tmp_path / "p.json").write_text(json.dumps(found))
    asked = ("serve", "--requests", "16", "--policy", "batched", "--probe", tmp_path / "p.json", "--concurrency")
    answer = document(castsim, *asked, "1,8")
    for row in answer["results"]:
        assert widest / 2 < row["nodes_a_request"] < widest
    assert f"The probe prices {widest - 1} nodes a request, so batched weighs no more of them." in answer["caveats"]
    assert not any("weighs no more" in line for line in document(castsim, *asked, "1", "--set", "most=9")["caveats"])
    code, out, err = castsim(*asked, "9")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "ends at 8 requests in a pass, and 9 are in flight; measure more, or give a smaller --concurrency" in err


def test_only_rounds_that_are_drawn_are_prepared(tmp_path, monkeypatch):
    """Of a long run, those of the requests' outputs; and as many requests as fit, however many are asked for."""
    folder = runs.write(tmp_path / "run", [runs.prompts([6] * 50, first=50 * i) for i in range(4)])
    prepared, real = [], requests.pool_of
    monkeypatch.setattr(requests, "pool_of", lambda parts: prepared.extend(map(len, parts)) or real(parts))
    found = requests.requests_of(open_run(folder), None, 7, 0)
    assert (sum(prepared), len(found.outputs.remaining), found.of) == (35, 35, 200)
    assert found.outputs.tokens.tolist() == [6] * 7
    monkeypatch.setattr(requests, "ROWS_MAX", 20)
    assert len(requests.requests_of(open_run(folder), None, 90, 0).outputs.start) == 4
