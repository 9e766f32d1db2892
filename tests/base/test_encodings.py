"""Encodings: every file that castsim opens names its own, and a byte-order mark or UTF-16 is read in every reader."""

import ast
import json
from pathlib import Path

import numpy as np
import pytest
import run_builders as runs

from castsim.base.errors import CastsimError
from castsim.profiles.profile import FOLDER, open_profile
from castsim.runs.foreign import ImportOptions, import_run
from castsim.runs.manifest import NAME, read_manifest
from castsim.runs.prompts import read_prompts
from castsim.runs.reading import open_run
from castsim.runs.writing import UNFINISHED, RunWriter

ROOT = Path(__file__).parents[2]
SOURCES = sorted(file for folder in ("castsim", "replay", "figures") for file in (ROOT / folder).rglob("*.py"))
NOT_FILES = {"os", "clock", "terminal"}  # whose `open` or `write_text` is another
MARKED = ["utf-8-sig", "utf-16", "utf-32"]


def unnamed(source: str) -> list[int]:
    """Lines that open a file as text, or read or write one whole, without `utf-8-sig` for reading or `utf-8`."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [call.lineno for call in calls if (wanted := _wanted(call)) and _encoding(call) != wanted]


def _wanted(call: ast.Call) -> str | None:
    """The encoding that a call has to name; None for one that opens no text."""
    method = isinstance(call.func, ast.Attribute)
    name = call.func.attr if method else getattr(call.func, "id", "")
    if method and isinstance(call.func.value, ast.Name) and call.func.value.id in NOT_FILES:
        return None
    if method and name in ("read_text", "write_text"):
        return "utf-8-sig" if name == "read_text" else "utf-8"
    if name not in ("open", "fdopen", "NamedTemporaryFile", "TemporaryFile"):
        return None
    given = [k.value for k in call.keywords if k.arg == "mode"] + call.args[0 if method else 1 :][:1]
    mode = given[0].value if given and isinstance(given[0], ast.Constant) else "r"
    return None if "b" in mode else "utf-8-sig" if mode.startswith("r") else "utf-8"


def _encoding(call: ast.Call) -> object:
    return next((k.value.value for k in call.keywords if k.arg == "encoding"), None)


@pytest.mark.parametrize("file", SOURCES, ids=lambda f: str(f.relative_to(ROOT)))
def test_every_file_that_is_opened_names_its_encoding(file):
    assert unnamed(file.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        ("p.read_text()", 1),
        ("p.read_text(encoding='utf-8')", 1),
        ("p.read_text(encoding='utf-8-sig')", 0),
        ("folder.joinpath('x').write_text(t)", 1),
        ("p.write_text(t, encoding='utf-8')", 0),
        ("open(p)", 1),
        ("open(p, 'w')", 1),
        ("open(p, mode='rb')", 0),
        ("p.open()", 1),
        ("p.open('a')", 1),
        ("p.open('a', encoding='utf-8')", 0),
        ("p.open('rb')", 0),
        ("terminal.write_text(p, t, '--out')", 0),
        ("read_text(p)", 0),
        ("clock.open()", 0),
    ],
)
def test_the_search_finds_what_names_none(source, faults):
    assert len(unnamed(source)) == faults


def recode(file: Path, encoding: str) -> None:
    """The same text in another encoding, with a byte-order mark."""
    file.write_bytes(file.read_text(encoding="utf-8").encode(encoding))


@pytest.mark.parametrize("encoding", MARKED)
def test_a_foreign_jsonl(tmp_path, encoding):
    line = {"prompt_id": "größe", "domain": "日本", "prompt_tokens": [], "output_tokens": [1, 2, 3]}
    row = {"position": 0, "token": [[2, 4], [3, 5]], "logq": [[-1.0, -2.0], [-1.0, -2.0]]}
    file = tmp_path / "x.jsonl"
    file.write_text(json.dumps({**line, "rounds": [row]}, ensure_ascii=False) + "\n", encoding="utf-8")
    recode(file, encoding)
    import_run(file, tmp_path / "run", ImportOptions())
    assert open_run(tmp_path / "run").sequences().select("prompt_id", "domain").row(0) == ("größe", "日本")


@pytest.mark.parametrize("encoding", MARKED)
def test_the_sequences_of_an_npz(tmp_path, encoding):
    arrays = {"prompt": [0], "position": [0], "root": [1], "token": [[[2, 4]]]}
    np.savez(tmp_path / "x_dense.npz", **{k: np.array(v) for k, v in arrays.items()}, logq=np.array([[[-1.0, -2.0]]]))
    sequence = {"prompt_id": "größe", "domain": "d", "prompt_tokens": [], "output_tokens": [1, 2]}
    file = tmp_path / "x_sequences.json"
    file.write_text(json.dumps([sequence], ensure_ascii=False), encoding="utf-8")
    recode(file, encoding)
    import_run(tmp_path / "x_dense.npz", tmp_path / "run", ImportOptions())
    assert open_run(tmp_path / "run").sequences()["prompt_id"].to_list() == ["größe"]


@pytest.mark.parametrize("encoding", MARKED)
def test_prompts(tmp_path, encoding):
    file = tmp_path / "maths.jsonl"
    file.write_bytes('{"prompt": "Größe 日本"}\r\n{"prompt": "b"}\r\n'.encode(encoding))
    assert [c.turns for c in read_prompts(str(file))] == [("Größe 日本",), ("b",)]


@pytest.mark.parametrize("encoding", MARKED)
def test_a_profile(tmp_path, encoding):
    body = json.loads((FOLDER / "qwen3-8b-gsm8k.json").read_text(encoding="utf-8"))
    (tmp_path / "x.json").write_bytes(json.dumps({**body, "name": "größe"}, ensure_ascii=False).encode(encoding))
    assert open_profile(str(tmp_path / "x.json")).name == "größe"


@pytest.mark.parametrize("encoding", MARKED)
def test_a_manifest_that_an_editor_saved(tmp_path, encoding):
    folder = runs.write(tmp_path / "run", [runs.prompts([5])])
    expected = read_manifest(folder)
    recode(folder / NAME, encoding)
    assert read_manifest(folder) == expected


def test_the_facts_of_an_unfinished_run(tmp_path):
    with pytest.raises(KeyboardInterrupt), RunWriter(tmp_path / "run", runs.facts(target="größe")):
        raise KeyboardInterrupt
    recode(tmp_path / "run" / UNFINISHED, "utf-8-sig")
    with RunWriter(tmp_path / "run", runs.facts(target="größe")):
        pass
    assert read_manifest(tmp_path / "run").facts.target == "größe"


@pytest.mark.parametrize("encoding", ["utf-16-le", "latin-1"])
@pytest.mark.parametrize(
    ("name", "text", "read"),
    [
        ("x.jsonl", '{"prompt": "é"}', lambda file: read_prompts(str(file))),
        ("x.jsonl", '{"prompt_id": "é"}', lambda file: import_run(file, file.with_name("run"), ImportOptions())),
        ("x.json", '{"name": "é"}', lambda file: open_profile(str(file))),
        (NAME, '{"format": "é"}', lambda file: read_manifest(file.parent)),
    ],
    ids=["prompts", "foreign", "profile", "manifest"],
)
def test_what_is_in_another_encoding_is_said_in_one_line(tmp_path, name, text, read, encoding):
    (tmp_path / name).write_bytes(text.encode(encoding))
    words = "UTF-16 without a byte-order mark" if encoding == "utf-16-le" else "line 1"
    with pytest.raises(CastsimError, match=words) as error:
        read(tmp_path / name)
    assert "\n" not in str(error.value)
