"""Import of other programs' logs: the same rounds in every layout, and clear refusals."""

import json

import numpy as np
import pytest
import run_builders as runs

from castsim.base.errors import CastsimError, ForeignError, OptionError, RunLogError
from castsim.runs.foreign import ImportOptions, import_run, told_facts
from castsim.runs.reading import open_run

FIELDS = ("continuation", "known", "prompt", "position", "remaining")


def source(lengths=(9, 5, 12, 2)):
    """A run as (sequences as dicts, rounds)."""
    sequences, rounds = runs.prompts(list(lengths))
    return sequences.drop("prompt", "finish").to_dicts(), rounds


def write_npz(folder, sequences, rounds, **changes):
    root = [sequences[i]["output_tokens"][p] for i, p in zip(rounds.prompt, rounds.position, strict=True)]
    arrays = {
        "prompt": rounds.prompt,
        "position": rounds.position,
        "root": np.array(root, np.int32),
        "token": rounds.marginals.token,
        "logq": rounds.marginals.logq,
    }
    arrays = {k: v for k, v in {**arrays, **changes}.items() if v is not None}
    np.savez_compressed(folder / "x_dense.npz", **arrays)
    (folder / "x_sequences.json").write_text(json.dumps(sequences))
    return folder / "x_dense.npz"


def jsonl_lines(sequences, rounds):
    lines = []
    for i, sequence in enumerate(sequences):
        rows = np.flatnonzero(rounds.prompt == i)
        entries = [
            {
                "position": int(rounds.position[r]),
                "token": rounds.marginals.token[r].tolist(),
                "logq": rounds.marginals.logq[r].astype(float).tolist(),
            }
            for r in rows
        ]
        lines.append(json.dumps({**sequence, "rounds": entries}, ensure_ascii=False))
    return lines


def same_rounds(folder, expected):
    (found,) = open_run(folder).rounds()
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    np.testing.assert_array_equal(found.marginals.token, expected.marginals.token)
    np.testing.assert_array_equal(found.marginals.logq, expected.marginals.logq)


def test_npz_becomes_the_same_rounds(tmp_path):
    sequences, rounds = source()
    facts = import_run(write_npz(tmp_path, sequences, rounds), tmp_path / "run", ImportOptions())
    assert facts.layout == "dense"
    same_rounds(tmp_path / "run", rounds)


def test_jsonl_becomes_the_same_rounds(tmp_path):
    sequences, rounds = source()
    (tmp_path / "x.jsonl").write_text("\n".join(jsonl_lines(sequences, rounds)) + "\n\n")
    facts = import_run(tmp_path / "x.jsonl", tmp_path / "run", ImportOptions())
    assert facts.layout == "dense"
    same_rounds(tmp_path / "run", rounds)


def test_candidates_in_any_order_are_ranked(tmp_path):
    """Scenario 16: shuffling the columns of a log changes nothing."""
    sequences, rounds = source()
    shuffle = [2, 0, 3, 1]
    changes = {"token": rounds.marginals.token[:, :, shuffle], "logq": rounds.marginals.logq[:, :, shuffle]}
    import_run(write_npz(tmp_path, sequences, rounds, **changes), tmp_path / "run", ImportOptions())
    same_rounds(tmp_path / "run", rounds)


@pytest.mark.parametrize("kind", [np.uint32, np.int64, np.uint16])
def test_scenario_31_token_ids_of_any_type(tmp_path, kind):
    sequences, rounds = source()
    changes = {"token": rounds.marginals.token.astype(kind), "position": rounds.position.astype(kind)}
    import_run(write_npz(tmp_path, sequences, rounds, **changes), tmp_path / "run", ImportOptions())
    same_rounds(tmp_path / "run", rounds)


def test_scenario_1_what_follows_an_end_of_sequence_is_no_answer(tmp_path):
    sequences, rounds = source([9])
    tokens = sequences[0]["output_tokens"]
    file = write_npz(tmp_path, sequences, rounds)
    facts = import_run(file, tmp_path / "run", ImportOptions(eos_ids=(tokens[4],)))
    (found,) = open_run(tmp_path / "run").rounds()
    assert found.remaining.tolist() == [4, 3, 2, 1]  # positions 0..3; the end of sequence at 4 is the last token
    assert found.continuation[3].tolist() == [tokens[4], -1, -1]
    assert open_run(tmp_path / "run").sequences()["finish"].to_list() == ["stop"]
    assert "1 outputs ran on" in facts.notes[0]


def test_outputs_without_an_end_were_cut_by_the_limit(tmp_path):
    sequences, rounds = source([9, 5])
    facts = import_run(write_npz(tmp_path, sequences, rounds), tmp_path / "run", ImportOptions(eos_ids=(0,)))
    assert open_run(tmp_path / "run").sequences()["finish"].to_list() == ["length", "length"]
    assert facts.notes == ()


