"""Tables of `castsim serve`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from castsim.base.terminal import table


def serve_tables(rows: Sequence[dict[str, Any]], waits: bool) -> list[Table]:
    """Goodput by load and controller, then waits if they mean something."""
    speed = table(
        "Goodput", "load", "controller", "tokens/s", "over best static", "R", "nodes", "requests", "packed", "ms a pass"
    )
    waited = table(
        "Waits, ms", "load", "controller", "first token p50", "p95", "p99", "output token p50", "p95", "p99", "in time"
    )
    for row in rows:
        gain = row["gain_over_best_static"]
        speed.add_row(
            row["load"],
            row["controller"] + (" *" if row["best"] else ""),
            f"{row['goodput_tok_per_s']:.0f}",
            "" if gain is None else f"{gain:+.1%}",
            f"{row['round_length']:.2f}",
            f"{row['nodes_a_request']:.1f}",
            f"{row['requests_in_pass']:.1f}",
            f"{row['packed_a_pass']:.0f}",
            f"{row['ms_a_pass']:.2f}",
        )
        first, each = (
            [f"{v:.{d}f}" for v in row[n].values()] for n, d in (("first_token_ms", 0), ("output_token_ms", 2))
        )
        waited.add_row(row["load"], row["controller"], *first, *each, f"{row['within_share']:.0%}")
    return [speed, waited] if waits else [speed]
