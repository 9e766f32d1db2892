"""Figure 6: what verification costs under load."""

from __future__ import annotations

from typing import Any

import polars as pl

from castsim.plots.figures import beside, empty, lines
from castsim.plots.sources import PUBLISHED, MissingSourceError, Sources
from castsim.serving.batchcost import TAX, TAX_TOKENS

TITLE = "Figure 6. Verification cost under load"
PANELS = ("tax", "curve")
CHEAP = 1  # tokens a request, over which TAX_TOKENS are taxed


def table(sources: Sources) -> pl.DataFrame:
    """The three points that appendix F prints, and a probe's own batches."""
    rows: list[dict[str, Any]] = [
        {"panel": "tax", "source": PUBLISHED, "series": "Qwen3-8B, Blackwell (published)", "x": b, "y": round(100 * y)}
        for b, y in TAX.items()
    ]
    return beside(rows, lambda: _own(sources), "curve")


def _own(sources: Sources) -> list[dict[str, Any]]:
    probe = sources.need_probe()
    whole = probe.curve()
    if len(whole.batch) < 2:
        raise MissingSourceError(
            "the probe has one batch size; castsim probe --batch 1,8,32 makes more. The paper prints "
            "no curves of Figure 6b and c"
        )
    rows = []
    for batch in whole.batch.tolist():
        curve = whole.at(batch=batch)
        if curve.packed[0] <= CHEAP and curve.packed[-1] >= TAX_TOKENS:
            tax = 100 * float(curve.ms_at(TAX_TOKENS) / curve.ms_at(CHEAP) - 1)
            rows.append(
                {"panel": "tax", "source": probe.source, "series": f"{probe.target} (own)", "x": batch, "y": tax}
            )
        for packed, ms in zip(curve.packed.tolist(), curve.ms[0, 0].tolist(), strict=True):
            rows.append({"panel": "curve", "source": probe.source, "series": f"batch {batch}", "x": packed, "y": ms})
    return rows


def draw(found: pl.DataFrame, axes: Any) -> None:
    """Width tax over the batch, and times over the packed tokens of a request."""
    lines(axes[0], found.filter(panel="tax"))
    axes[0].set(
        title=f"a. Pass of {TAX_TOKENS} tokens a request over {CHEAP}",
        xlabel="requests B",
        ylabel="more time, %",
        xscale="log",
    )
    axes[0].legend()
    part = found.filter(panel="curve")
    if part["y"].null_count() == len(part):
        empty(axes[1], f"Not drawn: {part['source'][0]}.")
        return
    lines(axes[1], part)
    axes[1].set(title=f"b. {part['source'][0]}", xlabel="packed tokens of a request", ylabel="ms")
    axes[1].legend()
