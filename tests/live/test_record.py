"""Recording: what the log says is what a decoder does, and nothing that was complete is ever lost."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import run_builders as runs

torch = pytest.importorskip("torch")
tiny = pytest.importorskip("tiny")

import slow_decode  # noqa: E402

from castsim.base.errors import PromptError, RunLogError  # noqa: E402
from castsim.cli import app as cli  # noqa: E402
from castsim.live.models.chat import load_chat  # noqa: E402
from castsim.live.models.sampling import Sampling  # noqa: E402
from castsim.live.record import Recorder, RecordOptions, record  # noqa: E402
from castsim.runs.prompts import Conversation  # noqa: E402
from castsim.runs.reading import open_run  # noqa: E402
from castsim.runs.writing import RunWriter  # noqa: E402
from castsim.scoring.policies import Choice  # noqa: E402
from castsim.scoring.tally import Plan, score  # noqa: E402
from replay.policies.chain import Chain  # noqa: E402
from replay.policies.topn import TopN  # noqa: E402

TEXTS = ["one", "two words", "1 2 3", "def f(x):"]


def asked(texts=TEXTS):
    return [Conversation(i, f"p{i}", "ab"[i % 2], (text,), f"line {i}") for i, text in enumerate(texts)]


@pytest.fixture(params=["dflash", "dart"])
def recorder(request, pairs):
    chat = load_chat(str(pairs[request.param][0]), raw=True, thinking=False)
    return Recorder(tiny.loaded(pairs[request.param]), chat, RecordOptions(new_tokens=24, rank_kept=8, batch=3))


@pytest.fixture
def dflash(pairs):
    chat = load_chat(str(pairs["dflash"][0]), raw=True, thinking=False)
    return Recorder(tiny.loaded(pairs["dflash"]), chat, RecordOptions(new_tokens=24, rank_kept=8, batch=3))


def columns(folder, *names):
    return pl.concat(pl.read_parquet(f) for f in sorted(folder.glob("rounds-*.parquet"))).select(*names)


def same_run(one, other):
    """The files of two runs hold the same rows."""
    for kind in ("sequences", "rounds"):
        frames = [
            pl.concat(pl.read_parquet(f) for f in sorted(folder.glob(f"{kind}-*.parquet"))) for folder in (one, other)
        ]
        by = ["prompt"] if kind == "sequences" else ["prompt", "position"]
        assert frames[0].sort(by).equals(frames[1].sort(by))


def test_a_walked_chain_is_the_chain_that_a_decoder_lives_through(recorder, tmp_path):
    """The log proves itself: output, number of rounds, and every round's length."""
    assert record(recorder, asked(), tmp_path / "run").whole
    run = open_run(tmp_path / "run")
    tally = score(run, Plan((Choice(Chain),), (recorder.drafter.depth_max,), "walked"), None)
    for row in run.sequences().iter_rows(named=True):
        output, committed = slow_decode.chain_rounds(recorder.drafter, row["prompt_tokens"], 24, recorder.eos_ids)
        assert row["output_tokens"] == output
        assert tally.committed[row["prompt"], 0] == sum(committed) == len(output) - 1
        assert tally.rounds[row["prompt"], 0] == len(committed)


def test_the_logged_chain_is_the_replayed_one_on_every_uncensored_row(recorder, tmp_path):
    record(recorder, asked(), tmp_path / "run")
    (rounds,) = open_run(tmp_path / "run").rounds()
    top = rounds.marginals.token[:, :, 0] == rounds.continuation
    accepted = np.cumprod(top, axis=1).sum(axis=1)
    logged = columns(tmp_path / "run", "chain_accepted").to_series().to_numpy()
    assert np.array_equal(logged[~rounds.censored], accepted[~rounds.censored])


def test_true_ranks_place_the_true_tokens_among_the_candidates(recorder, tmp_path):
    record(recorder, asked(), tmp_path / "run")
    (rounds,) = open_run(tmp_path / "run").rounds()
    frame = columns(tmp_path / "run", "true_rank", "true_logq", "damaged", "disagreed")
    rank, logq = frame["true_rank"].to_numpy(), frame["true_logq"].to_numpy()
    kept = rounds.marginals.token == rounds.continuation[:, :, None]
    assert np.array_equal(
        np.where(kept.any(axis=2), kept.argmax(axis=2) + 1, 0), np.where(rank <= 8, np.maximum(rank, 0), 0)
    )
    assert np.allclose(rounds.marginals.logq[kept], logq[kept.any(axis=2)])
    assert not frame["damaged"].any() and not frame["disagreed"].any()


def test_batches_do_not_matter(dflash, tmp_path):
    for batch in (1, 4):
        record(replace(dflash, options=replace(dflash.options, batch=batch)), asked(), tmp_path / f"{batch}")
    pair = [open_run(tmp_path / name).sequences() for name in ("1", "4")]
    assert pair[0].equals(pair[1])


