"""Traces of requests, known by their columns."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from castsim.base.errors import PlacedError
from castsim.serving.trace import KINDS, read_trace

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


BENCH = {  # as `vllm bench serve --save-result --save-detailed` writes it, the second request failed
    "date": "20260201-120000",
    "duration": 2.5,
    "completed": 2,
    "request_throughput": 0.8,
    "input_lens": [20, 10, 30],
    "output_lens": [4, 0, 5],
    "ttfts": [0.1, 0.0, 0.2],
    "itls": [[0.01, 0.02], [], [0.01]],
    "start_times": [353399.75, 353398.25, 353401.0],
    "mean_ttft_ms": float("nan"),
}


@pytest.mark.parametrize("name", ["result.json", "result.jsonl", "RESULT.JSON"])
def test_a_result_of_vllm_bench_serve_is_read(tmp_path, name):
    file = tmp_path / name
    file.write_text(json.dumps(BENCH) + "\n", encoding="utf-8")
    found = read_trace(file)
    assert (found.kind, found.failed) == ("vllm bench serve", 1)
    assert found.arrival_ms.tolist() == [0, 1500, 2750]
    assert (found.prompt_tokens.tolist(), found.output_tokens.tolist()) == ([10, 20, 30], [0, 4, 5])


@pytest.mark.parametrize("lost", [{"start_times"}, {"start_times", "input_lens", "output_lens", "ttfts", "itls"}])
@pytest.mark.parametrize("name", ["result.json", "result.jsonl"])
def test_a_result_of_an_older_vllm_has_no_arrivals_which_is_said(tmp_path, lost, name):
    file = tmp_path / name
    file.write_text(json.dumps({k: v for k, v in BENCH.items() if k not in lost}), encoding="utf-8")
    with pytest.raises(PlacedError, match=r"vllm bench serve without start_times.*with --save-detailed\)") as error:
        read_trace(file)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change",
    [
        {"input_lens": [20, 10]},
        {"start_times": 5},
        {"start_times": []},
        {"start_times": [1.0, None, 2.0]},
        {"start_times": [1, float("nan"), 2]},
        {"start_times": ["a", "b", "c"]},
        {"start_times": [[1], [2], [3]]},
        {"start_times": [True, 2, 3]},
        {"output_lens": [4, 1.5, 5]},
        {"input_lens": [4, -1, 5]},
        {"input_lens": [4, 1e30, 5]},
    ],
    ids=str,
)
def test_lists_that_are_no_times_or_lengths_are_one_line(tmp_path, change):
    file = tmp_path / "result.json"
    file.write_text(json.dumps({**BENCH, **change}), encoding="utf-8")
    with pytest.raises(PlacedError, match=r"result\.json: is no trace of arrivals \(") as error:
        read_trace(file)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_refusal_names_the_fields_of_every_kind(tmp_path, kind):
    (tmp_path / "t.json").write_text('[{"when": 5, "how_long": 3}]')
    with pytest.raises(PlacedError, match=r"its columns are when, how_long\)") as error:
        read_trace(tmp_path / "t.json")
    assert kind.arrival in str(error.value) and (kind is KINDS[0] or f"{kind.prompt} ({kind.name})" in str(error.value))


ROWS = FILES["Mooncake"][1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("mark.jsonl", "\ufeff" + ROWS),
        ("blank.jsonl", "\n" + ROWS.replace("\n", "\n \n")),
        ("crlf.jsonl", ROWS.replace("\n", "\r\n")),
        ("open.jsonl", ROWS.rstrip()),
        ("hashes.jsonl", ROWS.replace(', "hash_ids": [1, 2]', "")),
        ("text.jsonl", ROWS.replace("7000", '"7000"')),
        ("list.json", f"[{ROWS.strip().replace(chr(10), ',')}]"),
    ],
)
def test_json_in_other_habits_is_the_same_trace(tmp_path, name, text):
    (tmp_path / name).write_bytes(text.encode())
    found = read_trace(tmp_path / name)
    assert (found.arrival_ms.tolist(), found.prompt_tokens.tolist()) == ([0, 1500], [10, 20])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ROWS[:-30], "line 2 is no JSON object, or is cut short"),
        (ROWS + "5\n", "line 3 is no JSON object"),
        (ROWS.replace('"input_length": 10, ', ""), "input_length has a cell that is no length"),
        (ROWS.replace(": 10", ": 10.5"), "input_length has a cell that is no length"),
        (ROWS.replace("7000", "null"), "timestamp holds no times"),
        (ROWS.replace("7000", "true"), "timestamp holds no times"),
        ("", "it holds nothing"),
    ],
)
def test_a_line_that_is_no_request_is_refused(tmp_path, text, said):
    (tmp_path / "t.jsonl").write_text(text, encoding="utf-8")
    with pytest.raises(PlacedError, match=said):
        read_trace(tmp_path / "t.jsonl")


@pytest.mark.parametrize(
    ("first", "second", "gap_ms"),
    [
        ("2023-11-16 18:15:46.6805900", "2023-11-16 18:15:48", 1319.41),
        ("2023-11-16T18:15:46Z", "2023-11-16T18:15:48.5Z", 2500),
        ("2024-05-10 00:00:00+00:00", "2024-05-10 02:00:01+02:00", 1000),
        ("2024-05-09 23:30:00-0130", "2024-05-10 01:00:02+00:00", 2000),
    ],
)
def test_dates_are_told_apart_to_the_microsecond_and_by_their_zones(tmp_path, first, second, gap_ms):
    file = tmp_path / "t.csv"
    file.write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{second},20,4\n{first},10,3\n")
    found = read_trace(file)
    assert found.arrival_ms.tolist() == [0, pytest.approx(gap_ms, abs=1e-6)]
    assert found.prompt_tokens.tolist() == [10, 20]


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
        "ms\ntrue\n",
        "ms,ms\n1,2\n",
        "ms,prompt_tokens\n1,5.5\n",
        "ms;prompt_tokens\n1;1,234\n",
    ],
)
def test_a_bad_trace_is_refused(tmp_path, text):
    file = tmp_path / "trace.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(PlacedError, match=r"trace\.csv"):
        read_trace(file)
