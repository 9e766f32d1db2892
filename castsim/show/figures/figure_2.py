"""Figure 2: what a pass costs over packed tokens, relative to 16 of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from castsim.published import frame, short
from castsim.show.figures import beside, empty, lines, one_scale
from castsim.show.sources import PUBLISHED, Sources
from replay.latency import LINE_FROM

TITLE = "Figure 2. Target's pass over packed tokens, relative to 16"
PANELS = (PUBLISHED, "own probe")


def table(sources: Sources) -> pl.DataFrame:
    """Time over that of 16 packed tokens, Table 5's probes and the one given."""
    return beside(_published(), lambda: _own(sources), PANELS[1])


def _published() -> Iterator[dict[str, Any]]:
    for (_preset,), part in frame("probes").filter(table="5").group_by("preset", maintain_order=True):
        base = part.filter(packed=LINE_FROM)["ms"][0]
        for row in part.filter(pl.col("packed") >= LINE_FROM).iter_rows(named=True):
            series = f"{row['gpu']}, {short(row['target'])}"
            yield {"panel": PUBLISHED, "source": "Table 5", "series": series, "x": row["packed"], "y": row["ms"] / base}


def _own(sources: Sources) -> list[dict[str, Any]]:
    probe = sources.need_probe()
    whole = probe.curve()
    curve = whole.at(whole.prefix[-1])
    error = curve.error_ms()
    base = float(curve.ms_at(LINE_FROM))
    rows = []
    for i, packed in enumerate(curve.packed.tolist()):
        if packed >= LINE_FROM:
            ms, spread = float(curve.ms[0, 0, i]), 0.0 if error is None else 1.96 * float(error[0, 0, i])
            ends = {"low": (ms - spread) / base, "high": (ms + spread) / base} if error is not None else {}
            name = probe.target or probe.source
            rows.append(
                {"panel": PANELS[1], "source": probe.source, "series": name, "x": packed, "y": ms / base, **ends}
            )
    return rows


def draw(found: pl.DataFrame, axes: Any) -> None:
    """Both panels on one scale."""
    for axis, panel in zip(axes, PANELS, strict=True):
        part = found.filter(panel=panel)
        if part["y"].null_count() == len(part):
            empty(axis, f"Not drawn: {part['source'][0]}.")
            continue
        lines(axis, part)
        axis.axhline(1, color="0.8", linewidth=0.8, zorder=0)
        axis.set(
            title=panel,
            xlabel="packed tokens n = N + 1",
            ylabel="time over that of n = 16",
            xticks=[16, 32, 64, 96, 128],
        )
        axis.legend()
    one_scale(axes, low=0.9)
