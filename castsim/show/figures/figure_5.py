"""Figure 5: what the tree's shape alone is worth, at the chain's own 16 packed tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from castsim.advice.forecast import committed_draws
from castsim.published import frame
from castsim.show.figures import bars, beside, empty, one_scale
from castsim.show.sources import PUBLISHED, MissingSourceError, Sources

TITLE = "Figure 5. Gain over the DFlash chain at 16 packed tokens"
PANELS = (PUBLISHED, "own")
WIDTH = 15


def table(sources: Sources) -> pl.DataFrame:
    """Table 8 at N = 15; of a run the gain in rounds, which is the gain in time where both pack 16 tokens."""
    return beside(_published(), lambda: _own(sources), PANELS[1])


def _published() -> Iterator[dict[str, Any]]:
    rows = frame("tables").filter(table=8, metric="gain_over_dflash", budget=WIDTH)
    settings: dict[str, int] = {}
    for row in rows.iter_rows(named=True):
        setting = f"{row['gpu']}\n{row['target']}"
        place = settings.setdefault(setting, len(settings))
        yield {"panel": PUBLISHED, "source": setting, "series": row["domain"], "x": place, "y": row["value"]}


def _own(sources: Sources) -> list[dict[str, Any]]:
    found = sources.scored
    if found.columns[0][1] != WIDTH:
        raise MissingSourceError(f"the run's chain has {found.columns[0][1]} nodes, not {WIDTH}")
    names = np.array([sources.domains[p] for p in found.prompt.tolist()])
    rows = []
    for domain in sorted(set(names.tolist())):
        tally = found.emitted[names == domain][:, :2], found.rounds[names == domain][:, :2]
        r = tally[0].sum(axis=0) / tally[1].sum(axis=0)
        drawn = committed_draws(r, tally, 0)
        low, high = (100 * (np.quantile(drawn[:, 1] / drawn[:, 0], [0.025, 0.975]) - 1)).tolist()
        y = 100 * float(r[1] / r[0] - 1)
        rows.append(
            {"panel": PANELS[1], "source": sources.own, "series": domain, "x": 0, "y": y, "low": low, "high": high}
        )
    return rows


def draw(found: pl.DataFrame, axes: Any) -> None:
    """Bars by setting and domain, both panels on one scale."""
    for axis, panel in zip(axes, PANELS, strict=True):
        part = found.filter(panel=panel)
        if part["y"].null_count() == len(part):
            empty(axis, f"Not drawn: {part['source'][0]}.")
            continue
        bars(axis, part)
        ticks = part.select("x", "source").unique(maintain_order=True)
        axis.set(
            title=panel,
            ylabel="gain over the chain, %",
            xticks=ticks["x"].to_list(),
            xticklabels=ticks["source"].to_list(),
        )
        axis.legend()
    one_scale(axes)
