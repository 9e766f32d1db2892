"""Run folders: what is written is what is read, and nothing unsound is read."""

import hashlib
import json
import shutil

import numpy as np
import polars as pl
import pytest
import run_builders as runs

from castsim.base.errors import RunLogError
from castsim.runs.manifest import NAME, Manifest, read_manifest, write_manifest
from castsim.runs.reading import open_run
from castsim.runs.writing import RunWriter, prompt_shards, rounds_frame, whole_run

ROUNDS, SEQUENCES = "rounds-00000.parquet", "sequences-00000.parquet"
FIELDS = ("continuation", "known", "prompt", "position", "remaining")


@pytest.fixture
def folder(tmp_path):
    return runs.write(tmp_path / "run", [runs.prompts([9, 5, 12, 2])])


def read(folder):
    return list(open_run(folder).rounds())


def test_a_run_reads_back_field_by_field(folder):
    _, expected = runs.prompts([9, 5, 12, 2])
    (found,) = read(folder)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    np.testing.assert_array_equal(found.marginals.token, expected.marginals.token)
    np.testing.assert_array_equal(found.marginals.logq, expected.marginals.logq)


def test_shards_and_row_groups_do_not_matter(tmp_path):
    lengths = [9, 5, 12, 2]
    one = runs.write(tmp_path / "one", [runs.prompts(lengths)])
    alone = [runs.prompts([n], seed=i, first=i) for i, n in enumerate(lengths)]
    many = runs.write(tmp_path / "many", alone)
    assert [len(rounds) for rounds in read(many)] == [8, 4, 11, 1]
    assert open_run(many).manifest.rounds == open_run(one).manifest.rounds == 24
    runs.alter(one, ROUNDS)  # now in row groups of 8
    assert len(read(one)[0]) == 24


def test_prompts_are_chosen_lazily_and_alone(tmp_path):
    folder = runs.write(tmp_path / "run", [runs.prompts([9, 5]), runs.prompts([4, 6], first=2)])
    found = list(open_run(folder).rounds([1, 3]))
    assert [sorted(set(r.prompt.tolist())) for r in found] == [[1], [3]]
    assert [len(r) for r in found] == [4, 5]


@pytest.mark.parametrize("kind", [pl.UInt32, pl.Int64, pl.Int32])
def test_scenario_31_any_integer_type_is_written_as_int32(tmp_path, kind):
    sequences, rounds = runs.prompts([7])
    frame = rounds_frame(rounds, sequences).with_columns(pl.col("prompt", "position", "root").cast(kind))
    with RunWriter(tmp_path / "run", runs.facts()) as writer:
        writer.add(sequences, frame)
    assert read(tmp_path / "run")[0].position.tolist() == list(range(6))


@pytest.mark.parametrize("kind", [pl.UInt32, pl.Int64, pl.UInt16])
def test_scenario_31_any_integer_type_reads_alike(folder, kind):
    (expected,) = read(folder)
    shape = (runs.DEPTH, runs.RANK)
    runs.alter(
        folder, ROUNDS, pl.col("prompt", "position", "root").cast(kind), pl.col("token").cast(pl.Array(kind, shape))
    )
    runs.alter(folder, SEQUENCES, pl.col("prompt").cast(kind), pl.col("output_tokens").cast(pl.List(kind)))
    (found,) = read(folder)
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    np.testing.assert_array_equal(found.marginals.token, expected.marginals.token)


def test_scenario_1_an_output_that_goes_on_behind_its_end_is_refused(tmp_path):
    sequences, rounds = runs.prompts([9])
    end = sequences["output_tokens"][0][4]
    folder = runs.write(tmp_path / "run", [(sequences, rounds)], runs.facts(eos_ids=(end,)))
    with pytest.raises(RunLogError, match="goes on behind an end of sequence"):
        read(folder)


