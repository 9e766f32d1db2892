"""The picture of `castsim serve`: goodput over load, for each controller, as Figure 7 has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from castsim.show.plots import ALL, COLOURS, canvas

MARKS = "osD^vP*X"


def serve_figure(document: dict[str, Any], file: Path) -> None:
    """Draw goodput, and the gain over the best static controller, over requests in flight or arrival rate."""
    rows = document["results"]
    key, label = ("batch", "requests in flight") if rows[0]["rate_per_s"] is None else ("rate_per_s", "arrivals, 1/s")
    with canvas(file, 1, 2, (10.5, 4.2), f"Cost: {document['cost']['source']}") as axes:
        for number, name in enumerate(dict.fromkeys(row["controller"] for row in rows)):
            own = [row for row in rows if row["controller"] == name]
            colour = (*COLOURS, ALL, "0.5")[number % 8]
            style = {"color": colour, "marker": MARKS[number % 8], "markersize": 4, "linewidth": 1.2, "label": name}
            at = [row[key] for row in own]
            axes[0, 0].plot(at, [row["goodput_tok_per_s"] for row in own], **style)
            axes[0, 1].plot(at, [100 * (row["gain_over_best_static"] or 0) for row in own], **style)
        for axis in axes[0]:
            axis.set_xscale("log", base=2)
            axis.set(xlabel=label)
        axes[0, 0].set(title="a. Goodput", ylabel="committed tokens a second", ylim=(0, None))
        axes[0, 1].set(title="b. Over the best static controller", ylabel="gain, %")
        axes[0, 0].legend(frameon=False)
