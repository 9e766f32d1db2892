"""Table 3 again: the mean of the prompts' own gains over DFlash, and its paired bootstrap interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.table import Table

from castsim.base.terminal import interval, table
from castsim.published import frame, short
from replay.bootstrap import paired_bootstrap

DRAWS = 10_000  # the paper's


def prompt_gains(seed: int = 0) -> list[dict[str, Any]]:
    """Gain in per cent of each setting and domain, greedy rows, beside what is printed.

    A prompt's gain is its DFlash time over its CAST time, less 1; the mean is over prompts, not of times.
    """
    rows = []
    for (setting, domain), part in frame("prompts").group_by("setting", "domain", maintain_order=True):
        ratio = (part["dflash_ms"] / part["cast_ms"]).to_numpy()[:, None]

        def mean_gain(weight: NDArray[np.float64], ratio: NDArray[np.float64] = ratio) -> NDArray[np.float64]:
            return 100 * (weight @ ratio / weight.sum(axis=1, keepdims=True) - 1)

        ends = paired_bootstrap(mean_gain, len(ratio), rng=np.random.default_rng(seed), draws=DRAWS)[:, 0]
        rows.append(
            {
                "setting": setting,
                "domain": domain,
                "budget": int(part["budget"][0]),
                "prompts": len(ratio),
                "gain": float(100 * (ratio.mean() - 1)),
                "gain_ci95": ends.tolist(),
                "printed": _printed(str(setting), str(domain)),
            }
        )
    return rows


def _printed(setting: str, domain: str) -> list[float]:
    """Mean, low and high end as Table 3 prints them."""
    target = short(frame("sweeps").filter(pl.col("setting") == setting)["target"][0])
    mine = frame("tables").filter(
        (pl.col("table") == 3)
        & (pl.col("target") == target)
        & (pl.col("domain") == domain)
        & pl.col("metric").str.starts_with("mean_prompt_gain")
    )
    return mine["value"].to_list()


def intervals_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Ours beside the printed ones."""
    heads = ("N", "prompts", "gain %", "95 % interval", "printed", "printed interval")
    grid = table(f"Table 3: mean gain of a prompt over DFlash, {DRAWS:,} draws of prompts", "setting, domain", *heads)
    for row in rows:
        mean, low, high = row["printed"]
        grid.add_row(
            f"{row['setting']}, {row['domain']}",
            str(row["budget"]),
            str(row["prompts"]),
            f"{row['gain']:+.1f}",
            interval(row["gain_ci95"], "{:+.1f}"),
            f"{mean:+.1f}",
            interval((low, high), "{:+.1f}"),
        )
    return grid