def deeper(value):
    """A column of marginals with one changed number in row 10: position 1, last rank."""

    def change(frame, name):
        array = frame[name].to_numpy().copy()
        array[10, 1, -1] = value(array[10, 1]) if callable(value) else value
        return pl.Series(name, array, dtype=frame.schema[name])

    return change


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("logq", np.nan, "a log-probability is NaN"),
        ("logq", 0.5, "a log-probability is positive"),
        ("logq", 0.0, "not sorted"),
        ("token", -7, "negative"),
        ("token", runs.VOCAB, "outside the vocabulary"),
        ("token", lambda row: row[0], "the same candidate twice"),
    ],
)
def test_a_bad_marginal_is_named_by_file_row_group_and_row(folder, column, value, words):
    frame = pl.read_parquet(folder / ROUNDS)
    runs.alter(folder, ROUNDS, deeper(value)(frame, column))
    with pytest.raises(RunLogError, match=words) as caught:
        read(folder)
    assert (caught.value.file.name, caught.value.row_group, caught.value.row) == (ROUNDS, 1, 10)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (ROUNDS, pl.col("position") + 1, "position is not followed by a token"),
        (ROUNDS, pl.col("position").reverse().over("prompt"), "root is not the output's token"),
        (ROUNDS, pl.col("position") - 1, "position is not followed by a token"),
        (ROUNDS, pl.col("position") * 0, "another row has its prompt and position"),
        (ROUNDS, pl.col("context") + 1, "context is not the prompt's length"),
        (ROUNDS, pl.col("root") + 1, "root is not the output's token"),
        (ROUNDS, pl.col("prompt") + 9, "its prompt is not among the sequences"),
        (ROUNDS, pl.lit(None, pl.Int32).alias("position"), "position is missing"),
        (ROUNDS, pl.col("position").cast(pl.String), "column position is String, not Int32"),
        (ROUNDS, pl.col("token").cast(pl.Array(pl.Float32, (3, 4))), "column token is"),
        (ROUNDS, pl.col("logq").cast(pl.Array(pl.Int32, (3, 4))), "column logq is"),
        (SEQUENCES, pl.lit("maybe").alias("finish"), "finish is none of"),
        (SEQUENCES, pl.col("output_tokens").list.head(0), "the output has no token"),
        (SEQUENCES, pl.lit(None, pl.String).alias("domain"), "domain is missing"),
        (SEQUENCES, (pl.col("output_tokens") * 0) - 5, "an output's token id is not in 0..49"),
        (SEQUENCES, (pl.col("prompt_tokens") * 0) + 50, "a prompt's token id is not in 0..49"),
        (SEQUENCES, pl.col("prompt_tokens").list.eval(pl.element().replace(2, None)), "a prompt token is missing"),
        (SEQUENCES, pl.lit("all").alias("domain"), "a domain cannot be named all"),
        (SEQUENCES, pl.lit(0, pl.Int32).alias("prompt"), "two sequences have its prompt number"),
    ],
)
def test_a_bad_column_is_named(folder, name, change, words):
    runs.alter(folder, name, change)
    with pytest.raises(RunLogError, match=words) as caught:
        read(folder)
    assert caught.value.file.name == name


def test_a_dense_log_with_a_missing_row_is_no_dense_log(folder):
    frame = pl.read_parquet(folder / ROUNDS)
    pl.concat([frame[:3], frame[4:]]).write_parquet(folder / ROUNDS)
    runs.reseal(folder, rounds=23)
    with pytest.raises(RunLogError, match="none of prompt 0, position 3; record"):
        read(folder)


@pytest.mark.parametrize(("name", "value"), [("depth_max", 4), ("rank_kept", 5), ("depth_max", 2)])
def test_a_manifest_that_disagrees_with_its_files(folder, name, value):
    runs.reseal(folder, facts=runs.facts(**{name: value}).model_dump())
    with pytest.raises(RunLogError, match="as the manifest says"):
        read(folder)


@pytest.mark.parametrize("cut", [0, 3, 500, -1, -9])
def test_scenario_33_a_truncated_parquet_is_an_error_not_fewer_rows(folder, cut):
    file = folder / ROUNDS
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(RunLogError, match="damaged or cut short"):
        read(folder)


def test_a_truncated_parquet_is_an_error_even_if_the_digest_fits(folder):
    """A shard without a footer, as a killed writer that never reached its manifest would leave it."""
    file = folder / ROUNDS
    file.write_bytes(file.read_bytes()[:-9])
    manifest = json.loads((folder / NAME).read_text())
    for entry in manifest["files"]:
        if entry["name"] == ROUNDS:
            entry["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    write_manifest(folder, Manifest.model_validate(manifest))
    with pytest.raises(RunLogError, match="not a readable Parquet file"):
        read(folder)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.pop("rounds"), "rounds: field required"),
        (lambda m: m.update(rounds="24"), "rounds: input should be a valid integer"),
        (lambda m: m.update(extra=1), "extra: extra inputs are not permitted"),
        (lambda m: m["facts"].update(layout="thick"), "facts.layout"),
        (lambda m: m["facts"].update(depth_max=0), "facts.depth_max"),
        (lambda m: m["files"][0].update(name="../../etc/passwd"), "files.0.name"),
        (lambda m: m.update(rounds=25), "was altered"),
        (lambda m: m.update(schema_version=99), "schema version 99"),
        (lambda m: m.update(format="other"), "format"),
    ],
)
def test_a_manifest_is_read_strictly(folder, change, words):
    manifest = json.loads((folder / NAME).read_text())
    change(manifest)
    (folder / NAME).write_text(json.dumps(manifest))
    with pytest.raises(RunLogError, match=words):
        read_manifest(folder)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "\x00", "[" * 100_000, "9" * 5000, '{"rounds": ' + "9" * 5000 + "}"]
)
def test_a_manifest_that_is_no_manifest(folder, text):
    (folder / NAME).write_text(text)
    with pytest.raises(RunLogError):
        read_manifest(folder)


