"""What people see: tables on stdout, progress on stderr, JSON and CSV for machines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from castsim.base.errors import OptionError
from castsim.base.textfile import write_whole


@contextmanager
def progress(label: str) -> Iterator[Callable[[float], None]]:
    """A bar on stderr, while stderr is a terminal; gives a function of the share that is done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda share: None
        return
    columns = (TextColumn(label), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(label, total=1.0)
        yield lambda share: bar.update(task, completed=share)


def emit(document: dict[str, Any], tables: Sequence[Table], notes: Sequence[str], json_to: str | None) -> None:
    """Print the tables and notes, or with `--json -` the document alone; with `--json FILE` write it as well."""
    text = json.dumps(document, allow_nan=False, indent=None if json_to == "-" else 1)
    if json_to == "-":
        print(text)
        return
    # Names come from logs: they are text, not markup.
    console, endless = (Console(markup=False, emoji=False, highlight=False, width=w) for w in (None, 10_000))
    # A row keeps its length: a narrow terminal wraps it, where squeezed columns would lose their digits.
    natural = max((endless.measure(grid).maximum for grid in tables), default=0)
    for grid in tables:
        Console(markup=False, emoji=False, width=max(console.width, natural)).print(grid)
        print()
    for note in notes:
        console.print(f"- {note}")
    if json_to is not None:
        write_text(Path(json_to), text + "\n", "--json")


def check_target(file: Path | str | None, option: str) -> None:
    """Refuse, before any work is done, a place where no file can be written. None is no file, nor is "-" for JSON.

    Raises:
        OptionError: an empty name, a folder, or a folder that is not there.
    """
    if file is None or (str(file) == "-" and option == "--json"):
        return
    path = Path(file)
    if path.name in ("", "-") or path.is_dir():
        raise OptionError(f"{option} {file}: names no file; give a file name")
    if not os.access(path.parent, os.W_OK):
        raise OptionError(
            f"{option} {file}: cannot be written, {path.parent} is no folder to write in; name another file"
        )


def write_text(file: Path, text: str, option: str) -> None:
    """Write a file whole or not at all.

    Raises:
        OptionError: the place cannot be written to.
    """
    try:
        if file.is_symlink() or (file.exists() and not file.is_file()):
            file.write_text(text, encoding="utf-8", errors="backslashreplace")  # a link or device stays what it is
        else:
            write_whole(file, text)
    except OSError as error:
        raise OptionError(f"{option} {file}: cannot be written ({error.strerror}); name another file") from error


def remark(text: str) -> None:
    """A line on stderr, where stdout is for a machine."""
    Console(stderr=True, markup=False, emoji=False, highlight=False).print(text)


def table(title: str, *columns: str) -> Table:
    """An empty table: first column to the left, numbers to the right."""
    style = {"title_justify": "left", "title_style": "bold", "header_style": "bold", "box": None, "pad_edge": False}
    grid = Table(title=title, min_width=len(title), **style)
    for i, column in enumerate(columns):
        grid.add_column(column, justify="left" if i == 0 else "right", no_wrap=True)
    return grid


def number(value: float | None, form: str) -> str:
    """A number, or n/a where there is none."""
    return "n/a" if value is None else form.format(value)


def interval(ends: Sequence[float] | None, form: str) -> str:
    """An interval from its own two ends, or n/a."""
    return "n/a" if ends is None else f"[{form.format(ends[0])}, {form.format(ends[1])}]"


def csv_of(rows: Sequence[dict[str, Any]]) -> str:
    """Results as CSV: an interval becomes two columns, options and histograms JSON."""
    flat = []
    for row in rows:
        out: dict[str, Any] = {}
        for key, value in row.items():
            if key.endswith("ci95"):
                out[f"{key}_low"], out[f"{key}_high"] = value if value is not None else (None, None)
            else:
                out[key] = json.dumps(value) if isinstance(value, (dict, list)) else value
        flat.append(out)
    return pl.DataFrame(flat, infer_schema_length=None).write_csv()
