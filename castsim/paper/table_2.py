"""Table 2 again: every width from the published probes and masses under each rule, beside what the sweeps say.

Not reproduced: the deployed N* = 63 of Blackwell Qwen3-8B, 95 of Blackwell Qwen3-4B and 95 of A6000 Qwen3-8B. Theorem
2 with the least-squares line over n = 16..128, the drafter's time and the GSM8K masses stops at 47, at 126 and not at
all. No probe of A6000 Qwen3-4B is published; the one of Qwen3-8B stands for it, since that host decodes both at one
pace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from rich.table import Table

from castsim.advice.acceptance import published
from castsim.advice.width import rules
from castsim.base.terminal import number, table
from castsim.costs.context import context_of
from castsim.costs.curve import Cost, require_cost
from castsim.costs.probefile import open_probe
from castsim.published import CREDIT, frame, short
from replay.width import Overhead

MASSES = "qwen3-8b-gsm8k"  # one curve across deployments (section 4)
CAVEATS = [
    "Rules see probe and masses only, never the sweep. Gains: means of domain gains rounded to 0.1 %, as in Table 2; "
    "a gap is the gain at the rule's width, among those swept, less the best swept one, in points.",
    "affine: Theorem 2, least squares over n = 16..128; no stop: each node pays up to the largest swept width. "
    "measured: the best of the smoothed curve. Host overhead is left out.",
    "No probe of A6000 Qwen3-4B is published: that of Qwen3-8B stands for it (that host decodes both at one pace).",
    f"Probes, masses and sweeps: {CREDIT}.",
]


@dataclass(frozen=True)
class Setting:
    """One row of Table 2.

    Attributes:
        sweep, probe: names in sweeps.csv and of a published probe.
        own_probe: the probe is this target's.
    """

    sweep: str
    probe: str
    own_probe: bool = True


SETTINGS = (
    Setting("h100-sxm-qwen3-8b", "h100-sxm-qwen3-8b"),
    Setting("h100-sxm-qwen3-4b", "h100-sxm-qwen3-4b"),
    Setting("blackwell-qwen3-8b", "blackwell-qwen3-8b"),
    Setting("blackwell-qwen3-4b", "blackwell-qwen3-4b"),
    Setting("a6000-qwen3-8b", "a6000-qwen3-8b"),
    Setting("a6000-qwen3-4b", "a6000-qwen3-8b", own_probe=False),
    Setting("h100-sxm-llama3.1-8b", "h100-sxm-llama-3.1-8b"),
    Setting("h100-sxm-qwen3-coder-30b-a3b", "h100-sxm-qwen3-coder-30b-a3b"),
)


def domain_gains(sweep: str) -> pl.DataFrame:
    """Gain over DFlash in percent by domain and budget: the median of the repeats, rounded to 0.1 as printed."""
    rows = frame("sweeps").filter(pl.col("setting") == sweep)
    chain = rows.filter(pl.col("method") == "DFlash").select("run", "domain", chain_ms="ms_per_token")
    cast = rows.filter(pl.col("method") == "CAST").join(chain, on=["run", "domain"])
    gain = cast.with_columns(gain=100 * (pl.col("chain_ms") / pl.col("ms_per_token") - 1))
    return gain.group_by("domain", "budget", maintain_order=True).agg(pl.col("gain").median().round(1))


def mean_gains(sweep: str) -> dict[int, float]:
    """Mean over domains by swept budget, in percent."""
    means = domain_gains(sweep).group_by("budget").agg(pl.col("gain").mean()).sort("budget")
    return dict(means.iter_rows())


def setting_cost(setting: Setting) -> Cost:
    """The published probe of a setting, with its drafter time."""
    curve = open_probe(setting.probe).curve()
    return require_cost(curve, context_of(curve, None, None, False), 1, None, Overhead(), "least_squares")


def settings() -> list[dict[str, Any]]:
    """All eight settings: published, oracle, and each rule's width and gap."""
    return [_row(setting) for setting in SETTINGS]


def _row(setting: Setting) -> dict[str, Any]:
    sweep = frame("sweeps").filter(pl.col("setting") == setting.sweep).row(0, named=True)
    gains = mean_gains(setting.sweep)
    swept = tuple(gains)
    oracle = max(swept, key=lambda n: gains[n])
    found = published(MASSES, None, None, 128)
    answers = {rule["rule"]: rule for rule in rules(setting_cost(setting), found, swept)}
    deployed = int(sweep["deployed"])
    row = {
        "gpu": sweep["gpu"],
        "target": short(sweep["target"]),
        "swept": list(swept),
        "probe": setting.probe,
        "own_probe": setting.own_probe,
        "published": {"budget": deployed, **_gap(gains, deployed, oracle)},
        "oracle": {"budget": oracle, "gain": round(gains[oracle], 1)},
    }
    for name in ("affine", "measured"):
        rule = answers[name]
        row[name] = {"stops_at": rule["budget"], "budget": rule["deployed"], **_gap(gains, rule["deployed"], oracle)}
    return row


def _gap(gains: dict[int, float], budget: int, oracle: int) -> dict[str, float]:
    gain, best = (float(np.round(gains[n], 1)) for n in (budget, oracle))
    return {"gain": gain, "gap": round(gain - best, 1)}


def settings_table(rows: list[dict[str, Any]]) -> Table:
    """The eight settings side by side."""
    rules_of = ("published", "affine", "measured")
    heads = [h for name in rules_of for h in ((f"{name} N*", "gain %", "gap"))]
    grid = table("Table 2: width by each rule beside the sweep", "GPU, target", "oracle", "gain %", *heads)
    for row in rows:
        cells = [str(row["oracle"]["budget"]), f"{row['oracle']['gain']:+.1f}"]
        for name in rules_of:
            part = row[name]
            cells += [
                _shown(part, name, row["swept"][-1]),
                number(part["gain"], "{:+.1f}"),
                number(part["gap"], "{:+.1f}"),
            ]
        grid.add_row(f"{row['gpu']}, {row['target']}{'' if row['own_probe'] else ' (probe of 8B)'}", *cells)
    return grid


def _shown(part: dict[str, Any], name: str, largest: int) -> str:
    """A width, and beside it where the rule stopped, if that is another one or nowhere."""
    stop = part.get("stops_at", part["budget"])
    if name == "affine" and stop == largest:
        return f"{stop} (no stop)"
    return str(stop) if stop == part["budget"] else f"{stop} -> {part['budget']}"
