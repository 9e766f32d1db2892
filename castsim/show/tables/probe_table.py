"""The table of `castsim probe`."""

from __future__ import annotations

from rich.table import Table

from castsim.base.terminal import table
from castsim.costs.probefile import Probe


def probe_table(found: Probe) -> Table:
    """A row for each packed count, a column for each prefix and batch size."""
    curve = found.curve()
    error = curve.error_ms()
    places = [(p, b) for p in range(len(curve.prefix)) for b in range(len(curve.batch))]
    heads = [f"prefix {curve.prefix[p]}, batch {curve.batch[b]}" for p, b in places]
    grid = table("Target's pass, ms", "packed tokens", *heads)
    for n, packed in enumerate(curve.packed.tolist()):
        spread = [f" +- {error[p, b, n]:.2f}" if error is not None else "" for p, b in places]
        cells = [f"{curve.ms[p, b, n]:.2f}" for p, b in places]
        grid.add_row(str(packed), *(cell + more for cell, more in zip(cells, spread, strict=True)))
    if found.draft_ms is not None:
        grid.add_row("drafter", *(f"{curve.draft_ms[p, b]:.2f}" for p, b in places))
    return grid
