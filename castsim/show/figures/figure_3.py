"""Figure 3: speedup over the chain at every width, by domain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from castsim.advice.forecast import committed_draws, forecast
from castsim.published import frame
from castsim.show.figures import beside, empty, lines, one_scale
from castsim.show.sources import PUBLISHED, WIDTHS, Sources

TITLE = "Figure 3. Speedup over the DFlash chain by width"
SWEEP = "h100-sxm-qwen3-8b"
PANELS = (PUBLISHED, "own")


def table(sources: Sources) -> pl.DataFrame:
    """The published sweep of Qwen3-8B on H100 SXM; of a run, its replayed R priced by the probe."""
    return beside(_published(), lambda: _own(sources), PANELS[1])


def _published() -> Iterator[dict[str, Any]]:
    sweep = frame("sweeps").filter(setting=SWEEP)
    for (domain,), part in sweep.group_by("domain", maintain_order=True):
        chain = part.filter(method="DFlash")["ms_per_token"][0]
        for row in part.filter(method="CAST").iter_rows(named=True):
            y = chain / row["ms_per_token"]
            yield {"panel": PUBLISHED, "source": "Table 12", "series": domain, "x": row["budget"], "y": y}


def _own(sources: Sources) -> list[dict[str, Any]]:
    found, cost = sources.scored, sources.cost
    names = np.array([sources.domains[p] for p in found.prompt.tolist()])
    rows = []
    for domain in sorted(set(names.tolist())):
        emitted, rounds = found.emitted[names == domain], found.rounds[names == domain]
        r = emitted.sum(axis=0) / rounds.sum(axis=0)
        nodes = [found.columns[0][1], *WIDTHS]
        timed = forecast(cost, nodes, r, committed_draws(r, (emitted, rounds), 0), 0)
        for i, width in enumerate(WIDTHS, start=1):
            low, high = (1 + timed.gain_ci95[:, i]).tolist()
            y = 1 + float(timed.gain[i])
            source = f"{sources.own}, probe {sources.need_probe().source}"
            rows.append(
                {"panel": PANELS[1], "source": source, "series": domain, "x": width, "y": y, "low": low, "high": high}
            )
    return rows


def draw(found: pl.DataFrame, axes: Any) -> None:
    """Both panels on one scale; intervals of 95 % where prompts are known."""
    for axis, panel, name in zip(axes, PANELS, ("Qwen3-8B, H100 SXM (published)", None), strict=True):
        part = found.filter(panel=panel)
        if part["y"].null_count() == len(part):
            empty(axis, f"Not drawn: {part['source'][0]}.")
            continue
        lines(axis, part)
        axis.axhline(1, color="0.8", linewidth=0.8, zorder=0)
        axis.set(
            title=name or part["source"][0], xlabel="nodes N", ylabel="speedup over the chain, times", xticks=WIDTHS
        )
        axis.legend()
    one_scale(axes)
