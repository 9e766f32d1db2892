"""Tables of `castsim live` and `castsim check`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from castsim.base.terminal import interval, number, table
from castsim.show.tables.replay_table import label

LIVE_BASELINES = {"speedup_over_ar": "over AR", "gain_over_chain": "over chain"}
EQUAL = {"prompts_equal_to_replay": "rounds = replay's", "prompts_equal_to_ar": "output = AR's"}


def live_table(rows: Sequence[dict[str, Any]], prompts: int) -> Table:
    """Live figures, in brackets what replay and forecast said; a missing baseline leaves its columns out."""
    over = [(key, name) for key, name in LIVE_BASELINES.items() if key in rows[0]]
    parts = list(rows[0]["shares"])
    heads = [h for _, name in over for h in (f"{name} (forecast)", "95 % interval")]
    equal = [head for key, head in EQUAL.items() if any(key in row for row in rows)]
    title = f"{prompts} prompts, pooled, live (and as said before)"
    grid = table(title, "method", "N", "ms/token (forecast)", *heads, "R (replay)", "packed (replay)", *equal, *parts)
    for row in rows:
        gains = [cell for key, _ in over for cell in _gain_cells(row, key)]
        grid.add_row(
            label({**row, "policy": row["method"]}) if row["options"] else row["method"],
            str(row["budget"] or ""),
            _beside(row["ms_per_token"], row["ms_per_token_forecast"], "{:.2f}"),
            *gains,
            _beside(row["committed_pooled"], row.get("committed_pooled_replay"), "{:.3f}"),
            _beside(row["packed"], row.get("packed_replay"), "{:.1f}"),
            *(_share_equal(row, key, prompts) for key, head in EQUAL.items() if head in equal),
            *(number(row["shares"][part], "{:.1%}") for part in parts),
        )
    return grid


def check_table(findings: Sequence[Any]) -> Table:
    """One line a check."""
    grid = table("Checks", "claim", "cases", "worst", "limit", "result", "where")
    for found in findings:
        numbers = (number(value, "{:.3g}") for value in (found.worst, found.limit))
        grid.add_row(found.name, str(found.cases), *numbers, "pass" if found.passed else "FAIL", found.note)
    return grid


def _gain_cells(row: dict[str, Any], key: str) -> tuple[str, str]:
    form = "{:+.1%}" if key == "gain_over_chain" else "{:.2f}x"
    return _beside(row[key], row[f"{key}_forecast"], form), interval(row[f"{key}_ci95"], form)


def _beside(value: float | None, said: float | None, form: str) -> str:
    """A figure, and in brackets what was said of it."""
    return number(value, form) + ("" if said is None else f" ({form.format(said)})")


def _share_equal(row: dict[str, Any], key: str, prompts: int) -> str:
    return f"{row[key]}/{prompts}" if key in row else ""
