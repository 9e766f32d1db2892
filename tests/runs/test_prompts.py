"""Prompt files: every line is a prompt or is named."""

import json

import pytest

from castsim.base.errors import PromptError
from castsim.runs.prompts import FOLDER_VARIABLE, read_prompts


def written(tmp_path, *lines, name="maths.jsonl"):
    file = tmp_path / name
    file.write_bytes("\n".join(lines).encode("utf-8", "surrogateescape"))
    return str(file)


def test_prompts_and_turns_are_numbered_through(tmp_path):
    file = written(
        tmp_path,
        json.dumps({"prompt": "hé\u2028llo", "id": "one"}, ensure_ascii=False),
        "",
        json.dumps({"turns": ["a", "b"], "domain": "chat", "more": 1}),
        json.dumps({"prompt": "", "reference": None}),
        "  ",
    )
    found = read_prompts(file)
    assert [(c.number, c.prompt_id, c.domain, c.turns) for c in found] == [
        (0, "one", "maths", ("hé\u2028llo",)),
        (1, "maths/1", "chat", ("a", "b")),
        (3, "maths/2", "maths", ("",)),
    ]
    assert found[1].place.endswith("maths.jsonl, line 3")
    assert len(read_prompts(file, limit=2)) == 2


@pytest.mark.parametrize(
    "line, said",
    [
        ("{", "line 2: is not JSON"),
        ("[]", "line 2: line: input should be"),
        ('"text"', "line 2: line: input should be"),
        ("{}", "line 2: has neither prompt nor turns"),
        ('{"turns": []}', "has neither prompt nor turns"),
        ('{"prompt": 3}', "line 2: prompt: input should be a valid string"),
        ('{"turns": "ab"}', "line 2: turns: input should be"),
        ('{"prompt": "x", "id": "a\\u0007"}', "line 2: has the name 'a\\x07', which a run cannot hold"),
        ('{"prompt": "x", "domain": "all"}', "line 2: has the name 'all'"),
        ('{"turns": ["x", "y"], "id": "' + "a" * 199 + '"}', "which a run cannot hold"),
        ('{"prompt": "x", "number": ' + "9" * 5000 + "}", "line 2: is not JSON"),
        ('{"prompt": "\\ud800"}', "line 2: is no Unicode text"),
        ('{"prompt": "x", "id": "one"}', "line 2: has the id one of an earlier prompt"),
        ('{"prompt": "x", "id": "two#2"}', "line 2: has the id two#2 of an earlier prompt"),
        ("\udcff", "line 2 is no UTF-8 text: save it as UTF-8"),
        ("[" * 100_000, "line 2: is not JSON"),
    ],
)
def test_a_line_that_is_no_prompt_is_named(tmp_path, line, said):
    with pytest.raises(PromptError) as error:
        first = '{"turns": ["x", "y"], "id": "two"}' if "#2" in line else '{"prompt": "x", "id": "one"}'
        read_prompts(written(tmp_path, first, line, '{"prompt": "z"}'))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_file_without_prompts_is_refused(tmp_path):
    with pytest.raises(PromptError, match="holds no prompt"):
        read_prompts(written(tmp_path, "", ""))


@pytest.mark.parametrize("name", ["mt-bench", "mtbench", "mt_bench"])
def test_one_benchmark_has_several_spellings(tmp_path, monkeypatch, name):
    written(tmp_path, json.dumps({"turns": ["a", "b"]}), name="mtbench.jsonl")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    (found,) = read_prompts(name)
    assert found.domain == "mtbench" and found.turns == ("a", "b")


def test_a_benchmark_without_file_or_network_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(PromptError, match=r"gsm8k: .*put gsm8k\.jsonl here"):
        read_prompts("gsm8k")


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(PromptError, match=r"is no file; name a \.jsonl file, or one of gsm8k"):
        read_prompts("gsm9k")
