"""Tables of `castsim width`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from castsim.show import interval, number, table


def width_tables(document: dict[str, Any]) -> list[Table]:
    """Rules, widths, and what prefixes and batches change."""
    found = [_rules(document["rules"]), _widths(document["widths"])]
    if len(document["by_prefix"]) > 1:
        found.append(_prefixes(document["by_prefix"]))
    if len(document["by_batch"]) > 1:
        found.append(_batches(document["by_batch"]))
    return found


def _rules(rows: Sequence[dict[str, Any]]) -> Table:
    grid = table("Width by each rule", "rule", "N*", "on the grid", "tok/ms expected", "how")
    grid.columns[-1].justify = "left"
    for row in rows:
        exact = isinstance(row["budget"], int)
        grid.add_row(
            row["rule"],
            str(row["budget"]) if exact else f"{row['budget']:.1f}",
            str(row.get("deployed", "")),
            number(row["tok_per_ms_expected"], "{:.4f}"),
            _how(row),
        )
    return grid


def _how(row: dict[str, Any]) -> str:
    if "slope_ms" in row:
        clamped = ", fell: clamped" if row["clamped"] else ""
        return f"Theorem 2, {row['slope_method'].replace('_', ' ')} slope {row['slope_ms']:.4f} ms a node{clamped}"
    if "budget_p10_p90" in row:
        low, high = row["budget_p10_p90"]
        rate = f", rate {row['rate_tok_per_ms']:.4f}" if "rate_tok_per_ms" in row else ""
        return f"mean; rounds from {low:.0f} (10 %) to {high:.0f} (90 %){rate}"
    return "best of the curve" if "raw" in row["rule"] else "best of the smoothed curve"


def _widths(rows: Sequence[dict[str, Any]]) -> Table:
    columns = ("N", "mass", "threshold", "R", "round ms", "tok/ms", "ms/token", "gain over chain", "95 % interval")
    grid = table("Throughput at each width", "policy", *columns)
    for row in rows:
        grid.add_row(
            row["policy"],
            str(row["budget"]) if isinstance(row["budget"], int) else f"{row['budget']:.1f}",
            *("" if row[key] is None else f"{row[key]:.4f}" for key in ("mass", "threshold")),
            number(row["committed"], "{:.3f}"),
            number(row["round_ms"], "{:.2f}"),
            number(row["tok_per_ms"], "{:.4f}"),
            number(row["ms_per_token"], "{:.3f}"),
            number(row["gain_over_chain"], "{:+.1%}"),
            interval(row["gain_over_chain_ci95"], "{:+.1%}"),
        )
    return grid


def _prefixes(rows: Sequence[dict[str, Any]]) -> Table:
    grid = table("Width by prefix", "prefix", "slope ms", "affine N*", "on the grid", "measured N*", "on the grid")
    for row in rows:
        cells = [str(row[rule][key]) for rule in ("affine", "measured") for key in ("budget", "deployed")]
        grid.add_row(str(row["prefix"]), f"{row['slope_ms']:.4f}", *cells)
    return grid


def _batches(rows: Sequence[dict[str, Any]]) -> Table:
    columns = ("affine M*", "nodes a request", "measured M*", "nodes a request", "batches drawn")
    grid = table("Shared budget by batch size (Proposition 3)", "requests", *columns)
    for row in rows:
        cells = [f"{x:.1f}" for rule in ("affine", "measured") for x in (row[rule], row[rule] / row["batch"])]
        grid.add_row(str(row["batch"]), *cells, str(row["draws"]))
    return grid
