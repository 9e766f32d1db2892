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

from castsim.errors import OptionError
from castsim.options import option_fields
from replay import load_policies


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
    part = file.with_name(f"{file.name}.part")
    try:
        if file.is_symlink() or (file.exists() and not file.is_file()):
            file.write_text(text)  # a link, pipe or device stays what it is
            return
        part.write_text(text)
        os.replace(part, file)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise OptionError(f"{option} {file}: cannot be written ({error.strerror}); name another file") from error


def table(title: str, *columns: str) -> Table:
    """An empty table: first column to the left, numbers to the right."""
    style = {"title_justify": "left", "title_style": "bold", "header_style": "bold", "box": None, "pad_edge": False}
    grid = Table(title=title, min_width=len(title), **style)
    for i, column in enumerate(columns):
        grid.add_column(column, justify="left" if i == 0 else "right", no_wrap=True)
    return grid


REPLAY_COLUMNS = (
    "policy",
    "N",
    "R pooled",
    "R per prompt",
    "95 % interval",
    "gain over chain",
    "95 % interval",
    "nodes",
    "rounds",
    "censored",
)
MASS_COLUMNS = (1, 4, 8, 16, 32, 48, 64, 96, 128)


def replay_tables(rows: Sequence[dict[str, Any]]) -> list[Table]:
    """One table a domain: R beside the chain's."""
    domains = dict.fromkeys(row["domain"] for row in rows)
    return [_replay_table([row for row in rows if row["domain"] == domain]) for domain in domains]


def _replay_table(rows: Sequence[dict[str, Any]]) -> Table:
    first = rows[0]
    mode = first["mode"].replace("_", " ")
    grid = table(
        f"{first['domain']}  ({first['prompts']} prompts, {mode}, rounds of {first['rounds_of']})", *REPLAY_COLUMNS
    )
    for row in rows:
        grid.add_row(
            _label(row),
            str(row["budget"]),
            number(row["committed_pooled"], "{:.3f}"),
            number(row["committed_per_prompt"], "{:.3f}"),
            interval(row["ci95"], "{:.2f}"),
            number(row["gain_over_chain"], "{:+.1%}"),
            interval(row["gain_over_chain_ci95"], "{:+.1%}"),
            number(row["nodes"], "{:.1f}"),
            str(row["rounds"]),
            str(row["censored"]),
        )
    return grid


def _label(row: dict[str, Any]) -> str:
    """The policy with the options that were set."""
    defaults = {f.name: f.default for f in option_fields(load_policies()[row["policy"]])}
    return " ".join([row["policy"], *(f"{k}={v}" for k, v in row["options"].items() if v != defaults[k])])


def live_table(rows: Sequence[dict[str, Any]], prompts: int) -> Table:
    """Live figures, in brackets what replay and forecast said; a missing baseline leaves its columns out."""
    over = [(key, name) for key, name in LIVE_BASELINES.items() if key in rows[0]]
    parts = list(rows[0]["shares"])
    heads = [h for _, name in over for h in (f"{name} (forecast)", "95 % interval")]
    equal = [head for key, head in EQUAL.items() if any(key in row for row in rows)]
    title = f"{prompts} prompts, pooled, live (and as said before)"
    grid = table(title, "method", "N", "ms/token (forecast)", *heads, "R (replay)", "packed (replay)", *equal, *parts)
    for row in rows:
        gains = [cell for key, _ in over for cell in _gain_cells(row, key)]
        grid.add_row(
            _label({**row, "policy": row["method"]}) if row["options"] else row["method"],
            str(row["budget"] or ""),
            _beside(row["ms_per_token"], row["ms_per_token_forecast"], "{:.2f}"),
            *gains,
            _beside(row["committed_pooled"], row.get("committed_pooled_replay"), "{:.3f}"),
            _beside(row["packed"], row.get("packed_replay"), "{:.1f}"),
            *(_share_equal(row, key, prompts) for key, head in EQUAL.items() if head in equal),
            *(number(row["shares"][part], "{:.1%}") for part in parts),
        )
    return grid


def check_table(findings: Sequence[Any]) -> Table:
    """One line a check."""
    grid = table("Checks", "claim", "cases", "worst", "limit", "result", "where")
    for found in findings:
        numbers = (number(value, "{:.3g}") for value in (found.worst, found.limit))
        grid.add_row(found.name, str(found.cases), *numbers, "pass" if found.passed else "FAIL", found.note)
    return grid


