"""The paper's figures, one file each: `table` makes a frame, `draw` draws that frame and nothing else.

A frame is in long form: panel, source, series, x, y, and where there is an interval low and high. Panels are drawn from
left to right; a figure whose published side has no data says so on the page.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import polars as pl

from castsim.show.sources import MissingSourceError

COLUMNS = {
    "panel": pl.String,
    "source": pl.String,
    "series": pl.String,
    "x": pl.Float64,
    "y": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
}


def figures() -> dict[str, ModuleType]:
    """All figures by name, in order."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}") for name in names}


def long_frame(rows: Iterable[dict[str, Any]]) -> pl.DataFrame:
    """Rows of the columns above; what is left out is null."""
    return pl.DataFrame([{name: row.get(name) for name in COLUMNS} for row in rows], schema=COLUMNS)


def beside(
    published: Iterable[dict[str, Any]], own: Callable[[], Iterable[dict[str, Any]]], panel: str
) -> pl.DataFrame:
    """Published rows and own ones; where there are none, a row of `panel` whose source says why."""
    rows = list(published)
    try:
        rows += own()
    except MissingSourceError as error:
        rows.append({"panel": panel, "source": str(error)})
    return long_frame(rows)


def lines(axis: Any, part: pl.DataFrame, marker: str = "o", **style: Any) -> None:
    """Every series of a frame as a line, named at its end, with its interval where there is one."""
    for (series,), rows in part.group_by("series", maintain_order=True):
        x, y = rows["x"].to_list(), rows["y"].to_list()
        (line,) = axis.plot(x, y, marker=marker, label=str(series), **style)
        if rows["low"].is_not_null().any():
            axis.vlines(x, rows["low"], rows["high"], color=line.get_color(), linewidth=0.8)


def bars(axis: Any, part: pl.DataFrame) -> None:
    """Every series of a frame as bars side by side, with its interval where there is one."""
    names = part["series"].unique(maintain_order=True).to_list()
    wide = 0.8 / len(names)
    for i, name in enumerate(names):
        rows = part.filter(series=name)
        x = [place + (i - (len(names) - 1) / 2) * wide for place in rows["x"]]
        axis.bar(x, rows["y"], wide, label=name)
        ranged = rows["low"].is_not_null()
        axis.vlines(
            [v for v, r in zip(x, ranged, strict=True) if r],
            rows["low"].drop_nulls(),
            rows["high"].drop_nulls(),
            color="k",
            linewidth=0.8,
        )


def one_scale(axes: Iterable[Any], low: float | None = None) -> None:
    """The same y axis on all panels that are drawn."""
    shown = [axis for axis in axes if axis.axison]
    ends = [axis.get_ylim() for axis in shown]
    for axis in shown:
        axis.set_ylim(min(e[0] for e in ends) if low is None else low, max(e[1] for e in ends))


def empty(axis: Any, text: str) -> None:
    """A panel that says why nothing is drawn."""
    axis.text(0.5, 0.5, text, ha="center", va="center", wrap=True, transform=axis.transAxes, color="0.4")
    axis.set_axis_off()
