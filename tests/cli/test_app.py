"""The command line: what it prints, what it writes, and how it refuses."""

import csv
import json
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
import run_builders as runs
from run_builders import document

from castsim.cli import app as cli
from castsim.runs.reading import open_run

KEYS = {
    "policy",
    "options",
    "budget",
    "domain",
    "mode",
    "rounds",
    "censored",
    "committed_pooled",
    "committed_per_prompt",
    "ci95",
    "acceptance_histogram",
}


@pytest.fixture
def small(tmp_path):
    return runs.write(tmp_path / "small", [runs.prompts([9, 5, 12, 2])])


def test_the_main_job_prints_every_domain_and_budget_beside_the_chain(castsim, sample):
    code, out, err = castsim("replay", "--policy", "topN")
    assert (code, err) == (0, "")
    for word in (
        *open_run(sample).manifest.domains,
        "all",
        "chain",
        "topN",
        "walked",
        "15",
        "31",
        "47",
        "63",
        "95",
        "127",
    ):
        assert word in out


def test_the_json_of_the_main_job(castsim, sample):
    found = document(castsim, "replay", "--policy", "topN")
    assert list(found)[:3] == ["verb", "version", "run"]
    assert found["verb"] == "replay"
    assert found["run"]["layout"] == "dense"
    run = open_run(sample)
    rows = found["results"]
    assert {r["domain"] for r in rows} == {*run.manifest.domains, "all"}
    top = [r for r in rows if r["policy"] == "topN"]
    assert len(top) == 6 * 5
    assert len(rows) == 7 * 5  # and the chain once a domain
    tokens = run.sequences()["output_tokens"].list.len().sum() - run.manifest.prompts
    for row in rows:
        assert set(row) >= KEYS
        assert row["mode"] == "walked"
        assert sum(row["acceptance_histogram"]) == row["rounds"]
        assert len(row["acceptance_histogram"]) == 16
        assert row["ci95"][0] <= row["committed_per_prompt"] <= row["ci95"][1]
    for row in (r for r in rows if r["domain"] == "all"):
        assert row["committed_pooled"] == pytest.approx(tokens / row["rounds"])  # every token is emitted once
    chain = next(r for r in rows if r["policy"] == "chain" and r["domain"] == "all")
    wide = next(r for r in top if r["budget"] == 127 and r["domain"] == "all")
    assert wide["gain_over_chain"] == pytest.approx(chain["rounds"] / wide["rounds"] - 1)
    assert wide["options"] == {"rank_cap": 8}


def test_walked_per_round_and_chain_rounds_differ_and_say_so(castsim):
    found = {
        m: document(castsim, "replay", "--budgets", "63", "--mode", m) for m in ("walked", "per-round", "chain-rounds")
    }
    last = {mode: found[mode]["results"][-1] for mode in found}
    assert [r["mode"] for r in last.values()] == ["walked", "per_round", "per_round"]
    assert [r["rounds_of"] for r in last.values()] == ["the policy itself", "every position", "the chain"]
    assert len({round(r["committed_pooled"], 3) for r in last.values()}) == 3
    assert last["chain-rounds"]["committed_pooled"] > last["walked"]["committed_pooled"]  # the bias that is warned of
    assert "no forecast" in " ".join(found["per-round"]["caveats"])
    assert "left out" in " ".join(found["chain-rounds"]["caveats"])
    assert "as in a decoder" in " ".join(found["walked"]["caveats"])


def test_all_policies_at_once_with_options(castsim, small):
    found = document(castsim, "replay", small, "--policy", "all", "--budgets", "2,5", "--set", "rank_cap=2")
    options = {r["policy"]: r["options"] for r in found["results"]}
    assert options["topN"] == options["spine"] == {"rank_cap": 2}
    assert options["sequoia"] == {}
    assert "measured on the other half of the chosen prompts" in " ".join(found["caveats"])
    assert options["schedule"] == {"branching": [8, 4, 2, 2, 1]}
    tuned = document(castsim, "replay", small, "--policy", "schedule", "--set", "branching=3,1")
    assert tuned["results"][-1]["options"] == {"branching": [3, 1]}


def test_observed_tree_sizes_not_budgets_are_reported(castsim, small):
    """Scenario 17: the universe of L = 3, K = 4 has 84 nodes."""
    rows = document(castsim, "replay", small, "--budgets", "9,127")["results"]
    assert {(r["policy"], r["budget"]): r["nodes"] for r in rows} == {
        ("chain", 3): 3,
        ("topN", 9): 9,
        ("topN", 127): 84,
    }


