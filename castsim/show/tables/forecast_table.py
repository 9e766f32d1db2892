"""The table of `castsim forecast`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from castsim.base.terminal import interval, number, table


def forecast_table(rows: Sequence[dict[str, Any]], prompts: int) -> Table:
    """AR, chain and trees: what a token should take."""
    columns = ("N", "nodes", "R", "round ms", "ms/token", "95 % interval", "over AR", "over chain", "95 % interval")
    grid = table(f"Forecast, {prompts} prompts", "policy", *columns)
    for row in rows:
        if row["policy"] == "AR":
            grid.add_row(
                "AR", "", "", "1", number(row["ms_per_token"], "{:.2f}"), number(row["ms_per_token"], "{:.3f}")
            )
            continue
        grid.add_row(
            row["policy"],
            str(row["budget"]),
            number(row["nodes"], "{:.1f}"),
            number(row["committed_pooled"], "{:.3f}"),
            number(row["round_ms"], "{:.2f}"),
            number(row["ms_per_token"], "{:.3f}"),
            interval(row["ms_per_token_ci95"], "{:.3f}"),
            number(row["speedup_over_ar"], "{:.2f}x"),
            number(row["gain_over_chain"], "{:+.1%}"),
            interval(row["gain_over_chain_ci95"], "{:+.1%}"),
        )
    return grid
