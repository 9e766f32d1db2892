"""Order of rows: a permuted file answers as the sorted one does; what is there twice or not at all is named."""

import json
import random

import numpy as np
import polars as pl
import pytest
import run_builders as runs
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from run_builders import document

from castsim.base.errors import ForeignError, OptionError, PromptError, RunLogError
from castsim.profiles.profile import FOLDER, ProfileError, open_profile
from castsim.runs.foreign import ImportOptions, import_run
from castsim.runs.prompts import read_prompts
from castsim.runs.reading import open_run
from castsim.scoring.policies import Choice, budgets_of
from castsim.scoring.replay import results
from castsim.scoring.tally import Plan, domains_of, score
from replay.policies.sequoia import Sequoia
from replay.policies.topn import TopN

PARTS = ("sequences-00000.parquet", "rounds-00000.parquet", "sequences-00001.parquet", "rounds-00001.parquet")
SHARDS = [runs.prompts([9, 5, 1]), runs.prompts([4, 12, 6], first=3)]
SEEDS = st.integers(0, 2**32 - 1)
SHARED_FOLDER = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])


def answers(folder, mode="walked"):
    """What a replay says of a run, with its intervals and its tables measured on the other half."""
    run = open_run(folder)
    plan = Plan((Choice(TopN), Choice(Sequoia)), (5, 40), mode)
    return results(run, plan, score(run, plan, None), domains_of(run, []), seed=0)


def permuted(folder, out, seed):
    """A copy whose files hold their rows in another order, and whose manifest lists the files in another order."""
    out.mkdir(exist_ok=True)
    (out / "manifest.json").write_bytes((folder / "manifest.json").read_bytes())
    for name in PARTS:
        pl.read_parquet(folder / name).sample(fraction=1, shuffle=True, seed=seed).write_parquet(out / name)
    files = random.Random(seed).sample(PARTS, len(PARTS))
    runs.reseal(out, files=[runs._entry(out / name).model_dump() for name in files])
    return out