def test_a_later_turn_sees_the_answer_to_the_earlier_one(dflash, tmp_path):
    talk = [Conversation(0, "a", "d", ("one", "two"), ""), Conversation(2, "b", "d", ("three",), "")]
    record(dflash, talk, tmp_path / "run")
    rows = open_run(tmp_path / "run").sequences().sort("prompt")
    assert rows["prompt_id"].to_list() == ["a", "a#2", "b"] and rows["prompt"].to_list() == [0, 1, 2]
    said = dflash.chat.said(rows["output_tokens"][0])
    assert rows["prompt_tokens"][1].to_list() == dflash.chat.tokenizer.encode(f"one\n{said}\ntwo")


def test_a_sparse_log_holds_the_rounds_of_its_policy_only(dflash, tmp_path):
    record(dflash, asked(), tmp_path / "dense")
    for name, policy in (("chain", Chain(4)), ("topN", TopN(6))):
        sparse = replace(dflash, options=replace(dflash.options, sparse=policy))
        record(sparse, asked(), tmp_path / name)
        run = open_run(tmp_path / name)
        walked = score(
            open_run(tmp_path / "dense"),
            Plan((Choice(type(policy)),), (policy.budget,), "walked"),
            None,
        )
        assert run.facts.layout == "sparse" and name in run.facts.logged_by
        assert run.manifest.rounds == walked.rounds[:, -1].sum()
        list(run.rounds())


def test_a_sampled_run_says_so_and_repeats_itself(dflash, tmp_path):
    warm = replace(dflash, options=replace(dflash.options, sampling=Sampling(1.0, 20, 0.95), seed=4))
    for name in ("a", "b"):
        record(warm, asked(), tmp_path / name)
    same_run(tmp_path / "a", tmp_path / "b")
    facts = open_run(tmp_path / "a").facts
    assert (facts.temperature, facts.top_k, facts.top_p, facts.seed) == (1.0, 20, 0.95, 4)
    assert "disagreed" not in pl.read_parquet_schema(tmp_path / "a" / "rounds-00000.parquet")


def test_shards_of_several_processes_form_one_run(dflash, tmp_path):
    record(dflash, asked(), tmp_path / "alone")
    assert not record(dflash, asked(), tmp_path / "shared", (2, 3)).whole
    assert not record(dflash, asked(), tmp_path / "shared", (1, 3)).whole
    assert record(dflash, asked(), tmp_path / "shared", (1, 3)) == (False, 0)  # a finished shard may be repeated
    with pytest.raises(RunLogError, match="repeat --shard as it was"):
        record(dflash, asked(), tmp_path / "shared", (1, 2))
    assert record(dflash, asked(), tmp_path / "shared", (3, 3)).whole
    same_run(tmp_path / "alone", tmp_path / "shared")
    assert sorted(f.name for f in (tmp_path / "shared").iterdir()) == [
        "manifest.json", "rounds-00000.parquet", "sequences-00000.parquet"
    ]  # fmt: skip
    assert sorted(f.name for f in tmp_path.iterdir()) == ["alone", "shared"]
    assert open_run(tmp_path / "shared").manifest.digest == open_run(tmp_path / "alone").manifest.digest
    with pytest.raises(RunLogError, match="exists already"):
        record(dflash, asked(), tmp_path / "shared", (3, 3))


def test_more_shards_than_prompts(dflash, tmp_path):
    for i in (1, 2, 3):
        record(dflash, asked(TEXTS[:2]), tmp_path / "run", (i, 3))
    assert open_run(tmp_path / "run").manifest.prompts == 2


def test_an_interrupted_recording_goes_on_where_it_was(dflash, tmp_path, monkeypatch):
    small, calls = replace(dflash, options=replace(dflash.options, batch=1)), []
    whole = Recorder.batch

    def failing(self, batch):
        calls.append(batch[0].prompt_id)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(self, batch)

    monkeypatch.setattr(Recorder, "batch", failing)
    with pytest.raises(KeyboardInterrupt):
        record(small, asked(), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    record(small, asked(), tmp_path / "run")
    assert calls == ["p0", "p1", "p2", "p2", "p3"]
    record(small, asked(), tmp_path / "at-once")
    same_run(tmp_path / "run", tmp_path / "at-once")


def test_a_recording_goes_on_only_with_the_same_settings(dflash, tmp_path, monkeypatch):
    def stopped(self, batch):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Recorder, "batch", stopped)
        record(dflash, asked(), tmp_path / "run")
    with pytest.raises(RunLogError, match="was begun with other settings"):
        record(replace(dflash, options=replace(dflash.options, seed=9)), asked(), tmp_path / "run")
    with pytest.raises(RunLogError, match="was begun with other settings"):
        record(dflash, asked([*TEXTS[:3], "another question"]), tmp_path / "run")


