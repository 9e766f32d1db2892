"""Figure 4: where the drafter's beliefs hold: rank of the correction, reliability, masses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from castsim.costs.probefile import open_probe
from castsim.profiles.targets import published_profiles
from castsim.published import frame
from castsim.show.figures import bars, beside, empty
from castsim.show.sources import PUBLISHED, Sources
from replay.calibrate import ON
from replay.width import affine_cost, throughput_tok_per_ms

TITLE = "Figure 4. Drafter diagnostics on the chain's rounds"
PANELS = ("a", "b", "c")
TITLES = (
    "a. Rank of the target's token at the first rejection",
    "b. Reliability at depth 1",
    "c. Sorted prefix masses",
)
FEWEST = 20  # a hit rate of fewer candidates is noise
GROUPS = ("2-4", "5-8")
PRINTED = ("GSM8K", "MT-Bench", "HumanEval")


def table(sources: Sources) -> pl.DataFrame:
    """What appendix G prints and Figure 4c holds, beside the run's own; the threshold is Blackwell's on GSM8K."""
    rows = [*_shares(), *_bins(), *_masses(), *_threshold()]
    return beside(rows, lambda: _own(sources), "none")


def _shares() -> Iterator[dict[str, Any]]:
    for domain in PRINTED:
        targets = published_profiles()[f"qwen3-8b-{domain.lower()}"].targets
        for place, group in enumerate(GROUPS):
            known = targets[f"first rejection, ranks: {group}"]
            middle = (known.low + known.high) / 2
            ends = {"low": known.low, "high": known.high}
            yield {"panel": "a", "source": PUBLISHED, "series": f"Qwen3-8B, {domain}", "x": place, "y": middle, **ends}


def _bins() -> Iterator[dict[str, Any]]:
    targets = published_profiles()["qwen3-8b-gsm8k"].targets
    for low, high in ((0.6, 0.7), (0.9, 1.0)):
        known = targets[f"hit rate at depth 1: {low}-{high}"]
        ends = {"low": known.low, "high": known.high}
        series = "Qwen3-8B, three domains (range)"
        yield {
            "panel": "b",
            "source": PUBLISHED,
            "series": series,
            "x": (low + high) / 2,
            "y": (known.low + known.high) / 2,
            **ends,
        }


def _masses() -> Iterator[dict[str, Any]]:
    for row in frame("masses").iter_rows(named=True):
        yield {"panel": "c", "source": PUBLISHED, "series": row["curve"], "x": row["budget"], "y": row["mass"]}


def _threshold() -> Iterator[dict[str, Any]]:
    mass = frame("masses").filter(curve="qwen3-8b-gsm8k")["mass"].to_numpy()
    curve = open_probe("blackwell-qwen3-8b").curve()
    line = affine_cost(curve, float(curve.draft_ms[0, 0]))
    rate = throughput_tok_per_ms(mass, fixed_ms=line.fixed_ms, slope_ms=line.slope_ms) * line.slope_ms
    for n, y in enumerate(rate[:-1].tolist(), start=1):
        yield {"panel": "c", "source": PUBLISHED, "series": "threshold, Blackwell, GSM8K", "x": n, "y": y}


def _own(sources: Sources) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, found in sources.diagnoses.items():
        if name != "all":
            continue
        base = {"source": sources.own, "series": sources.own}
        share = found.rejections / max(found.rejections.sum(), 1)
        for place, (low, high) in enumerate(((1, 4), (4, 8))):
            rows.append({**base, "panel": "a", "x": place, "y": float(share[low:high].sum())})
        count, confidence, hits = (
            t[ON, 0] for t in (found.reliability.count, found.reliability.confidence, found.reliability.hits)
        )
        for i in np.flatnonzero(count >= FEWEST).tolist():
            rows.append({**base, "panel": "b", "x": float(confidence[i] / count[i]), "y": float(hits[i] / count[i])})
        rows += [
            {**base, "panel": "c", "x": n, "y": float(m)}
            for n, m in enumerate(found.mass / found.rounds, start=1)
            if m > 0
        ]
    return rows


def draw(found: pl.DataFrame, axes: Any) -> None:
    """Three panels; where the paper prints a range, the range is drawn."""
    for axis, panel, title in zip(axes, PANELS, TITLES, strict=True):
        part = found.filter(panel=panel)
        if not len(part):
            empty(axis, "Not drawn: no data.")
            continue
        (bars if panel == "a" else _curves)(axis, part)
        axis.set_title(title)
        axis.legend()
    axes[0].set(
        xticks=range(len(GROUPS)), xticklabels=[f"rank {g}" for g in GROUPS], ylabel="share of first rejections"
    )
    axes[1].plot([0, 1], [0, 1], color="0.8", linestyle="--", linewidth=0.8, zorder=0)
    axes[1].set(xlabel="probability of a candidate", ylabel="hit rate")
    axes[2].set(xlabel="node N in best-first order", ylabel="mass, probability", yscale="log")


def _curves(axis: Any, part: pl.DataFrame) -> None:
    for (name,), rows in part.group_by("series", maintain_order=True):
        if str(name).startswith("threshold"):
            axis.plot(rows["x"], rows["y"], linestyle="--", color="0.4", label=str(name))
            continue
        marker = "" if len(rows) > 20 else "o"
        (line,) = axis.plot(
            rows["x"], rows["y"], marker=marker, linestyle="" if "range" in str(name) else "-", label=str(name)
        )
        if rows["low"].is_not_null().any():
            axis.vlines(rows["x"], rows["low"], rows["high"], color=line.get_color(), linewidth=1.2)
