"""Tables of `castsim replay`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from castsim.base.terminal import interval, number, table
from castsim.scoring.policies import option_fields
from castsim.show.tables import shown_domains
from replay import load_policies

REPLAY_COLUMNS = (
    "policy",
    "N",
    "R pooled",
    "R per prompt",
    "95 % interval",
    "gain over chain",
    "95 % interval",
    "nodes",
    "rounds",
    "censored",
)


def replay_tables(rows: Sequence[dict[str, Any]]) -> list[Table]:
    """One table a domain: R beside the chain's."""
    found = [row["domain"] for row in rows]
    shown = shown_domains(found)
    only = found[0] if found[0] not in shown else None
    return [_replay_table([row for row in rows if row["domain"] == name], only) for name in shown]


def _replay_table(rows: Sequence[dict[str, Any]], only: str | None) -> Table:
    first, of = rows[0], "" if only is None else f" of {only}"
    mode = first["mode"].replace("_", " ")
    grid = table(
        f"{first['domain']}  ({first['prompts']} prompts{of}, {mode}, rounds of {first['rounds_of']})", *REPLAY_COLUMNS
    )
    for row in rows:
        grid.add_row(
            label(row),
            str(row["budget"]),
            number(row["committed_pooled"], "{:.3f}"),
            number(row["committed_per_prompt"], "{:.3f}"),
            interval(row["ci95"], "{:.2f}"),
            number(row["gain_over_chain"], "{:+.1%}"),
            interval(row["gain_over_chain_ci95"], "{:+.1%}"),
            number(row["nodes"], "{:.1f}"),
            str(row["rounds"]),
            str(row["censored"]),
        )
    return grid


def label(row: dict[str, Any]) -> str:
    """The policy with the options that were set."""
    defaults = {f.name: f.default for f in option_fields(load_policies()[row["policy"]])}
    return " ".join([row["policy"], *(f"{k}={v}" for k, v in row["options"].items() if v != defaults[k])])