LIVE_BASELINES = {"speedup_over_ar": "over AR", "gain_over_chain": "over chain"}
EQUAL = {"prompts_equal_to_replay": "rounds = replay's", "prompts_equal_to_ar": "output = AR's"}


def _gain_cells(row: dict[str, Any], key: str) -> tuple[str, str]:
    form = "{:+.1%}" if key == "gain_over_chain" else "{:.2f}x"
    return _beside(row[key], row[f"{key}_forecast"], form), interval(row[f"{key}_ci95"], form)


def _beside(value: float | None, said: float | None, form: str) -> str:
    """A figure, and in brackets what was said of it."""
    return number(value, form) + ("" if said is None else f" ({form.format(said)})")


def _share_equal(row: dict[str, Any], key: str, prompts: int) -> str:
    return f"{row[key]}/{prompts}" if key in row else ""


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


def calibrate_tables(domains: dict[str, dict[str, Any]], loss: Sequence[dict[str, Any]]) -> list[Table]:
    """First-rejection ranks, reliability, calibration error by depth, mass curve and rank-cap loss."""
    whole = domains["all"]
    return [_rejection_table(domains), _bin_table(whole), _error_table(whole), _mass_table(domains), _cap_table(loss)]


def _rejection_table(domains: dict[str, dict[str, Any]]) -> Table:
    columns = ("domain", "rejections", "rank 2-4", "5-8", "9-K", "beyond K", "beyond the cap at any depth")
    grid = table("Rank of the target's token at the chain's first rejection", *columns)
    for name, found in domains.items():
        share = found["first_rejection_share_by_rank"]  # from rank 2 on
        groups = [part if part and None not in part else None for part in (share[0:3], share[3:7], share[7:])]
        cells = [None if part is None else sum(part) for part in groups]
        cells += [found["first_rejection_share_beyond_kept"], found["true_token_share_beyond_rank_cap"]]
        grid.add_row(name, str(found["first_rejections"]), *(number(cell, "{:.1%}") for cell in cells))
    return grid


def _bin_table(found: dict[str, Any]) -> Table:
    """Mean probability, hit rate and count of each bin at depth 1, and deeper on and off the spine."""
    places = {"depth 1": (1, "on"), "deeper, on spine": (2, "on"), "deeper, off spine": (2, "off")}
    grid = table("Reliability, all domains: mean probability, hit rate (candidates)", "bin", *places)
    for low in sorted({b["bin"][0] for b in found["reliability"]}):
        bins = [b for b in found["reliability"] if b["bin"][0] == low]
        cells = []
        for depth, spine in places.values():
            part = [b for b in bins if min(b["depth"], 2) == depth and b["spine"] == spine]
            count = sum(b["candidates"] for b in part)
            means = [
                sum(b["candidates"] * b[key] for b in part) / count for key in ("mean_probability", "hit_rate") if count
            ]
            cells.append(f"{means[0]:.3f}  {means[1]:.3f} ({count})" if count else "n/a")
        grid.add_row(f"{low:.1f}-{bins[0]['bin'][1]:.1f}", *cells)
    return grid


def _error_table(found: dict[str, Any]) -> Table:
    errors = found["expected_calibration_error_by_depth"]
    depths = (str(depth + 1) for depth in range(len(errors["on_spine"])))
    grid = table("Expected calibration error by depth, all domains", "spine", *depths)
    for side in ("on_spine", "off_spine"):
        grid.add_row(side.removesuffix("_spine"), *(number(error, "{:.3f}") for error in errors[side]))
    return grid


def _mass_table(domains: dict[str, dict[str, Any]]) -> Table:
    grid = table("Mean sorted mass rho_(N)", "domain", "rounds", *(f"N={n}" for n in MASS_COLUMNS))
    for name, found in domains.items():
        cells = (number(found["mean_sorted_mass"][n - 1], "{:.4f}") for n in MASS_COLUMNS)
        grid.add_row(name, str(found["rounds"]), *cells)
    return grid


def _cap_table(loss: Sequence[dict[str, Any]]) -> Table:
    cap, kept, mode = loss[0]["rank_cap"], loss[0]["ranks_kept"], loss[0]["mode"].replace("_", " ")
    title = f"Rank cap {cap} against all {kept} kept ranks ({mode})"
    grid = table(title, "domain", "N", "R capped", "R uncapped", "loss")
    for row in loss:
        means = (number(row[f"committed_pooled_{side}"], "{:.3f}") for side in ("capped", "uncapped"))
        grid.add_row(row["domain"], str(row["budget"]), *means, number(row["loss"], "{:.2%}"))
    return grid
