"""Text and tables in files: their encoding, their separator, their order of rows; and how castsim writes text.

Whoever opens a file that another program can have written does it here, so that each reader takes the same files.
Errors are plain `ValueError`s; the reader that knows the file's place and remedy wraps them.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

MARKS = (  # UTF-32 first: its mark begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
PACKED = (  # what begins so is no text
    (b"\x1f\x8b", "is packed by gzip: unpack it"),
    (b"\x28\xb5\x2f\xfd", "is packed by zstd: unpack it"),
    (b"PK\x03\x04", "is a zip archive or a workbook of a spreadsheet: unpack it, or save it as CSV"),
    (b"PAR1", "is a Parquet file: save it as text"),
)
SEPARATORS = ",;\t"
WHOLE = r"^\s*[-+]?\d+\s*$"
DECIMAL = r"^\s*[-+]?\d+([.,]\d+)?([eE][-+]?\d+)?\s*$"


def encoding_of(file: Path) -> str:
    """The encoding that a file's byte-order mark names; UTF-8, with or without a mark, where there is none.

    Raises:
        OSError: the file cannot be opened.
        ValueError: it is packed, or no text.
    """
    with file.open("rb") as stream:
        head = stream.read(4)
    if packed := next((told for mark, told in PACKED if head.startswith(mark)), None):
        raise ValueError(f"it {packed}")
    return next((name for mark, name in MARKS if head.startswith(mark)), "utf-8-sig")


def read_text(file: Path) -> str:
    """The text of a file in UTF-8, or in UTF-16 or UTF-32 with a byte-order mark.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is in another encoding; the message names the line.
    """
    return _decoded(file, whole=True)


def read_lines(file: Path) -> list[str]:
    """The lines of a JSONL; its last one may be torn, also inside a letter.

    Raises:
        OSError, ValueError: see `read_text`.
    """
    return _decoded(file, whole=False).split("\n")  # not at the other ends of lines, which JSON strings can hold


def _decoded(file: Path, whole: bool) -> str:
    """A file's text; where it need not be whole, a last letter that is cut is left out."""
    raw, encoding = file.read_bytes(), encoding_of(file)
    if encoding == "utf-8-sig" and b"\0" in raw.partition(b"\n")[0]:
        raise ValueError("it holds NUL characters, as UTF-16 without a byte-order mark does: save it as UTF-8")
    try:
        return codecs.getincrementaldecoder(encoding)().decode(raw, final=whole)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(f"line {line} is no {encoding.removesuffix('-sig').upper()} text: save it as UTF-8") from error


def read_json(file: Path) -> Any:
    """What a JSON file says; no object of it may say one thing twice.

    Raises:
        OSError, ValueError: see `read_text`; it is no JSON, or a key occurs twice.
        RecursionError: it is nested too deeply.
    """
    return json.loads(read_text(file), object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it says {twice[:60]!a} twice: keep one")
    return found


def write_whole(file: Path, text: str) -> None:
    """Write a file in UTF-8, whole or not at all; half a file is never left, nor is anything beside it.

    What Unicode cannot write, as a file name of raw bytes, is written with backslashes.

    Raises:
        OSError: the place cannot be written to.
    """
    part = file.with_name(f"{file.name}.part")
    try:
        part.write_text(text, encoding="utf-8", errors="backslashreplace")
        os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)


def is_table(file: Path) -> bool:
    """Whether a file's ending is that of a table of `read_table`."""
    return file.suffix.lower() in (".csv", ".tsv")


def read_table(file: Path) -> pl.DataFrame:
    """A CSV with commas, semicolons or tabs; blanks around cells, decimal commas and empty rows at both ends are read.

    An empty row between others stays, as it may be a cell that is missing.

    Raises:
        OSError, ValueError: see `read_text`; two columns have one name.
        polars.exceptions.PolarsError: it is no table.
    """
    rows = read_text(file).splitlines()
    filled = [i for i, row in enumerate(rows) if row.strip(f"{SEPARATORS} ")]
    rows = rows[filled[0] : filled[-1] + 1] if filled else []
    if rows and re.fullmatch(r"sep=.\s*", rows[0]):  # a spreadsheet's word about its separator
        rows = rows[1:]
    separator = max(SEPARATORS, key=(rows or [""])[0].count)
    table = pl.read_csv(io.StringIO("\n".join(rows)), separator=separator, infer_schema_length=None)
    if twice := [name for name in table.columns if "_duplicated_" in name]:  # as polars calls the second of a name
        raise ValueError(f"it has two columns {twice[0].partition('_duplicated_')[0]}: keep one")
    table = table.rename({name: name.strip() for name in table.columns})
    return table.with_columns(_numbers(table[name]) for name in table.columns)


def _numbers(column: pl.Series) -> pl.Series:
    """Numbers with blanks around them or with decimal commas as numbers; any other column as it is, true as text."""
    if column.dtype == pl.Boolean:
        return column.cast(pl.String)
    if column.dtype != pl.String or not column.drop_nulls().str.contains(DECIMAL).all():
        return column
    whole = column.drop_nulls().str.contains(WHOLE).all()
    return column.str.strip_chars().str.replace(",", ".").cast(pl.Int64 if whole else pl.Float64)


def on_grid(table: pl.DataFrame, axes: Sequence[str]) -> tuple[pl.DataFrame, dict[str, list[int]]]:
    """Rows in the order of their axes, one for each combination of the axes' values; and those values, rising.

    Args:
        table: rows in any order.
        axes: names of the columns that place a row, the slowest first.

    Raises:
        ValueError: no rows, an empty cell in an axis, or a combination that occurs twice or never; it is named.
    """
    if not len(table):
        raise ValueError("it has no rows")
    for name in axes:
        if table[name].null_count():
            raise ValueError(f"column {name} has an empty cell")
    twice = table.filter(table.select(axes).is_duplicated()).sort(axes)
    if len(twice):
        raise ValueError(f"there are two rows of {_place(twice, axes)}")
    values = {name: table[name].unique().sort() for name in axes}
    whole = pl.DataFrame({axes[0]: values[axes[0]]})
    for name in axes[1:]:
        whole = whole.join(pl.DataFrame({name: values[name]}), how="cross")
    missing = whole.join(table, on=list(axes), how="anti").sort(axes)
    if len(missing):
        more = "" if len(missing) == 1 else f", nor of {len(missing) - 1} more"
        raise ValueError(f"there is no row of {_place(missing, axes)}{more}")
    return table.sort(axes), {name: column.to_list() for name, column in values.items()}


def _place(rows: pl.DataFrame, axes: Sequence[str]) -> str:
    """The first row's place, in words."""
    return ", ".join(f"{name} {rows[name][0]}" for name in axes)