@SHARED_FOLDER
@given(SEEDS)
def test_a_run_answers_the_same_in_any_order_of_rows_and_files(tmp_path, seed):
    if not (folder := tmp_path / "run").exists():
        runs.write(folder, SHARDS)
    assert answers(permuted(folder, tmp_path / "other", seed)) == answers(folder)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_rounds_are_read_by_prompt_and_position(tmp_path, layout):
    folder = runs.write(tmp_path / "run", SHARDS, runs.facts(layout=layout))
    expected = list(open_run(folder).rounds())
    found = list(open_run(permuted(folder, tmp_path / "other", 3)).rounds())
    for ours, theirs in zip(found, expected, strict=True):
        for name in ("continuation", "known", "prompt", "position", "remaining"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        np.testing.assert_array_equal(ours.marginals.token, theirs.marginals.token)
        np.testing.assert_array_equal(ours.marginals.logq, theirs.marginals.logq)


def test_an_answer_does_not_depend_on_which_part_holds_a_prompt(tmp_path):
    swapped = runs.write(tmp_path / "swapped", SHARDS[::-1])
    assert answers(swapped) == answers(runs.write(tmp_path / "run", SHARDS))
    assert open_run(swapped).sequences()["prompt"].to_list() == [0, 1, 2, 3, 4, 5]


def test_an_error_still_names_the_row_of_the_file(tmp_path):
    """Row 5 of the file, which is not the row's place once the rows are sorted."""
    folder = runs.write(tmp_path / "run", SHARDS[:1])
    frame = pl.read_parquet(folder / PARTS[1]).sort("prompt", "position", descending=True)
    context = pl.when(pl.int_range(pl.len()) == 5).then(pl.col("context") + 1).otherwise(pl.col("context"))
    frame.with_columns(context).write_parquet(folder / PARTS[1])
    runs.reseal(folder)
    with pytest.raises(RunLogError, match="row 5: context is not"):
        list(open_run(folder).rounds())


def test_missing_and_repeated_parts_are_named(tmp_path):
    folder = runs.write(tmp_path / "run", SHARDS)
    files = {f.name: f.model_dump() for f in open_run(folder).manifest.files}
    for name in PARTS:
        runs.reseal(folder, files=[entry for other, entry in files.items() if other != name])
        with pytest.raises(RunLogError, match=f"do not pair up: {name} is missing"):
            open_run(folder)
    runs.reseal(folder, files=[*files.values(), files[PARTS[2]]])
    with pytest.raises(RunLogError, match=f"do not pair up: {PARTS[2]} is there twice"):
        open_run(folder)


def test_two_prompts_of_one_name_are_named(tmp_path):
    sequences, rounds = SHARDS[1]
    again = sequences.with_columns(prompt_id=pl.when(pl.col("prompt") == 4).then(pl.lit("p0")).otherwise("prompt_id"))
    folder = runs.write(tmp_path / "run", [SHARDS[0], (again, rounds)])
    with pytest.raises(RunLogError, match=r"two sequences with one prompt_id \(p0\)"):
        open_run(folder).sequences()


def line_of(sequences, rounds, number, order):
    """A prompt as a line of foreign JSONL, its rounds in some order."""
    rows = np.flatnonzero(rounds.prompt == number)
    token, logq = rounds.marginals.token, rounds.marginals.logq.astype(float)
    entries = [
        {"position": int(rounds.position[r]), "token": token[r].tolist(), "logq": logq[r].tolist()} for r in rows
    ]
    order.shuffle(entries)
    kept = sequences.row(number, named=True)
    return json.dumps({**{k: v for k, v in kept.items() if k != "prompt"}, "rounds": entries})


@SHARED_FOLDER
@given(SEEDS)
def test_a_foreign_jsonl_may_list_its_rounds_in_any_order(tmp_path, seed):
    sequences, rounds = runs.prompts([9, 5, 12])
    order = random.Random(seed)
    (tmp_path / "x.jsonl").write_text(
        "\n".join(line_of(sequences, rounds, i, order) for i in range(3)), encoding="utf-8"
    )
    out = tmp_path / str(seed)
    if not out.exists():
        facts = import_run(tmp_path / "x.jsonl", out, ImportOptions())
        assert facts.layout == "dense"
        assert answers(out) == answers_of(tmp_path, sequences, rounds)


def answers_of(folder, sequences, rounds):
    """The same of the run that was never exported."""
    if not (folder / "own").exists():
        runs.write(folder / "own", [(sequences, rounds)], runs.facts(vocab_size=None))
    return answers(folder / "own")


@given(order=st.permutations(range(4)), seed=SEEDS)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_prompts_of_a_foreign_jsonl_keep_their_own_rounds(tmp_path, order, seed):
    """Prompts are numbered as they come; each has its rounds and what they give, whatever its line."""
    sequences, rounds = runs.prompts([9, 5, 12, 2])
    lines = [line_of(sequences, rounds, i, random.Random(seed)) for i in order]
    (tmp_path / "x.jsonl").write_text("\n".join(lines), encoding="utf-8")
    out = tmp_path / f"{seed}-{order}"
    if out.exists():
        return
    import_run(tmp_path / "x.jsonl", out, ImportOptions())
    (found,) = open_run(out).rounds()
    for number, source in enumerate(order):
        ours, theirs = found.take(found.prompt == number), rounds.take(rounds.prompt == source)
        np.testing.assert_array_equal(ours.continuation, theirs.continuation)
        np.testing.assert_array_equal(ours.marginals.token, theirs.marginals.token)


def test_a_foreign_row_that_is_there_twice_is_named(tmp_path):
    sequences, rounds = runs.prompts([9, 5])
    line = json.loads(line_of(sequences, rounds, 1, random.Random(0)))
    line["rounds"].append(next(r for r in line["rounds"] if r["position"] == 2))
    first = line_of(sequences, rounds, 0, random.Random(0))
    (tmp_path / "x.jsonl").write_text(first + "\n" + json.dumps(line), encoding="utf-8")
    with pytest.raises(ForeignError, match="prompt 1, position 2: another row has its prompt and position"):
        import_run(tmp_path / "x.jsonl", tmp_path / "run", ImportOptions())


@given(st.permutations(["15", "31", "63", " 7"]))
def test_budgets_come_in_any_order(order):
    assert budgets_of(",".join(order)) == (7, 15, 31, 63)


def test_a_budget_that_is_there_twice_is_refused():
    with pytest.raises(OptionError, match="31 is there twice; give each one once"):
        budgets_of("31,15,31")


@SHARED_FOLDER
@given(SEEDS)
def test_a_profile_answers_the_same_in_any_order(tmp_path, seed):
    name, order = "qwen3-8b-gsm8k", random.Random(seed)
    body = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    body["parameters"] = dict(order.sample(list(body["parameters"].items()), len(body["parameters"])))
    for rows in ("statistics", "held_out"):
        order.shuffle(body[rows])
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(dict(order.sample(list(body.items()), len(body)))), encoding="utf-8")
    assert open_profile(str(file)).model() == open_profile(name).model()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: b["parameters"].pop("level"), "parameter level is missing"),
        (lambda b: b["parameters"].update(colour=1.0), "parameter colour is unknown"),
        (lambda b: b["statistics"].append(b["statistics"][0]), "two rows of the statistic 'R"),
        (lambda b: b["statistics"][2].pop("aim"), "row 2 of its statistics has no aim"),
    ],
)
def test_what_a_profile_lacks_or_has_twice_is_named(tmp_path, change, words):
    body = json.loads((FOLDER / "qwen3-8b-gsm8k.json").read_text(encoding="utf-8"))
    change(body)
    (tmp_path / "mine.json").write_text(json.dumps(body), encoding="utf-8")
    with pytest.raises(ProfileError, match=words):
        open_profile(str(tmp_path / "mine.json"))


def test_a_parameter_that_a_profile_gives_twice_is_refused(tmp_path):
    text = (FOLDER / "qwen3-8b-gsm8k.json").read_text(encoding="utf-8")
    (tmp_path / "mine.json").write_text(text.replace('"parameters": {', '"parameters": {"level": 0.0, '), "utf-8")
    with pytest.raises(ProfileError, match="it says 'level' twice"):
        open_profile(str(tmp_path / "mine.json"))


LINES = [{"id": f"q{i}", "domain": "ab"[i % 2], "turns": ["x"] * (1 + i % 3)} for i in range(6)]


@given(st.permutations(LINES))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_prompts_with_ids_are_the_same_in_any_order(tmp_path, order):
    file = tmp_path / "p.jsonl"
    file.write_text("\n".join(map(json.dumps, order)), encoding="utf-8")
    found = {c.prompt_id: (c.domain, c.turns) for c in read_prompts(str(file))}
    assert found == {line["id"]: (line["domain"], tuple(line["turns"])) for line in LINES}
    file.write_text("\n".join(map(json.dumps, [*order, order[0]])), encoding="utf-8")
    with pytest.raises(PromptError, match=f"line 7: has the id {order[0]['id']}"):
        read_prompts(str(file))


def test_the_command_line_takes_a_permuted_run(castsim, tmp_path):
    folder = runs.write(tmp_path / "run", SHARDS)
    other = permuted(folder, tmp_path / "other", 1)
    rows = [document(castsim, "replay", f, "--budgets", "15,5")["results"] for f in (folder, other)]
    assert rows[0] == rows[1]
