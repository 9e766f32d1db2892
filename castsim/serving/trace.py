"""Request traces of other people's servers, known by their columns: when each request came, and how long it was."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from castsim.base.errors import PlacedError, first_line
from castsim.base.textfile import read_table, read_text

ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson")
REMEDY = "give one request a row: a time in a column ms, or the columns of an Azure, Mooncake, BurstGPT or vLLM trace"


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


def read_trace(file: Path) -> Trace:
    """A trace of any kind in `KINDS`: CSV, or JSON lines; rows in any order.

    Raises:
        PlacedError: no file, no such columns, or cells that are no times or lengths.
    """
    try:
        table = _table(file)
        kind = next(
            (k for k in KINDS if k.arrival in table.columns and (k is KINDS[0] or k.prompt in table.columns)), None
        )
        if kind is None:
            raise ValueError(f"its columns are {', '.join(table.columns)}")
        found = Trace(
            kind.name, _arrivals(table, kind), *(_lengths(table, column) for column in (kind.prompt, kind.output))
        )
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise PlacedError(file, f"is no trace of arrivals ({first_line(error)})", REMEDY) from error
    order = np.argsort(found.arrival_ms, kind="stable")
    lengths = (None if x is None else x[order] for x in (found.prompt_tokens, found.output_tokens))
    return Trace(found.kind, found.arrival_ms[order], *lengths)


def _table(file: Path) -> pl.DataFrame:
    if file.suffix in (".jsonl", ".ndjson"):
        return pl.read_ndjson(io.StringIO(read_text(file)), infer_schema_length=None)
    return read_table(file)


def _arrivals(table: pl.DataFrame, kind: Columns) -> NDArray[np.float64]:
    """(N,) ms, as the rows stand."""
    column = table[kind.arrival]
    if kind.in_ms is None:
        text = column.cast(pl.String).str.replace(r"(Z|[+-]\d\d:\d\d)$", "").str.replace("T", " ")
        ms = text.str.to_datetime(DATE, time_unit="ns").cast(pl.Int64).to_numpy() / 1e6
    else:
        ms = column.cast(pl.Float64).fill_null(np.nan).to_numpy() * kind.in_ms
    if kind is not KINDS[0] and len(ms):
        ms = ms - ms.min()  # clocks of other files start anywhere
    if not len(ms) or not np.isfinite(ms).all() or ms.min() < 0:
        raise ValueError(f"column {kind.arrival} holds no times, or some that are negative or none")
    return np.asarray(ms, np.float64)


def _lengths(table: pl.DataFrame, column: str) -> NDArray[np.int64] | None:
    if column not in table.columns:
        return None
    found = table[column].cast(pl.Int64)
    if found.null_count() or (found < 0).any():
        raise ValueError(f"column {column} has a cell that is no length in tokens")
    return found.to_numpy()
