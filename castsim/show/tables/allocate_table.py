"""Tables of `castsim allocate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from castsim.base.terminal import interval, number, table
from castsim.scoring.allocate import ALLOCATORS


def allocate_tables(rows: Sequence[dict[str, Any]]) -> list[Table]:
    """Accepted tokens a request, and what each allocator gains on the even split."""
    heads = [head for name in ALLOCATORS for head in ([name] if name == "uniform" else [name, "gain"])]
    grid = table("Accepted draft tokens a request", "domain", "M / B", *heads)
    gains = table(
        "Gain of the shared tree over the even split",
        "domain",
        "M / B",
        "gain",
        "95 % interval",
        "committed",
        "hindsight",
    )
    for row in rows:
        cells = []
        for name in ALLOCATORS:
            found = row["allocators"][name]
            cells.append(f"{found['accepted_per_request']:.3f}")
            if name != "uniform":
                cells.append(number(found["gain_over_uniform"], "{:+.1%}"))
        grid.add_row(row["domain"], str(row["per_request"]), *cells)
        shared, bound = row["allocators"]["shared"], row["allocators"]["hindsight"]
        ends = interval(shared["gain_over_uniform_ci95"], "{:+.1%}")
        first, last = (number(found["gain_over_uniform"], "{:+.1%}") for found in (shared, bound))
        committed = f"{shared['committed_gain_over_uniform']:+.1%}"
        gains.add_row(row["domain"], str(row["per_request"]), first, ends, committed, last)
    return [grid, gains]