def test_a_walked_replay_equals_a_walk_by_hand(castsim, tmp_path):
    """One prompt, walked with the oracle's heap and a plain loop; no interval, since there is one prompt."""
    import oracle

    sequences, rounds = runs.prompts([30])
    folder = runs.write(tmp_path / "one", [(sequences, rounds)])
    row = document(castsim, "replay", folder, "--budgets", "6")["results"][-1]
    entry = oracle.entry_budgets(rounds.marginals.token, rounds.marginals.logq, rounds.continuation, rounds.known, 6)
    emitted = np.minimum((entry <= 6).sum(axis=1) + 1, rounds.remaining)
    played = oracle.walk(emitted.tolist(), len(rounds))
    assert row["rounds"] == len(played)
    assert row["censored"] == sum(rounds.known[r] < runs.DEPTH for r in played)
    assert row["committed_pooled"] == row["committed_per_prompt"] == pytest.approx(29 / len(played))
    assert row["ci95"] is row["gain_over_chain_ci95"] is None


def test_scenario_1_no_rounds_is_not_a_number_and_no_crash(castsim, tmp_path):
    """Per round, every round of a run of short outputs is censored: R is null in JSON, n/a in print."""
    folder = runs.write(tmp_path / "short", [runs.prompts([3, 2])])
    rows = document(castsim, "replay", folder, "--mode", "per-round", "--budgets", "4")["results"]
    assert {r["committed_pooled"] for r in rows} == {r["committed_per_prompt"] for r in rows} == {None}
    assert [r["censored"] for r in rows if r["domain"] == "all"] == [3, 3]
    code, out, _ = castsim("replay", folder, "--mode", "per-round")
    assert code == 0
    assert "n/a" in out
    assert "nan" not in out.lower()


def test_a_prompt_that_ends_with_its_prefill_token_has_no_rounds(castsim, tmp_path):
    folder = runs.write(tmp_path / "run", [runs.prompts([1, 9])])
    row = document(castsim, "replay", folder, "--budgets", "4")["results"][-1]
    assert row["prompts"] == 1


def test_jobs_shards_and_seeds_do_not_change_results(castsim, tmp_path):
    folder = runs.write(tmp_path / "run", [runs.prompts([9, 5], first=i, seed=i) for i in range(0, 8, 2)])
    one, two = (document(castsim, "replay", folder, "--budgets", "5", "--jobs", j) for j in (1, 2))
    assert one["results"] == two["results"]
    other = document(castsim, "replay", folder, "--budgets", "5", "--seed", "1")["results"][-1]
    assert other["committed_pooled"] == one["results"][-1]["committed_pooled"]
    assert other["ci95"] != one["results"][-1]["ci95"]


def test_an_error_in_a_worker_is_one_line_too(castsim, tmp_path):
    folder = runs.write(tmp_path / "run", [runs.prompts([9, 5], first=i, seed=i) for i in range(0, 8, 2)])
    (folder / "rounds-00002.parquet").write_bytes(b"")
    code, out, err = castsim("replay", folder, "--jobs", "2")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "rounds-00002.parquet: does not have the digest" in err


def test_files_hold_what_is_printed(castsim, small, tmp_path):
    code, out, _ = castsim(
        "replay", small, "--budgets", "5", "--json", tmp_path / "r.json", "--csv", tmp_path / "r.csv"
    )
    assert code == 0
    assert "chain" in out
    rows = json.loads((tmp_path / "r.json").read_text())["results"]
    lines = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert [float(line["committed_pooled"]) for line in lines] == pytest.approx([r["committed_pooled"] for r in rows])
    assert float(lines[-1]["ci95_low"]) == pytest.approx(rows[-1]["ci95"][0])
    assert json.loads(lines[-1]["acceptance_histogram"]) == rows[-1]["acceptance_histogram"]
    assert not list(tmp_path.glob("*.part"))


def test_domains_are_chosen_by_name(castsim, small):
    rows = document(castsim, "replay", small, "--domain", "b", "--budgets", "5")["results"]
    assert {r["domain"] for r in rows} == {"b", "all"}


def test_one_domain_is_printed_once_and_is_all_with_its_intervals(castsim, tmp_path):
    sequences, rounds = runs.prompts([9, 5, 12, 2])
    named = sequences.with_columns(domain=pl.lit("b"))
    folder = runs.write(tmp_path / "one", [(named, rounds)])
    _, out, _ = castsim("replay", folder, "--budgets", "5")
    assert [line.split()[0] for line in out.splitlines() if line.startswith(("topN", "chain"))] == ["chain", "topN"]
    assert "all  (4 prompts of b, walked" in out
    rows = document(castsim, "replay", folder, "--budgets", "5")["results"]
    of_b, of_all = ([{**r, "domain": ""} for r in rows if r["domain"] == name] for name in ("b", "all"))
    assert len(rows) == 4 and of_b == of_all
    _, out, _ = castsim("calibrate", folder)
    assert sum(line.startswith(("b ", "all ")) for line in out.splitlines()) == 4  # of two tables, and of two budgets


