"""The paper's tables as they are printed: one frame each, rows and columns as in the paper, and a picture of it."""

from __future__ import annotations

from typing import Any

import polars as pl

from castsim.published import frame

NUMBERS = tuple(range(1, 18))
ROW_KEYS = ("gpu", "target", "prefix", "drafter", "method", "packed", "temperature", "new_tokens", "budget")
SPARE_KEYS = ("new_tokens", "drafter", "packed")
SHORT = {
    "speedup_over_ar": "x AR",
    "committed_round_length_R": "R",
    "decode_time": "ms/token",
    "gain_over_dflash": "gain %",
    "target_forward_latency": "ms",
    "verify_forward_latency": "ms",
    "target_forward_slope_n16_to_n128": "slope",
}


def table(number: int) -> pl.DataFrame:
    """One printed table: a row for each setting, a column for each domain or packed count and metric.

    Raises:
        KeyError: no such table.
    """
    rows = frame("tables").filter(table=number)
    if not len(rows):
        raise KeyError(f"table {number}")
    rows = rows.with_columns(
        pl.col("metric").replace(SHORT),
        pl.when(pl.col("metric").str.contains("latency"))
        .then(pl.format("n={}", pl.col("packed")))
        .otherwise(pl.col("domain").fill_null(""))
        .alias("column"),
        pl.when(~pl.col("metric").str.contains("latency")).then(pl.col("packed")).alias("packed"),
    ).with_columns(pl.concat_str("column", "metric", separator=" ").str.strip_chars().alias("column"))
    keys = [key for key in ROW_KEYS if rows[key].n_unique() > 1]
    for spare in SPARE_KEYS:  # a setting that only follows from domain or method is no row of its own
        less = [key for key in keys if key != spare]
        if not rows.select(*less, "column").is_duplicated().any():
            keys = less
    return rows.pivot("column", index=keys or ["gpu"], values="value", aggregate_function="first")


def draw(found: pl.DataFrame, axis: Any) -> None:
    """The frame as a table; an empty cell stays blank."""
    axis.set_axis_off()
    cells = [["" if v is None else f"{v:g}" if isinstance(v, float) else str(v) for v in row] for row in found.rows()]
    grid = axis.table(
        cells, colLabels=[c.replace(" ", "\n", 1) for c in found.columns], loc="upper left", cellLoc="right"
    )
    grid.auto_set_font_size(False)
    grid.set_fontsize(6)
    grid.auto_set_column_width(list(range(len(found.columns))))
    for (row, _), cell in grid.get_celld().items():
        cell.set_edgecolor("0.85")
        cell.visible_edges = "B"
        if row == 0:
            cell.set_height(2 * cell.get_height())
            cell.set_text_props(weight="bold")