def test_shards_that_do_not_belong_together_are_not_joined(dflash, tmp_path):
    warm = replace(dflash, options=replace(dflash.options, seed=9))
    record(warm, asked(), tmp_path / "run", (1, 2))
    with pytest.raises(RunLogError, match="001-of-002: was recorded with other settings"):
        record(dflash, asked(), tmp_path / "run", (2, 2))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["_in_order", "_notes", "whole_run"])
def test_a_join_that_fails_is_done_again(dflash, tmp_path, monkeypatch, name):
    from castsim.runs import parts as runparts

    def failing(*args, **more):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(runparts, name, failing)
        record(dflash, asked(), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert record(dflash, asked(), tmp_path / "run") == (True, 0)
    assert [f.name for f in tmp_path.iterdir()] == ["run"]


def test_a_folder_with_something_in_it_is_left_alone(dflash, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "sequences-00000.parquet").write_text("mine")
    with pytest.raises(RunLogError, match="exists already"):
        record(dflash, asked(), tmp_path / "run")
    assert (tmp_path / "run" / "sequences-00000.parquet").read_text() == "mine"


def test_a_later_turn_that_does_not_fit_ends_its_conversation(dflash, tmp_path):
    talk = [Conversation(0, "a", "d", ("one", "x" * 90, "three"), "line 1"), Conversation(3, "b", "d", ("four",), "")]
    record(dflash, talk, tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert run.sequences()["prompt_id"].to_list() == ["a", "b"]
    assert run.facts.notes[0].startswith("2 later turns of conversations did not fit")


def test_damaged_shards_of_a_broken_recording_are_recorded_again(dflash, tmp_path, monkeypatch):
    small, whole = replace(dflash, options=replace(dflash.options, batch=1)), Recorder.batch

    def third_fails(self, batch):
        if batch[0].number == 2:
            raise KeyboardInterrupt
        return whole(self, batch)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Recorder, "batch", third_fails)
        record(small, asked(), tmp_path / "run")
    (tmp_path / "run.parts" / "001-of-001" / "sequences-00001.parquet").write_bytes(b"")
    record(small, asked(), tmp_path / "run")
    record(small, asked(), tmp_path / "at-once")
    same_run(tmp_path / "run", tmp_path / "at-once")


def test_a_second_writer_is_refused(dflash, tmp_path):
    from castsim.runs.parts import part_folder

    with (
        RunWriter(part_folder(tmp_path / "run", (1, 1)), dflash.facts(asked(), None)),
        pytest.raises(RunLogError, match="is being written by another process"),
    ):
        record(dflash, asked(), tmp_path / "run")


def test_twenty_kills_lose_double_or_halve_no_prompt(pairs, tmp_path):
    """Scenario 33."""
    script = Path(__file__).with_name("kill_recorder.py")
    command = [sys.executable, script, *map(str, pairs["dflash"]), str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500)
    assert done.stdout.split() == ["20"], done.stderr
    same_run(tmp_path / "killed", tmp_path / "whole")
    run = open_run(tmp_path / "killed")
    assert run.manifest.prompts == 14
    list(run.rounds())


def test_a_full_disk_is_reported_and_keeps_what_is_whole(dflash, tmp_path, monkeypatch):
    small, written = replace(dflash, options=replace(dflash.options, batch=1)), []
    real = pl.DataFrame.write_parquet

    def full(frame, file, **options):
        written.append(file)
        if len(written) == 6:  # the second file of the third prompt
            Path(file).write_bytes(b"PAR1 torn")
            raise OSError(28, "No space left on device")
        return real(frame, file, **options)

    with monkeypatch.context() as patch, pytest.raises(RunLogError, match=r"No space left.*2 prompts are whole"):
        patch.setattr(pl.DataFrame, "write_parquet", full)
        record(small, asked(), tmp_path / "run")
    record(small, asked(), tmp_path / "run")
    record(small, asked(), tmp_path / "at-once")
    same_run(tmp_path / "run", tmp_path / "at-once")


def test_a_file_that_may_grow_no_more_is_reported_by_the_command(pairs, tmp_path):
    """The real thing: the system refuses to write on."""
    import resource

    command = [sys.executable, "-m", "castsim", *arguments(pairs, tmp_path)]

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, timeout=300)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "cannot be written" in done.stderr


def test_nan_rows_are_counted_and_marked(dflash, tmp_path, monkeypatch):
    kind = type(dflash.drafter)
    real = kind.logits

    def broken(self, context, tokens, anchor):
        logits = real(self, context, tokens, anchor).clone()
        logits[0, 1] = torch.nan
        return logits

    monkeypatch.setattr(kind, "logits", broken)
    record(dflash, asked(TEXTS[:1]), tmp_path / "run")
    run = open_run(tmp_path / "run")
    assert columns(tmp_path / "run", "damaged").to_series().to_list()[:3] == [False, True, False]
    assert "1 positions are damaged" in run.facts.notes[0]
    (rounds,) = run.rounds()
    assert (rounds.marginals.logq[1] == -np.inf).all()