def test_a_sparse_log_is_scored_per_round_and_no_other_way(castsim, tmp_path):
    sequences, rounds = runs.prompts([9, 5])
    folder = runs.write(
        tmp_path / "run",
        [(sequences, rounds.take(rounds.position % 2 == 0))],
        runs.facts(layout="sparse", logged_by="chain", normaliser="kept_ranks"),
    )
    found = document(castsim, "replay", folder, "--budgets", "5")
    assert found["results"][-1]["mode"] == "per_round"
    assert found["results"][-1]["rounds_of"] == "the chain"
    assert "not over the full vocabulary" in " ".join(found["caveats"])
    code, out, err = castsim("replay", folder, "--mode", "walked")
    assert (code, out) == (2, "")
    assert "sparse" in err


def test_calibrate_prints_draws_and_writes(castsim, tmp_path):
    code, out, _ = castsim("calibrate", "--plot", tmp_path / "c.png", "--json", tmp_path / "c.json")
    assert code == 0
    for word in ("rejection", "calibration error", "sorted mass", "Rank cap 8 against all 16"):
        assert word in out
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    found = json.loads((tmp_path / "c.json").read_text())
    for domain in found["domains"].values():
        shares = [*domain["first_rejection_share_by_rank"], domain["first_rejection_share_beyond_kept"]]
        assert sum(shares) == pytest.approx(1)
        assert domain["mean_sorted_mass"] == sorted(domain["mean_sorted_mass"], reverse=True)
    whole = found["domains"]["all"]
    assert whole["first_rejections"] == sum(d["first_rejections"] for n, d in found["domains"].items() if n != "all")
    assert {(r["domain"], r["budget"]) for r in found["rank_cap_loss"]} >= {("all", 32), ("all", 63)}


def test_calibrate_looks_at_the_rounds_that_the_chain_plays(castsim):
    chain = document(castsim, "replay", "--policy", "chain", "--budgets", "15")["results"][-1]
    whole = document(castsim, "calibrate")["domains"]["all"]
    assert whole["rounds"] == chain["rounds"]


def test_calibrate_works_on_small_ranks_and_short_runs(castsim, small):
    code, out, _ = castsim("calibrate", small, "--rank-cap", "99")
    assert code == 0
    assert "nan" not in out.lower()


def test_calibrate_of_one_domain(castsim):
    whole, one = (
        document(castsim, "calibrate")["domains"],
        document(castsim, "calibrate", "--domain", "mbpp")["domains"],
    )
    assert set(one) == {"mbpp", "all"}
    assert one["all"] == one["mbpp"] == whole["mbpp"]


