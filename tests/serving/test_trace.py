"""Traces of requests, known by their columns."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castsim.base.errors import PlacedError
from castsim.serving.trace import read_trace

FILES = {
    "castsim": ("t.csv", "ms,prompt_tokens,output_tokens\n0,10,3\n1500,20,4\n"),
    "Azure LLM inference trace": (
        "t.csv",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,10,3\n2023-11-16 18:15:48.1805900,20,4\n",
    ),
    "Azure trace as vidur shortens it": (
        "t.csv",
        "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,10,3\n1.5,20,4\n",
    ),
    "Mooncake": (
        "t.jsonl",
        '{"timestamp": 7000, "input_length": 10, "output_length": 3, "hash_ids": [1, 2]}\n'
        '{"timestamp": 8500, "input_length": 20, "output_length": 4, "hash_ids": []}\n',
    ),
    "BurstGPT": (
        "t.csv",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,10,3,13,Conversation log\n6.5,GPT-4,20,4,24,API log\n",
    ),
    "vLLM requests of LLMServingSim": (
        "t.jsonl",
        '{"request_id": "a", "input_toks": 10, "output_toks": 3, "arrival_time": 1777142838.25}\n'
        '{"request_id": "b", "input_toks": 20, "output_toks": 4, "arrival_time": 1777142839.75}\n',
    ),
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("falling", [False, True])
def test_every_kind_is_known_by_its_columns_in_any_order(tmp_path, kind, falling):
    name, text = FILES[kind]
    *head, first, second = text.splitlines()
    rows = [second, first] if falling else [first, second]
    (tmp_path / name).write_text("\n".join([*head, *rows]) + "\n", encoding="utf-8")
    found = read_trace(tmp_path / name)
    assert found.kind == kind
    assert found.arrival_ms.tolist() == pytest.approx([0, 1500], abs=1e-3)
    assert (found.prompt_tokens.tolist(), found.output_tokens.tolist()) == ([10, 20], [3, 4])


def test_dates_of_the_later_azure_trace_have_a_zone(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.009930+00:00,2162,5\n")
    assert read_trace(file).arrival_ms.tolist() == [0]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_spreadsheets_trace_is_read(tmp_path, encoding):
    file = tmp_path / "t.csv"
    file.write_bytes("ms;prompt_tokens\n0;5\n2,5;6\n".encode(encoding))
    found = read_trace(file)
    assert (found.arrival_ms.tolist(), found.prompt_tokens.tolist()) == ([0, 2.5], [5, 6])
    assert found.output_tokens is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("traces")


@given(st.permutations([{"timestamp": 3 * i, "input_length": i, "output_length": 1} for i in range(6)]))
def test_permuted_rows_are_the_sorted_ones(folder, rows):
    file = folder / "t.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    found = read_trace(file)
    assert (found.arrival_ms.tolist(), found.prompt_tokens.tolist()) == ([0, 3, 6, 9, 12, 15], [0, 1, 2, 3, 4, 5])


@pytest.mark.parametrize(
    "text",
    [
        "ms\n-1\n2\n",
        "ms\n",
        "seconds\n1\n",
        "ms\nx\n",
        "ms\n1\nnan\n",
        "",
        "ms,prompt_tokens\n1,-2\n",
        "timestamp\n1\n",
    ],
)
def test_a_bad_trace_is_refused(tmp_path, text):
    file = tmp_path / "trace.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PlacedError, match=r"trace\.csv"):
        read_trace(file)