@pytest.mark.parametrize("length, fits", [(94, True), (95, True), (96, False), (97, False)])
def test_the_end_of_the_context(dflash, tmp_path, length, fits):
    """Scenario 42: both models take 96 tokens; the answer ends there, and a prompt without room is refused first."""
    talk = asked(["x" * length])
    if not fits:
        with pytest.raises(PromptError, match=f"line 0: is {length} tokens long, the models take 96"):
            record(dflash, talk, tmp_path / "run")
        assert not (tmp_path / "run").exists()
        return
    record(dflash, talk, tmp_path / "run")
    assert open_run(tmp_path / "run").sequences()["output_tokens"].list.len().to_list()[0] <= 96 - length


def arguments(pairs, folder, *more):
    prompts = folder / "prompts.jsonl"
    if not prompts.exists():
        prompts.write_text("".join(json.dumps({"prompt": t, "id": f"x{i}"}) + "\n" for i, t in enumerate(TEXTS)))
    target, head = pairs["dflash"]
    given = ["--target", target, "--drafter", head, "--prompts", prompts, "--out", folder / "run", "--raw"]
    return ["record", *runs.instead([*given, "--max-new-tokens", 12], more)]


def run_cli(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["castsim", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return stop.value.code


def test_the_command_records_what_replay_reads(pairs, tmp_path, monkeypatch, capsys):
    assert not run_cli(monkeypatch, *arguments(pairs, tmp_path, "--json", "-", "--target-logp", "--rank-kept", 4))
    document = json.loads(capsys.readouterr().out)
    assert document["whole"] and document["run"]["prompts"] == 4 and document["run"]["domains"] == ["prompts"]
    assert document["run"]["template"] == "raw" and document["run"]["versions"]["torch"]
    assert columns(tmp_path / "run", "target_logp").to_series().dtype == pl.Array(pl.Float32, (4, 4))
    assert not run_cli(monkeypatch, "replay", tmp_path / "run")
    assert "topN" in capsys.readouterr().out


def test_torchrun_names_the_shard(pairs, tmp_path, monkeypatch, capsys):
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        assert not run_cli(monkeypatch, *arguments(pairs, tmp_path))
    assert "Shard 1 of 2 is recorded; still to come: 2." in capsys.readouterr().out
    assert open_run(tmp_path / "run").manifest.prompts == 4


@pytest.mark.parametrize(
    "more, said",
    [
        (["--target", "no/such-target"], "no/such-target: is no folder here and cannot be had from the hub"),
        (["--drafter", "no/such-head"], "no/such-head: is no folder here and cannot be had from the hub"),
        (["--drafter", "nothing-here"], "nothing-here: is no folder"),
        (["--prompts", "nothing.jsonl"], "nothing.jsonl: is no file"),
        (["--device", "cuda:99"], "--device cuda:99"),
        (["--device", "abacus"], "--device abacus"),
        (["--dtype", "int8"], "--dtype int8"),
        (["--shard", "3/2"], "--shard 3/2"),
        (["--sparse", "oak"], "oak"),
        (["--sparse", "topN", "--budget", "100000"], "--budget 100000"),
        (["--licence", "a\nb"], "licence: "),
        (["--sparse", "sequoia"], "--sparse sequoia: is measured on a finished run"),
        (["--sparse", "chain,topN"], "--sparse chain,topN: give one policy"),
        (["--temperature", "-1"], "temperature -1"),
        (["--rank-kept", "400"], "--rank-kept 400"),
    ],
)
def test_bad_options_are_one_line(pairs, tmp_path, monkeypatch, capsys, more, said):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert run_cli(monkeypatch, *arguments(pairs, tmp_path, *more)) == 2
    out, err = capsys.readouterr()
    assert said in err and err.count("\n") == 1 and not out
    assert not (tmp_path / "run").exists() and not (tmp_path / "run.parts").exists()


def test_a_head_of_another_target_is_one_line(pairs, tmp_path, monkeypatch, capsys):
    other = tiny.save_head(tmp_path / "wide", {**tiny.DFLASH, "hidden_size": 64})
    assert run_cli(monkeypatch, *arguments(pairs, tmp_path, "--drafter", other)) == 2
    assert "hidden_size is 64, the target's is 32; pair a drafter with its own target" in capsys.readouterr().err


def test_a_target_other_than_the_pair_needs_a_drafter(pairs, monkeypatch, capsys):
    assert run_cli(monkeypatch, "record", "--target", pairs["dflash"][0]) == 2
    assert "needs a --drafter" in capsys.readouterr().err
