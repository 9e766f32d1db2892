"""Tables of `castsim width`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from castsim.base.terminal import interval, number, table

SHOWN = (1, 3, 7, 15, 31, 47, 63, 95, 127)  # of all widths; beside them what the rules say
FEW = 12  # rows that are shown as they are


def width_tables(document: dict[str, Any], shorten: bool = False) -> list[Table]:
    """Rules, widths, and what prefixes and batches change; of many widths only some, if they are to be shortened."""
    rows = _some(document) if shorten and len(document["grid"]) > FEW else document["widths"]
    found = [_rules(document["rules"]), _widths(rows)]
    if len(document["by_prefix"]) > 1:
        found.append(_prefixes(document["by_prefix"]))
    if len(document["by_batch"]) > 1:
        found.append(_batches(document["by_batch"]))
    return found


def _some(document: dict[str, Any]) -> list[dict[str, Any]]:
    wanted = {*SHOWN, *(rule.get("deployed") for rule in document["rules"])}
    return [row for row in document["widths"] if row["policy"] != "topN" or row["budget"] in wanted]


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
        said = {None: "", "slope": ", fell: clamped", "intercept": ", began below 0: clamped"}
        clamped = said[row["clamped"]]
        return f"Theorem 2, {row['slope_method'].replace('_', ' ')} slope {row['slope_ms']:.4f} ms a node{clamped}"
    if "budget_p10_p90" in row:
        low, high = row["budget_p10_p90"]
        rate = f", rate {row['rate_tok_per_ms']:.4f}" if "rate_tok_per_ms" in row else ""
        return f"mean; rounds from {low:.0f} (10 %) to {high:.0f} (90 %){rate}"
    return "best of the curve" if "raw" in row["rule"] else "best of the smoothed curve"


def _widths(rows: Sequence[dict[str, Any]]) -> Table:
    ends = "95 % interval"
    columns = ("N", "mass", "threshold", "R", "round ms", "tok/ms", "ms/token", "over AR", "gain over chain", ends)
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
            number(row["speedup_over_ar"], "{:.2f}x"),
            number(row["gain_over_chain"], "{:+.1%}"),
            interval(row["gain_over_chain_ci95"], "{:+.1%}"),
        )
    return grid


def _prefixes(rows: Sequence[dict[str, Any]]) -> Table:
    grid = table("Width by prefix", "prefix", "slope ms", "affine N*", "on the grid", "measured N*", "on the grid")
    for row in rows:
        answers = (row["affine"] or {}, row["measured"])
        cells = [str(rule.get(key, "n/a")) for rule in answers for key in ("budget", "deployed")]
        grid.add_row(str(row["prefix"]), number(row["slope_ms"], "{:.4f}"), *cells)
    return grid


def _batches(rows: Sequence[dict[str, Any]]) -> Table:
    columns = ("affine M*", "nodes a request", "measured M*", "nodes a request", "batches drawn")
    grid = table("Shared budget by batch size (Proposition 3)", "requests", *columns)
    for row in rows:
        shared = [
            (row[rule], None if row[rule] is None else row[rule] / row["batch"]) for rule in ("affine", "measured")
        ]
        cells = [number(x, "{:.1f}") for pair in shared for x in pair]
        grid.add_row(str(row["batch"]), *cells, str(row["draws"]))
    return grid
