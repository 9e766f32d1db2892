"""Figure 6: what verification costs under load."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

import polars as pl

from castsim.costs.batch import TAX, TAX_TOKENS
from castsim.costs.probefile import Probe
from castsim.show.figures import beside, empty, lines, one_scale
from castsim.show.sources import PUBLISHED, MissingSourceError, Sources

TITLE = "Figure 6. Verification cost under load"
PANELS = ("tax", "shortest prefix", "longest prefix")
WIDE = 40  # characters of a panel's title
CHEAP = 1  # tokens a request, over which TAX_TOKENS are taxed


def table(sources: Sources) -> pl.DataFrame:
    """The three points that appendix F prints, and a probe's own batches; the paper prints no numbers of b and c."""
    rows: list[dict[str, Any]] = [
        {"panel": "tax", "source": PUBLISHED, "series": "Qwen3-8B, Blackwell (published)", "x": b, "y": round(100 * y)}
        for b, y in TAX.items()
    ]
    return beside(rows, lambda: _own(sources.need_probe()), PANELS[1])


def _own(probe: Probe) -> list[dict[str, Any]]:
    whole = probe.curve()
    if len(whole.batch) < 2:
        raise MissingSourceError("the probe has one batch size; castsim probe --batch 1,8,32 makes more")
    rows = list(_taxes(probe))
    if len(whole.prefix) < 2:
        rows.append(
            {"panel": PANELS[2], "source": "the probe has one prefix; castsim probe --prefix 128,512 makes more"}
        )
    for panel, prefix in zip(PANELS[1:], sorted({int(whole.prefix[0]), int(whole.prefix[-1])}), strict=False):
        source = _named(probe, prefix)
        for batch in whole.batch.tolist():
            curve = whole.at(prefix, batch)
            points = zip(curve.packed.tolist(), curve.ms[0, 0].tolist(), strict=True)
            rows += [{"panel": panel, "source": source, "series": f"batch {batch}", "x": x, "y": y} for x, y in points]
    return rows


def _named(probe: Probe, prefix: int) -> str:
    """What was measured, and where."""
    return ", ".join(part for part in (probe.target, probe.gpu or probe.device, f"{prefix} cached tokens") if part)


def _taxes(probe: Probe) -> Iterator[dict[str, Any]]:
    """Of each batch size at the longest prefix, where the probe has both packed counts."""
    whole = probe.curve()
    prefix = int(whole.prefix[-1])
    if whole.packed[0] > CHEAP or whole.packed[-1] < TAX_TOKENS:
        return
    for batch in whole.batch.tolist():
        curve = whole.at(prefix, batch)
        tax = 100 * float(curve.ms_at(TAX_TOKENS) / curve.ms_at(CHEAP) - 1)
        yield {"panel": "tax", "source": probe.source, "series": f"{probe.target} (own)", "x": batch, "y": tax}


def draw(found: pl.DataFrame, axes: Any) -> None:
    """Width tax over the batch, and times over the packed tokens of a request at two prefixes."""
    lines(axes[0], found.filter(panel="tax"))
    axes[0].set(
        title=f"a. Pass of {TAX_TOKENS} tokens a request over {CHEAP}",
        xlabel="requests B",
        ylabel="more time, %",
        xscale="log",
    )
    axes[0].legend()
    for letter, axis, panel in zip("bc", axes[1:], PANELS[1:], strict=True):
        part = found.filter(pl.col("panel") == panel, pl.col("y").is_not_null())
        if part.is_empty():
            empty(axis, f"Not drawn: {found.filter(pl.col('y').is_null())['source'][0]}.")
            continue
        lines(axis, part)
        axis.set(
            title=textwrap.fill(f"{letter}. {part['source'][0]}", WIDE),
            xlabel="packed tokens of a request",
            ylabel="ms",
        )
        axis.legend()
    one_scale(axes[1:], 0)
