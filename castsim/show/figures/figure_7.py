"""Figure 7: goodput under load."""

from __future__ import annotations

from typing import Any

import polars as pl

from castsim.base.errors import OptionError
from castsim.base.workers import HERE
from castsim.costs.batch import batch_cost
from castsim.serving.controllers import load_controllers
from castsim.serving.requests import requests_of
from castsim.serving.serve import Asked, Load, sweep
from castsim.show.figures import beside, empty, lines
from castsim.show.sources import PUBLISHED, MissingSourceError, Sources

TITLE = "Figure 7. Serving goodput"
PANELS = ("gain", "goodput")
BATCHES = (1, 2, 4, 8, 16, 32)
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
    return beside(rows, lambda: _own(sources), PANELS[1])


def _own(sources: Sources) -> list[dict[str, Any]]:
    """A load simulated on the given run, with the costs fitted to appendix F; the paper's curves are not printed."""
    try:
        requests = requests_of(sources.need_run(), None, Asked().requests, Asked().seed)
    except OptionError as error:  # rounds of one policy, along which no other can walk
        raise MissingSourceError(str(error)) from error
    loads = [Load("closed", batch) for batch in BATCHES if batch <= requests.of]
    controllers = [kind() for kind in load_controllers().values()]
    rows = sweep(requests, loads, controllers, batch_cost(PUBLISHED), Asked(), HERE)
    return [
        {
            "panel": "goodput",
            "source": sources.own,
            "series": row["controller"],
            "x": row["batch"],
            "y": row["goodput_tok_per_s"],
        }
        for row in rows
    ]


def draw(found: pl.DataFrame, axes: Any) -> None:
    """The printed gains, and the curves of an own run: the paper's are not printed."""
    lines(axes[0], found.filter(pl.col("panel") == "gain"))
    axes[0].set(
        title="a. Shared best-first, ragged (published)", xlabel="requests B", ylabel="goodput gain, %", xticks=[16, 32]
    )
    axes[0].legend()
    own = found.filter(pl.col("panel") == "goodput")
    if own["y"].null_count() == len(own):
        empty(axes[1], f"Not drawn: the paper prints no goodput curve as numbers, and {own['source'][0]}.")
        return
    lines(axes[1], own)
    axes[1].set_xscale("log", base=2)
    axes[1].set(
        title=f"b. {own['source'][0]}, costs fitted to appendix F",
        xlabel="requests in flight",
        ylabel="committed tokens a second",
        ylim=(0, None),
    )
    axes[1].legend()
