"""The picture of `castsim calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from castsim.show.plots import ALL, COLOURS, canvas

FEWEST = 20  # a hit rate of fewer candidates is noise


def calibrate_figure(domains: dict[str, dict[str, Any]], source: str, file: Path) -> None:
    """Draw the four diagnostics of a run as PNG, SVG or PDF (by the file's ending)."""
    colours = {name: ALL if name == "all" else COLOURS[i % len(COLOURS)] for i, name in enumerate(domains)}
    title = f"Drafter diagnostics on the chain's rounds. Source: {source}"
    with canvas(file, 2, 2, (11, 8), title) as axes:
        _rejections(axes[0, 0], domains, colours)
        _reliability(axes[0, 1], domains, colours)
        _masses(axes[1, 0], domains, colours)
        _errors(axes[1, 1], domains["all"])


def _rejections(axis: Any, domains: dict[str, dict[str, Any]], colours: dict[str, str]) -> None:
    width = 0.8 / len(domains)
    for i, (name, found) in enumerate(domains.items()):
        share = [*found["first_rejection_share_by_rank"], found["first_rejection_share_beyond_kept"]]
        places = [x + (i - (len(domains) - 1) / 2) * width for x in range(len(share))]
        axis.bar(places, [100 * (s or 0) for s in share], width, color=colours[name], label=name)
    labels = [str(rank + 2) for rank in range(len(share) - 1)]
    axis.set_xticks(range(len(share)), [*labels, f">{labels[-1] if labels else 1}"])
    axis.set(
        title="a. Target's token at the first rejection", xlabel="rank in the marginal", ylabel="share of rejections, %"
    )
    axis.legend(frameon=False)


def _reliability(axis: Any, domains: dict[str, dict[str, Any]], colours: dict[str, str]) -> None:
    axis.plot([0, 1], [0, 1], color="0.7", linewidth=1, linestyle="--")
    for name, found in domains.items():
        bins = [b for b in found["reliability"] if b["depth"] == 1 and b["spine"] == "on"]
        first = [b for b in bins if b["candidates"] >= FEWEST]
        axis.plot(
            [b["mean_probability"] for b in first],
            [b["hit_rate"] for b in first],
            "o-",
            color=colours[name],
            markersize=4,
            label=name,
        )
    axis.set(
        title="b. Reliability at depth 1",
        xlabel=f"mean candidate probability of a bin (bins of {FEWEST} candidates or more)",
        ylabel="hit rate",
    )
    axis.legend(frameon=False)


def _masses(axis: Any, domains: dict[str, dict[str, Any]], colours: dict[str, str]) -> None:
    for name, found in domains.items():
        mass = [m or None for m in found["mean_sorted_mass"]]  # a log axis has no zero
        axis.plot(range(1, len(mass) + 1), mass, color=colours[name], label=name)
    axis.set(
        title="c. Mean sorted prefix mass",
        xlabel="node N in best-first order",
        ylabel="mass, probability",
        yscale="log",
    )
    axis.legend(frameon=False)


def _errors(axis: Any, found: dict[str, Any]) -> None:
    for side, colour, marker in (("on_spine", COLOURS[0], "o"), ("off_spine", COLOURS[5], "s")):
        error = found["expected_calibration_error_by_depth"][side]
        axis.plot(
            range(1, len(error) + 1), error, color=colour, marker=marker, markersize=4, label=side.replace("_", " ")
        )
    axis.set(
        title="d. Expected calibration error, all domains", xlabel="depth", ylabel="error, probability", ylim=(0, None)
    )
    axis.legend(frameon=False)
