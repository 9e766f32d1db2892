"""Every figure and table that there is data for: pictures, and the numbers behind each beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import polars as pl

from castsim.paper.every_table import rebuilt, within_rounding
from castsim.published import CREDIT
from castsim.show import printed
from castsim.show.figures import figures
from castsim.show.plots import styled
from castsim.show.sources import PUBLISHED, Sources

SIZES = {"figure_1": (11, 5), "figure_4": (13, 4)}


@dataclass(frozen=True)
class Made:
    """One drawn figure or table.

    Attributes:
        missing: what could not be drawn of it, and why.
    """

    name: str
    title: str
    files: tuple[str, ...]
    missing: str | None = None


def draw_all(sources: Sources, folder: Path, done: Callable[[float], None] = lambda _: None) -> list[Made]:
    """Write NAME.png, NAME.svg and NAME.csv of every figure and table into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    every = figures()
    total, made = len(every) + len(printed.NUMBERS), []
    for name, module in every.items():
        found = module.table(sources)
        picture(module, found, folder, name, SIZES)
        made.append(Made(name, module.TITLE, _written(folder, name, found), _missing(found)))
        done(len(made) / total)
    for number in printed.NUMBERS:
        name, found = f"table_{number:02d}", printed.table(number)
        size = (2 + 0.62 * len(found.columns), 0.8 + 0.17 * len(found))
        with styled(folder, name, 1, 1, size, f"Table {number}, as printed: {CREDIT}", "none") as axes:
            printed.draw(found, axes.flat[0])
        made.append(Made(name, f"Table {number}", _written(folder, name, found)))
        done(len(made) / total)
    within_rounding(rebuilt()).write_csv(folder / "tables_rebuilt.csv")
    return made


def picture(
    module: ModuleType, found: pl.DataFrame, folder: Path, name: str, sizes: dict[str, tuple[float, float]]
) -> None:
    """One figure as NAME.png and NAME.svg."""
    title = module.TITLE + (f". Published: {CREDIT}" if _has_published(found) else "")
    axes_count = getattr(module, "AXES", len(module.PANELS))
    with styled(folder, name, 1, axes_count, sizes.get(name, (11, 4.2)), title) as axes:
        module.draw(found, list(axes.flat))


def _has_published(found: pl.DataFrame) -> bool:
    return any(PUBLISHED in (row["panel"], row["source"]) for row in found.iter_rows(named=True))


def _written(folder: Path, name: str, found: pl.DataFrame) -> tuple[str, ...]:
    found.write_csv(folder / f"{name}.csv")
    return tuple(f"{name}.{ending}" for ending in ("png", "svg", "csv"))


def _missing(found: pl.DataFrame) -> str | None:
    """Why a side is empty, where one is."""
    if "y" in found.columns:
        empty = found.filter(pl.col("y").is_null() & pl.col("source").is_not_null())
    else:
        empty = found.filter(panel="none")
    return empty["source"][0] if len(empty) else None
