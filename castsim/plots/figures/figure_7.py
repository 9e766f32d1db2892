"""Figure 7: goodput under load."""

from __future__ import annotations

from typing import Any

import polars as pl

from castsim.plots.figures import empty, lines, long_frame
from castsim.plots.sources import PUBLISHED, Sources

TITLE = "Figure 7. Serving goodput"
PANELS = ("gain", "goodput")
OVER_STATIC = {16: 7.0, 32: 13.7}  # appendix F: medians of four runs
OVER_UNIFORM = {16: (8.6, 8.1, 14.6), 32: (13.9, 13.2, 19.8)}  # median and range of four runs


def table(sources: Sources) -> pl.DataFrame:
    """What appendix F prints of shared best-first allocation with a ragged verifier."""
    base = {"panel": "gain", "source": PUBLISHED}
    rows: list[dict[str, Any]] = [
        {**base, "series": "over the best static width", "x": b, "y": y} for b, y in OVER_STATIC.items()
    ]
    rows += [
        {**base, "series": "over a uniform width", "x": b, "y": y, "low": low, "high": high}
        for b, (y, low, high) in OVER_UNIFORM.items()
    ]
    return long_frame(rows)


def draw(found: pl.DataFrame, axes: Any) -> None:
    """The printed gains; the curves are not printed."""
    lines(axes[0], found)
    axes[0].set(
        title="a. Shared best-first, ragged (published)", xlabel="requests B", ylabel="goodput gain, %", xticks=[16, 32]
    )
    axes[0].legend()
    empty(
        axes[1], "Not drawn: the paper prints no goodput curve as numbers, and castsim has no serving simulation yet."
    )