def test_rows_in_any_order_become_the_same_run(tmp_path):
    sequences, rounds = source()
    shuffled = rounds.take(np.random.default_rng(0).permutation(len(rounds)))
    import_run(write_npz(tmp_path, sequences, shuffled), tmp_path / "run", ImportOptions())
    same_rounds(tmp_path / "run", rounds)


def test_sequences_can_lie_elsewhere(tmp_path):
    sequences, rounds = source()
    file = write_npz(tmp_path, sequences, rounds)
    (tmp_path / "x_sequences.json").rename(tmp_path / "other.json")
    with pytest.raises(ForeignError, match="--sequences"):
        import_run(file, tmp_path / "run", ImportOptions())
    import_run(file, tmp_path / "run", ImportOptions(sequences=tmp_path / "other.json"))
    same_rounds(tmp_path / "run", rounds)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [0, 1, 2, 4, 5, 6, 7],
            "makes no sound run: has 7 rows for 8 positions of a dense log: none of prompt 0, position 3;",
        ),
        ([0, 1, 2, 2, 3], "prompt 0, position 2: another row has"),
    ],
)
def test_a_dense_log_with_missing_or_repeated_rows_makes_no_run(tmp_path, rows, words):
    sequences, rounds = source([9])
    with pytest.raises(ForeignError, match=words):
        import_run(write_npz(tmp_path, sequences, rounds.take(np.array(rows))), tmp_path / "run", ImportOptions())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("output_tokens", None, "output_tokens"),
        ("output_tokens", [], "output_tokens"),
        ("output_tokens", [3, -1], "output_tokens"),
        ("output_tokens", [3, 2**31], "output_tokens"),
        ("prompt_tokens", "abc", "prompt_tokens"),
        ("domain", None, "domain"),
        ("prompt_id", None, "prompt_id"),
        ("domain", "all", "a domain cannot be named all"),
        ("prompt_id", "p1", "two sequences with one prompt_id"),
    ],
)
@pytest.mark.parametrize("layout", ["npz", "jsonl"])
def test_a_bad_sequence_is_named_in_every_layout(tmp_path, layout, field, value, words):
    sequences, rounds = source()
    if layout == "npz":
        file = write_npz(tmp_path, sequences, rounds)
        (tmp_path / "x_sequences.json").write_text(json.dumps([{**sequences[0], field: value}, *sequences[1:]]))
    else:
        lines = jsonl_lines(sequences, rounds)
        file = tmp_path / "x.jsonl"
        file.write_text("\n".join([json.dumps({**json.loads(lines[0]), field: value}), *lines[1:]]) + "\n")
    with pytest.raises(ForeignError, match=f"{words}|is not token"):
        import_run(file, tmp_path / "run", ImportOptions())
    assert not (tmp_path / "run").exists()


def test_rows_at_the_last_token_are_left_out_and_counted(tmp_path):
    lines = jsonl_lines(*source())
    broken = json.loads(lines[0])
    broken["rounds"].append({**broken["rounds"][0], "position": 8})
    (tmp_path / "x.jsonl").write_text("\n".join([json.dumps(broken), *lines[1:]]) + "\n")
    facts = import_run(tmp_path / "x.jsonl", tmp_path / "run", ImportOptions())
    assert "1 rows that no token of an output follows were left out." in facts.notes


def test_a_position_that_does_not_exist_is_refused_not_dropped(tmp_path):
    lines = jsonl_lines(*source())
    broken = json.loads(lines[0])
    broken["rounds"][3]["position"] = 2**30
    (tmp_path / "x.jsonl").write_text("\n".join([json.dumps(broken), *lines[1:]]) + "\n")
    with pytest.raises(ForeignError, match="position is not followed by a token"):
        import_run(tmp_path / "x.jsonl", tmp_path / "run", ImportOptions())


