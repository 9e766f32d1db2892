"""Tables of `castsim calibrate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from castsim.base.terminal import number, table
from castsim.show.tables import shown_domains

MASS_COLUMNS = (1, 4, 8, 16, 32, 48, 64, 96, 128)


def calibrate_tables(domains: dict[str, dict[str, Any]], loss: Sequence[dict[str, Any]]) -> list[Table]:
    """First-rejection ranks, reliability, calibration error by depth, mass curve and rank-cap loss."""
    whole, shown = domains["all"], shown_domains(domains)
    domains = {name: domains[name] for name in shown}
    loss = [row for row in loss if row["domain"] in shown]
    return [_rejection_table(domains), _bin_table(whole), _error_table(whole), _mass_table(domains), _cap_table(loss)]


def _rejection_table(domains: dict[str, dict[str, Any]]) -> Table:
    columns = ("domain", "rejections", "rank 2-4", "5-8", "9-K", "beyond K", "beyond the cap at any depth")
    grid = table("Rank of the target's token at the chain's first rejection", *columns)
    for name, found in domains.items():
        share = found["first_rejection_share_by_rank"]  # from rank 2 on
        groups = [part if part and None not in part else None for part in (share[0:3], share[3:7], share[7:])]
        cells = [None if part is None else sum(part) for part in groups]
        cells += [found["first_rejection_share_beyond_kept"], found["true_token_share_beyond_rank_cap"]]
        grid.add_row(name, str(found["first_rejections"]), *(number(cell, "{:.1%}") for cell in cells))
    return grid


def _bin_table(found: dict[str, Any]) -> Table:
    """Mean probability, hit rate and count of each bin at depth 1, and deeper on and off the spine."""
    places = {"depth 1": (1, "on"), "deeper, on spine": (2, "on"), "deeper, off spine": (2, "off")}
    grid = table("Reliability, all domains: mean probability, hit rate (candidates)", "bin", *places)
    for low in sorted({b["bin"][0] for b in found["reliability"]}):
        bins = [b for b in found["reliability"] if b["bin"][0] == low]
        cells = []
        for depth, spine in places.values():
            part = [b for b in bins if min(b["depth"], 2) == depth and b["spine"] == spine]
            count = sum(b["candidates"] for b in part)
            means = [
                sum(b["candidates"] * b[key] for b in part) / count for key in ("mean_probability", "hit_rate") if count
            ]
            cells.append(f"{means[0]:.3f}  {means[1]:.3f} ({count})" if count else "n/a")
        grid.add_row(f"{low:.1f}-{bins[0]['bin'][1]:.1f}", *cells)
    return grid


def _error_table(found: dict[str, Any]) -> Table:
    errors = found["expected_calibration_error_by_depth"]
    depths = (str(depth + 1) for depth in range(len(errors["on_spine"])))
    grid = table("Expected calibration error by depth, all domains", "spine", *depths)
    for side in ("on_spine", "off_spine"):
        grid.add_row(side.removesuffix("_spine"), *(number(error, "{:.3f}") for error in errors[side]))
    return grid


def _mass_table(domains: dict[str, dict[str, Any]]) -> Table:
    grid = table("Mean sorted mass rho_(N)", "domain", "rounds", *(f"N={n}" for n in MASS_COLUMNS))
    for name, found in domains.items():
        cells = (number(found["mean_sorted_mass"][n - 1], "{:.4f}") for n in MASS_COLUMNS)
        grid.add_row(name, str(found["rounds"]), *cells)
    return grid


def _cap_table(loss: Sequence[dict[str, Any]]) -> Table:
    cap, kept, mode = loss[0]["rank_cap"], loss[0]["ranks_kept"], loss[0]["mode"].replace("_", " ")
    title = f"Rank cap {cap} against all {kept} kept ranks ({mode})"
    grid = table(title, "domain", "N", "R capped", "R uncapped", "loss")
    for row in loss:
        means = (number(row[f"committed_pooled_{side}"], "{:.3f}") for side in ("capped", "uncapped"))
        grid.add_row(row["domain"], str(row["budget"]), *means, number(row["loss"], "{:.2%}"))
    return grid