def test_a_table_keeps_its_digits_in_a_narrow_terminal(castsim, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    _, out, _ = castsim("replay", "--budgets", "63", "--policy", "topN", "--set", "rank_cap=4")
    row = next(line for line in out.splitlines() if line.startswith("topN rank_cap=4"))
    assert "%, +" in row
    assert "…" not in out


def test_bare_castsim_is_help(castsim):
    code, out, err = castsim()
    assert (code, err) == (0, "")
    assert "replay" in out


def test_policies_lists_every_policy_with_its_options(castsim):
    found = document(castsim, "policies")["policies"]
    assert {p["policy"] for p in found} >= {"topN", "sequoia"}
    assert all(p["what"] for p in found)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", "no/such/run"], "is not a folder"),
        (["replay", "--policy", "topn"], "did you mean topN?"),
        (["replay", "--policy", "topN,"], "no such policy"),
        (["replay", "--set", "rank_cup=3"], "did you mean rank_cap?"),
        (["replay", "--set", "rank_cap"], "key=value"),
        (["replay", "--set", "rank_cap=many"], "valid integer"),
        (["replay", "--set", "rank_cap=0"], "rank_cap must be at least 1"),
        (["replay", "--policy", "schedule", "--set", "branching=2,x"], "valid integer"),
        (["replay", "--policy", "binary", "--set", "rank_cap=3"], "no such option"),
        (["replay", "--budgets", "0"], "at least 1"),
        (["replay", "--budgets", "15,-3"], "at least 1"),
        (["replay", "--budgets", "15,many"], "whole numbers"),
        (["replay", "--budgets", ""], "whole numbers"),
        (["replay", "--mode", ""], "there are walked"),
        (["replay", "--policy", "top\nN"], "no such policy"),
        (["replay", "no\nrun"], "is not a folder"),
        (["replay", "--budgets", "5", "--csv", "-"], "names no file"),
        (["replay", "x" * 300], "name"),
        (["replay", "--budgets", "5", "--json", "x" * 300], "name another"),
        (["replay", "--mode", "fast"], "there are walked, per-round, chain-rounds"),
        (["replay", "--domain", "poetry"], "no such domain"),
        (["replay", "--jobs", "0"], "--jobs"),
        (["replay", "--seed", "-1"], "--seed"),
        (["replay", "--budgets", "5", "--json", "no/such/folder/x.json"], "cannot be written"),
        (["replay", "--budgets", "5", "--csv", "no/such/folder/x.csv"], "cannot be written"),
        (["replay", "--nonsense"], "No such option"),
        (["replay", "--budgets", "99999999999"], "at most 65536"),
        (["replay", "--policy", "eagle2", "--set", "frontier=9999999"], "at most 65536"),
        (["replay", "--policy", "sequoia", "--set", "table=1"], "no such option"),
        (["replay", "--budgets", "5", "--json", "."], "names no file"),
        (["replay", "--budgets", "5", "--json", ""], "names no file"),
        (["replay", "--budgets", "5", "--csv", "."], "names no file"),
        (["replay", "--budgets", "5", "--csv", ""], "names no file"),
        (["calibrate", "--plot", "no/such/folder/x.png"], "cannot be written"),
        (["import", __file__, "--out", f"{__file__}/run"], "no known layout"),
        (["calibrate", "--plot", "x.gif"], "name a .png"),
        (["calibrate", "--rank-cap", "0"], "--rank-cap"),
        (["import", "x.npz"], "Missing option"),
        (["import", "x.npz", "--out", "y"], "is not a file"),
        (["import", "x.npz", "--out", "y", "--fact", "colour=red"], "--fact colour=red"),
        (["nonsense"], "No such command"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(castsim, arguments, words):
    code, out, err = castsim(*arguments)
    assert code == 2
    assert err.count("\n") == 1
    assert err.startswith("castsim: ")
    assert words in err
    assert "Traceback" not in out + err


def test_a_link_is_written_through_and_a_pipe_stays_one(castsim, tmp_path):
    import os

    (tmp_path / "real.json").touch()
    (tmp_path / "link.json").symlink_to("real.json")
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE) as reader:
        assert castsim("policies", "--json", tmp_path / "pipe")[0] == 0
        assert json.loads(reader.stdout.read())["verb"] == "policies"
    assert castsim("policies", "--json", tmp_path / "link.json")[0] == 0
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text())["verb"] == "policies"


def test_a_reader_that_goes_away_is_not_complained_about():
    command = f"{sys.executable} -m castsim policies --json - | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_full_disk_is_one_line():
    command = f"{sys.executable} -m castsim policies --json - > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_is_printed_or_written_where_one_target_is_bad(castsim, tmp_path):
    code, out, _ = castsim(
        "replay", "--budgets", "5", "--json", tmp_path / "x.json", "--csv", tmp_path / "no" / "x.csv"
    )
    assert (code, out) == (2, "")
    assert list(tmp_path.iterdir()) == []


def test_sequoia_needs_two_prompts(castsim, tmp_path):
    folder = runs.write(tmp_path / "one", [runs.prompts([9])])
    code, _, err = castsim("replay", folder, "--policy", "sequoia")
    assert code == 2
    assert "other prompts" in err


def commands():
    return [c.name or c.callback.__name__ for c in cli.build().registered_commands]


@pytest.mark.parametrize("verb", commands())
def test_every_verb_has_help_with_an_example_and_stands_in_the_readme(castsim, verb):
    code, out, _ = castsim(verb, "--help")
    assert code == 0
    assert f"castsim {verb}" in out
    assert f"castsim {verb}" in (runs.Path(__file__).parents[2] / "README.md").read_text()


def test_the_help_of_replay_lists_the_policies(castsim):
    _, out, _ = castsim("replay", "--help")
    assert "sequoia" in out


def test_torch_is_not_loaded_by_the_main_job_or_by_help():
    code = (
        "import sys; from castsim.cli import app; app.build(); "
        "sys.exit(bool({'torch', 'matplotlib'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_version_is_that_of_the_package(castsim):
    assert castsim("--version")[1].startswith("castsim 0.")
