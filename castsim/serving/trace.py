"""Request traces of other people's servers, known by their columns: when each request came, and how long it was."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from castsim.base.errors import PlacedError, first_line
from castsim.base.textfile import read_json, read_table, read_text

ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")
SHOWN = 12  # names of columns that an error lists


@dataclass(frozen=True)
class Columns:
    """How one kind of trace names its columns.

    Attributes:
        arrival: the column of times; in_ms: a number of it, in milliseconds. None is a date with a time of day.
        prompt, output: columns of lengths in tokens, which may be missing.
    """

    name: str
    arrival: str
    in_ms: float | None
    prompt: str
    output: str


KINDS = (  # the columns that a kind must have are its arrival and, but for the first, its prompt
    Columns("castsim", "ms", 1.0, "prompt_tokens", "output_tokens"),
    Columns("Azure LLM inference trace", "TIMESTAMP", None, "ContextTokens", "GeneratedTokens"),
    Columns("Azure trace as vidur shortens it", "arrived_at", 1000.0, "num_prefill_tokens", "num_decode_tokens"),
    Columns("Mooncake", "timestamp", 1.0, "input_length", "output_length"),
    Columns("BurstGPT", "Timestamp", 1000.0, "Request tokens", "Response tokens"),
    Columns("vLLM requests of LLMServingSim", "arrival_time", 1000.0, "input_toks", "output_toks"),
    Columns("vllm bench serve", "start_times", 1000.0, "input_lens", "output_lens"),
)
BENCH = KINDS[-1]  # one object with lists, where the others have a row for each request
REMEDY = "give each request a time in ms in a column ms, or one of " + ", ".join(
    f"{kind.arrival} and {kind.prompt} ({kind.name})" for kind in KINDS[1:]
)
DATE = "%Y-%m-%d %H:%M:%S%.f"


@dataclass(frozen=True, eq=False)
class Trace:
    """N requests in the order of their arrival.

    Attributes:
        kind: whose columns they are.
        arrival_ms: (N,) from the first request, or from 0 where the file is castsim's own kind.
        prompt_tokens, output_tokens: (N,) lengths, or None where the file has none.
    """

    kind: str
    arrival_ms: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64] | None
    output_tokens: NDArray[np.int64] | None

    @property
    def failed(self) -> int:
        """Requests that got no token there."""
        return 0 if self.output_tokens is None else int((self.output_tokens == 0).sum())


def read_trace(file: Path) -> Trace:
    """A trace of any kind in `KINDS`: CSV, JSON lines or JSON; rows in any order.

    Raises:
        PlacedError: no file, no such columns, or cells that are no times or lengths.
    """
    try:
        table = _table(file)
        kind = next(
            (k for k in KINDS if k.arrival in table.columns and (k is KINDS[0] or k.prompt in table.columns)), None
        )
        if kind is None:
            raise ValueError(_unknown(table.columns))
        found = Trace(
            kind.name, _arrivals(table, kind), *(_lengths(table, column) for column in (kind.prompt, kind.output))
        )
    except (OSError, ValueError, RecursionError, pl.exceptions.PolarsError) as error:
        raise PlacedError(file, f"is no trace of arrivals ({first_line(error)})", REMEDY) from error
    order = np.argsort(found.arrival_ms, kind="stable")
    lengths = (None if x is None else x[order] for x in (found.prompt_tokens, found.output_tokens))
    return Trace(found.kind, found.arrival_ms[order], *lengths)


def _table(file: Path) -> pl.DataFrame:
    ending = file.suffix.lower()
    if ending == ".json":
        return _of_json(read_json(file))
    if ending in (".jsonl", ".ndjson"):
        lines = enumerate(read_text(file).split("\n"), start=1)
        rows = [_object(number, line) for number, line in lines if line.strip()]
        return _of_json(rows[0] if len(rows) == 1 and isinstance(rows[0].get(BENCH.prompt), list) else rows)
    return read_table(file)


def _object(number: int, line: str) -> dict[str, Any]:
    try:
        if isinstance(found := json.loads(line), dict):
            return found
    except ValueError:
        pass
    raise ValueError(f"line {number} is no JSON object, or is cut short")


def _of_json(found: Any) -> pl.DataFrame:
    """A list of requests, or the lists of a result of `vllm bench serve`."""
    if isinstance(found, list) and all(isinstance(row, dict) for row in found):
        return _of_rows(found)
    if not isinstance(found, dict):
        raise ValueError("it is neither a list of requests nor an object with lists")
    lists = {name: found[name] for name in (BENCH.arrival, BENCH.prompt, BENCH.output) if name in found}
    if BENCH.arrival in lists and len({len(x) if isinstance(x, list) else -1 for x in lists.values()}) > 1:
        raise ValueError(f"{', '.join(lists)} are not lists of one length")
    return _of_columns(lists) if BENCH.arrival in lists else pl.DataFrame(schema=list(found))


def _of_rows(rows: list[dict[str, Any]]) -> pl.DataFrame:
    """The columns that some kind of trace has; of none, the empty columns of the first row."""
    known = {name: None for kind in KINDS for name in (kind.arrival, kind.prompt, kind.output)}
    there = [name for name in known if any(name in row for row in rows)]
    table = {name: [row.get(name) for row in rows] for name in there}
    return _of_columns(table) if there else pl.DataFrame(schema=list(rows[0] if rows else []))


def _of_columns(table: dict[str, list[Any]]) -> pl.DataFrame:
    """Numbers and text; what is neither, as true or a list, becomes an empty cell."""
    plain = {
        name: [x if isinstance(x, int | float | str) and not isinstance(x, bool) else None for x in cells]
        for name, cells in table.items()
    }
    return pl.DataFrame(plain, strict=False)


def _unknown(columns: list[str]) -> str:
    """What a file has that is of no kind."""
    if {BENCH.prompt, BENCH.output, "ttfts", "itls", "request_throughput"} & set(columns):
        return f"a result of {BENCH.name} without {BENCH.arrival}, which vLLM writes since 2026 with --save-detailed"
    if not columns:
        return "it holds nothing"
    more = f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else ""
    return f"its columns are {', '.join(columns[:SHOWN])}{more}"


def _arrivals(table: pl.DataFrame, kind: Columns) -> NDArray[np.float64]:
    """(N,) ms, as the rows stand."""
    column = table[kind.arrival]
    if kind.in_ms is None:
        ms = _dates_ms(column.cast(pl.String))
    else:
        ms = column.cast(pl.Float64).fill_null(np.nan).to_numpy() * kind.in_ms
    if kind is not KINDS[0] and len(ms):
        ms = ms - ms.min()  # clocks of other files start anywhere
    if not len(ms) or not np.isfinite(ms).all() or ms.min() < 0:
        raise ValueError(f"column {kind.arrival} holds no times, or some that are negative or none")
    return np.asarray(ms, np.float64)


def _dates_ms(text: pl.Series) -> NDArray[np.float64]:
    """(N,) from the first, dates with or without a zone; NaN for an empty cell."""
    text = text.str.strip_chars().str.replace("T", " ")
    zone = text.str.extract_groups(r"([+-])(\d\d):?(\d\d)$").struct.unnest()
    sign, hours, minutes = zone.get_columns()
    offset = (hours.cast(pl.Int64) * 60 + minutes.cast(pl.Int64)) * (1 - 2 * (sign == "-").cast(pl.Int64))
    local = text.str.replace(r"\s*(Z|[+-]\d\d:?\d\d)$", "").str.to_datetime(DATE, time_unit="ns").cast(pl.Int64)
    ns = local - offset.fill_null(0) * 60_000_000_000
    return (ns - ns.min()).cast(pl.Float64).fill_null(np.nan).to_numpy() / 1e6  # whole numbers first: they are exact


def _lengths(table: pl.DataFrame, column: str) -> NDArray[np.int64] | None:
    if column not in table.columns:
        return None
    found = table[column].cast(pl.Float64)
    if found.null_count() or not (found.is_finite() & (found >= 0) & (found % 1 == 0)).all():
        raise ValueError(f"column {column} has a cell that is no length in tokens")
    return found.cast(pl.Int64).to_numpy()