def test_two_shards_with_one_prompt_are_refused(tmp_path):
    folder = runs.write(tmp_path / "run", [runs.prompts([9]), runs.prompts([5])])
    with pytest.raises(RunLogError, match="two sequences with one prompt"):
        open_run(folder).sequences()


def test_no_folder_an_empty_folder_and_a_file(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for name, words in (("none", "is not a folder"), ("file", "is not a folder"), ("empty", "no finished run")):
        with pytest.raises(RunLogError, match=words):
            open_run(tmp_path / name)


def test_a_listed_file_that_is_not_there(folder):
    (folder / ROUNDS).unlink()
    with pytest.raises(RunLogError, match="is missing though the manifest lists it"):
        read(folder)


def test_scenario_33_a_killed_writer_resumes_with_whole_prompts(tmp_path):
    """Killed after one shard and half of the next: the first shard stays, the half is dropped and written again."""
    folder, shards = tmp_path / "run", [runs.prompts([9, 5]), runs.prompts([4, 6], first=2)]
    with pytest.raises(KeyboardInterrupt), RunWriter(folder, runs.facts()) as writer:
        writer.add(shards[0][0], rounds_frame(shards[0][1], shards[0][0]))
        (folder / "rounds-00001.parquet").write_bytes(b"half a shard")
        (folder / "sequences-00001.part").write_bytes(b"torn")
        raise KeyboardInterrupt
    with pytest.raises(RunLogError, match="no finished run"):
        open_run(folder)
    with RunWriter(folder, runs.facts()) as writer:
        assert writer.prompts_done == {"p0", "p1"}
        writer.add(shards[1][0], rounds_frame(shards[1][1], shards[1][0]))
    assert [len(r) for r in read(folder)] == [12, 8]
    assert sorted(p.name for p in folder.iterdir()) == sorted(
        [NAME, *(e.name for e in open_run(folder).manifest.files)]
    )


def test_scenario_33_a_second_writer_is_refused(tmp_path):
    second = pytest.raises(RunLogError, match="being written by another")
    with RunWriter(tmp_path / "run", runs.facts()), second, RunWriter(tmp_path / "run", runs.facts()):
        pass
    with pytest.raises(RunLogError, match="holds a finished run"), RunWriter(tmp_path / "run", runs.facts()):
        pass


def test_resuming_with_other_settings_is_refused(tmp_path):
    with pytest.raises(KeyboardInterrupt), RunWriter(tmp_path / "run", runs.facts()):
        raise KeyboardInterrupt
    with pytest.raises(RunLogError, match="other settings"), RunWriter(tmp_path / "run", runs.facts(seed=1)):
        pass


def test_a_whole_run_appears_at_once_or_not_at_all(tmp_path):
    shard = runs.prompts([5])
    with pytest.raises(ZeroDivisionError), whole_run(tmp_path / "run", runs.facts()) as writer:
        writer.add(shard[0], rounds_frame(shard[1], shard[0]))
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with whole_run(tmp_path / "run", runs.facts()) as writer:
        writer.add(shard[0], rounds_frame(shard[1], shard[0]))
    assert len(read(tmp_path / "run")) == 1
    with pytest.raises(RunLogError, match="exists already"), whole_run(tmp_path / "run", runs.facts()):
        pass


def test_copies_of_a_run_are_runs(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")
    assert len(read(tmp_path / "copy")) == 1


def test_shards_hold_whole_prompts_of_a_bounded_size():
    assert prompt_shards(np.array([5000, 3000, 3000, 9000, 1])) == [slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 5)]
    assert prompt_shards(np.array([], int)) == []


def test_derived_columns_are_those_of_the_rounds(folder):
    """context = prompt tokens + position; chain_accepted = how far the top-1 candidates are right."""
    (rounds,) = read(folder)
    frame = pl.read_parquet(folder / ROUNDS)
    assert frame["context"].to_list() == (3 + rounds.position).tolist()
    right = (rounds.marginals.token[:, :, 0] == rounds.continuation).cumprod(axis=1).sum(axis=1)
    assert frame["chain_accepted"].to_list() == right.tolist()


def test_files_that_do_not_pair_up_are_refused(folder):
    manifest = read_manifest(folder)
    runs.reseal(folder, files=[f.model_dump() for f in manifest.files[:1]])
    with pytest.raises(RunLogError, match=r"do not pair up: rounds-00000\.parquet is missing"):
        open_run(folder)


def test_a_row_count_that_disagrees_is_refused(folder):
    files = [{**f.model_dump(), "rows": f.rows + 1} for f in read_manifest(folder).files]
    runs.reseal(folder, files=files)
    with pytest.raises(RunLogError, match="the manifest says"):
        read(folder)


def test_a_dense_log_without_a_prompts_rows_is_refused(folder):
    frame = pl.read_parquet(folder / ROUNDS).filter(pl.col("prompt") != 1)
    frame.write_parquet(folder / ROUNDS)
    runs.reseal(folder, rounds=len(frame))
    with pytest.raises(
        RunLogError, match="has 20 rows for 24 positions of a dense log: none of prompt 1, position 0, nor of 3 more"
    ):
        read(folder)


@pytest.mark.parametrize("change", [{"prompts": 3}, {"rounds": 23}, {"domains": ("a",)}, {"domains": ("a", "b", "c")}])
def test_counts_that_disagree_with_the_files_are_refused(folder, change):
    runs.reseal(folder, **change)
    with pytest.raises(RunLogError, match="counts other prompts, rounds or domains"):
        open_run(folder).sequences()


@pytest.mark.parametrize("name", ["[red]", "[/foo]", "\x1b[31m", "$x_{$", "a\nb", "", "x" * 300])
@pytest.mark.parametrize("column", ["domain", "prompt_id"])
def test_names_are_plain_text(folder, column, name):
    """They are printed, drawn and put into file names: no markup, no control codes, no formulas."""
    runs.alter(folder, SEQUENCES, pl.lit(name).alias(column))
    with pytest.raises(RunLogError, match="no plain name"):
        read(folder)


@pytest.mark.parametrize("text", ["\ud800", "\x1b[31m", "a\nb"])
@pytest.mark.parametrize("fact", ["notes", "logged_by", "target"])
def test_what_a_run_says_of_itself_can_be_printed(folder, fact, text):
    manifest = read_manifest(folder)
    facts = manifest.facts.model_copy(update={fact: (text,) if fact == "notes" else text})
    write_manifest(folder, manifest.model_copy(update={"facts": facts}))
    with pytest.raises(RunLogError, match=f"facts.{fact}.*cannot be printed"):
        read_manifest(folder)


def test_a_folder_may_have_glob_characters(tmp_path):
    folder = runs.write(tmp_path / "zz[1]*", [runs.prompts([5])])
    assert len(read(folder)[0]) == 4


@pytest.mark.parametrize("column", ["context", "chain_accepted", "prompt"])
def test_a_missing_number_is_named(folder, column):
    runs.alter(folder, ROUNDS, pl.lit(None, pl.Int32).alias(column))
    with pytest.raises(RunLogError, match=f"{column} is missing"):
        read(folder)


def test_two_imports_to_one_place_do_not_harm_each_other(tmp_path):
    shard = runs.prompts([5])
    with pytest.raises(RunLogError, match="exists already"), whole_run(tmp_path / "run", runs.facts()) as first:
        first.add(shard[0], rounds_frame(shard[1], shard[0]))
        with whole_run(tmp_path / "run", runs.facts()) as second:
            second.add(shard[0], rounds_frame(shard[1], shard[0]))
    assert len(read(tmp_path / "run")) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_place_that_cannot_be_a_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunLogError, match="cannot be made"), whole_run(tmp_path / "file" / "run", runs.facts()):
        pass


def test_what_a_recorder_knows_besides_is_kept(tmp_path):
    sequences, rounds = runs.prompts([9])
    rank = np.arange(len(rounds) * runs.DEPTH, dtype=np.int32).reshape(-1, runs.DEPTH)
    frame = rounds_frame(rounds, sequences).with_columns(true_rank=rank, colour=pl.lit("red"))
    with RunWriter(tmp_path / "run", runs.facts()) as writer:
        writer.add(sequences, frame)
    kept = pl.read_parquet(tmp_path / "run" / ROUNDS)
    np.testing.assert_array_equal(kept["true_rank"].to_numpy(), rank)
    assert "colour" not in kept.columns
    assert len(read(tmp_path / "run")[0]) == len(rounds)
