"""Tables of `castsim fit-profile` and `castsim report-profile`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from castsim.base.terminal import table
from castsim.profiles.profile import Profile

KINDS = {"R": ("R pooled", "R per prompt", "R at every position"), "replayed R": ("R on chain",), "masses": ("mass",)}
SHARES = ("first rejection", "true token", "hit rate", "topN 128 rounds", "loss of R")


def profile_tables(profile: Profile) -> list[Table]:
    """A fitted profile: its statistics, and its parameters."""
    grid = table("Parameters", "name", "value", "")
    for name, value in profile.parameters.items():
        grid.add_row(name, f"{value:.4f}", "" if name in profile.fitted else "not fitted")
    return [_statistics(profile.name, profile.statistics, profile.held_out), grid]


def report_tables(found: dict[str, Any]) -> list[Table]:
    """One profile's report."""
    return [_statistics(found["name"], found["statistics"], found["held_out"])]


def _statistics(name: str, rows: Sequence[dict[str, Any]], held_out: Sequence[dict[str, Any]]) -> Table:
    unseen = {row["statistic"]: row["error"] for row in held_out}
    grid = table(
        f"{name}: simulated beside published", "statistic", "published", "simulated", "error", "held out", "aim", ""
    )
    for row in rows:
        low, high = row["low"], row["high"]
        printed = f"{low:.3f}" if low == high else f"{low:.3f}-{high:.3f}"
        other = unseen.get(row["statistic"])
        grid.add_row(
            row["statistic"],
            printed,
            f"{row['simulated']:.3f}",
            f"{row['error']:+.1%}",
            "" if other is None else f"{other:+.1%}",
            f"{row['aim']:.1%}",
            "" if row["within"] else "misses",
        )
    return grid


def summary_table(profiles: Sequence[Profile]) -> Table:
    """Profiles that were fitted together."""
    return errors_table(
        [{"name": p.name, **p.model_dump(include={"statistics", "held_out", "borrowed_from"})} for p in profiles]
    )


def errors_table(found: Sequence[dict[str, Any]]) -> Table:
    """One line a profile: worst error of each kind, and what misses its aim."""
    grid = table(
        "Worst errors by profile", "profile", *KINDS, "shares", "held out R, median", "within aims", "borrowed from"
    )
    for one in found:
        rows = one["statistics"]
        cells = [_worst([r for r in rows if r["statistic"].startswith(kinds)]) for kinds in KINDS.values()]
        cells.append(_worst([r for r in rows if r["statistic"].startswith(SHARES)]))
        unseen = [abs(r["error"]) for r in one["held_out"] if r["statistic"].startswith("R ")]
        within = sum(r["within"] for r in rows)
        grid.add_row(
            one["name"],
            *cells,
            f"{np.median(unseen):.1%}" if unseen else "",
            f"{within} of {len(rows)}",
            one["borrowed_from"] or "",
        )
    return grid


def _worst(rows: Sequence[dict[str, Any]]) -> str:
    return f"{max((r['error'] for r in rows), key=abs):+.1%}" if rows else ""