def test_only_so_many_prompts_a_domain(tmp_path):
    sequences, rounds = source()
    import_run(write_npz(tmp_path, sequences, rounds), tmp_path / "run", ImportOptions(per_domain=1))
    assert open_run(tmp_path / "run").sequences()["prompt_id"].to_list() == ["p0", "p1"]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("logq", lambda a: a * np.nan, "NaN"),
        ("logq", lambda a: -a, "positive"),
        ("logq", lambda a: a.astype(str), "float32 or float64"),
        ("logq", lambda a: a[:, :, :2], "one shape"),
        ("token", lambda a: a * 0, "twice"),
        ("token", lambda a: a - 100, "negative"),
        ("token", lambda a: a + 100, "outside the vocabulary"),
        ("token", lambda a: a.astype(float), "not integer"),
        ("token", lambda a: a[:5], "shape"),
        ("token", lambda a: a[:, :, :0], "no candidates"),
        ("token", lambda _: None, "needs the arrays"),
        ("prompt", lambda a: a + 1, "is not token"),
        ("position", lambda a: a + 1, "is not token"),
        ("position", lambda a: a - 1, "is not token"),
        ("token", lambda a: a.astype(object), "cannot be read"),
    ],
)
def test_a_bad_npz_is_refused_and_leaves_nothing(tmp_path, name, change, words):
    sequences, rounds = source()
    array = getattr(rounds, name, None)
    array = getattr(rounds.marginals, name) if array is None else array
    file = write_npz(tmp_path, sequences, rounds, **{name: change(array)})
    with pytest.raises(CastsimError, match=words):
        import_run(file, tmp_path / "run", ImportOptions(facts={"vocab_size": runs.VOCAB}))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x_dense.npz", "x_sequences.json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '[{"prompt_id": "a"}]',
        "[" * 90_000,
        '[{"prompt_id": 1, "domain": [], "prompt_tokens": 3, "output_tokens": "x"}]',
    ],
)
def test_sequences_that_are_none(tmp_path, text):
    file = write_npz(tmp_path, *source())
    (tmp_path / "x_sequences.json").write_text(text)
    with pytest.raises(ForeignError):
        import_run(file, tmp_path / "run", ImportOptions())


def test_a_file_that_is_no_log(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 no archive")
    (tmp_path / "x.csv").touch()
    for name, words in (("x.npz", "cannot be read"), ("x.csv", "no known layout"), ("y.npz", "is not a file")):
        with pytest.raises(ForeignError, match=words):
            import_run(tmp_path / name, tmp_path / "run", ImportOptions())


def test_an_existing_folder_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(RunLogError, match="exists already"):
        import_run(write_npz(tmp_path, *source()), tmp_path / "run", ImportOptions())


@pytest.mark.parametrize(
    "pair", ["vocab_size=" + "9" * 5000, "colour=red", "vocab_size=many", "vocab_size=0", "target", "simulated=true"]
)
def test_facts_that_nobody_may_tell(pair):
    with pytest.raises(OptionError, match="--fact"):
        told_facts([pair])


def multibyte(lines):
    """Give the last line a domain of two-byte letters, so that a cut can fall inside one."""
    last = json.loads(lines[-1])
    return [*lines[:-1], json.dumps({**last, "domain": "ééé"}, ensure_ascii=False)]


@pytest.mark.parametrize("where", ["number", "letter", "newline", "blank"])
def test_scenario_33_a_torn_last_line_is_dropped_and_counted(tmp_path, where):
    sequences, rounds = source()
    lines = [line.encode() for line in multibyte(jsonl_lines(sequences, rounds))]
    head = b"\n".join(lines[:-1]) + b"\n"
    cut = {
        "number": lines[-1][: lines[-1].rindex(b"position") + 11],
        "letter": lines[-1][: lines[-1].index("é".encode()) + 1],
        "newline": b"",
        "blank": b"\n",
    }[where]
    (tmp_path / "x.jsonl").write_bytes(head + cut)
    facts = import_run(tmp_path / "x.jsonl", tmp_path / "run", ImportOptions())
    assert open_run(tmp_path / "run").manifest.prompts == 3  # whole prompts only
    assert any("torn" in note for note in facts.notes) == (where in ("number", "letter"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2, not JSON: invalid json"),
        ('{"prompt_id": "a"}', "line 2, domain: field required"),
        ("3", "line 2, not JSON"),
    ],
)
def test_scenario_33_a_torn_middle_line_is_an_error_with_its_number(tmp_path, line, words):
    lines = jsonl_lines(*source())
    (tmp_path / "x.jsonl").write_text("\n".join([lines[0], line, *lines[2:]]) + "\n")
    with pytest.raises(ForeignError, match=words):
        import_run(tmp_path / "x.jsonl", tmp_path / "run", ImportOptions())


def test_a_jsonl_with_some_positions_is_sparse(tmp_path):
    sequences, rounds = source()
    some = rounds.take(rounds.position % 2 == 0)
    (tmp_path / "x.jsonl").write_text("\n".join(jsonl_lines(sequences, some)) + "\n")
    assert import_run(tmp_path / "x.jsonl", tmp_path / "run", ImportOptions()).layout == "sparse"
    same_rounds(tmp_path / "run", some)


@pytest.mark.parametrize(
    "text", ["", "\n", '{"prompt_id":"a","domain":"d","prompt_tokens":[],"output_tokens":[1,2],"rounds":[]}\n']
)
def test_a_jsonl_without_rounds(tmp_path, text):
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(ForeignError):
        import_run(tmp_path / "x.jsonl", tmp_path / "run", ImportOptions())
