"""The picture of `castsim width`: what a pass costs, where a node stops paying, and what a width delivers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from castsim.show.plots import ALL, COLOURS, canvas

MARKED = 12  # widths that get a mark each
CHAIN, TREE, LINE = COLOURS[5], COLOURS[0], COLOURS[1]


def width_figure(document: dict[str, Any], file: Path) -> None:
    """Draw cost curve, threshold against mass, and throughput over width."""
    title = f"Probe: {document['probe']['name']}. Acceptance: {document['acceptance']['source']}"
    with canvas(file, 1, 3, (14, 4.2), title) as axes:
        _cost(axes[0, 0], document["curve"])
        _threshold(axes[0, 1], document)
        _throughput(axes[0, 2], document)


def _cost(axis: Any, curve: dict[str, Any]) -> None:
    axis.plot(curve["packed"], curve["ms"], "o", color=ALL, markersize=4, label="measured median")
    axis.plot(curve["packed"], curve["smoothed_ms"], color=TREE, label="smoothed")
    if "line_packed" in curve:
        low, high = curve["line_packed"]
        line = [curve["intercept_ms"] + curve["line_slope_ms"] * n for n in (low, high)]
        name = f"line, {1000 * curve['line_slope_ms']:.1f} us a token"
        axis.plot([low, high], line, color=LINE, linestyle="--", label=name)
    axis.set(title="a. Target's pass", xlabel="packed tokens n", ylabel="ms", ylim=(0, None))
    axis.legend(frameon=False)


def _threshold(axis: Any, document: dict[str, Any]) -> None:
    mass, threshold = document["mass"], document.get("threshold", [])
    axis.plot(range(1, len(mass) + 1), mass, color=TREE, label="mass of node N")
    if any(threshold):  # a clamped slope has no threshold to draw on a log axis
        axis.plot(range(1, len(threshold) + 1), threshold, color=LINE, linestyle="--", label="tokens a ms x ms a node")
    if threshold:
        stop = document["rules"][0]["budget"]
        axis.axvline(stop, color="0.85", linewidth=1, zorder=0)
        axis.annotate(f"N* = {stop}", (stop, mass[0]), ha="right", va="top", xytext=(-3, 0), textcoords="offset points")
    axis.set(title="b. Theorem 2", xlabel="node N in best-first order", ylabel="mass, probability", yscale="log")
    axis.legend(frameon=False, loc="lower left")


def _throughput(axis: Any, document: dict[str, Any]) -> None:
    chain = next(row for row in document["widths"] if row["policy"] == "chain")
    trees = [row for row in document["widths"] if row["policy"] == "topN" and row["gain_over_chain"] is not None]
    axis.set(title="c. Throughput over the chain's", xlabel="nodes N", ylabel="gain, % (95 % interval)")
    if not trees:
        axis.annotate("The probe does not price the chain.", (0.5, 0.5), xycoords="axes fraction", ha="center")
        return
    at, gain = [row["budget"] for row in trees], [100 * row["gain_over_chain"] for row in trees]
    if ends := [row["gain_over_chain_ci95"] for row in trees if row["gain_over_chain_ci95"]]:
        axis.fill_between(at, *([100 * end[i] for end in ends] for i in (0, 1)), color=TREE, alpha=0.2, linewidth=0)
    axis.plot(at, gain, "o-" if len(at) <= MARKED else "-", color=TREE, markersize=4, linewidth=1.2)
    axis.axhline(0, color=CHAIN, linewidth=1.2)
    axis.annotate(f"chain of {chain['budget']}", (at[-1], 0), ha="right", va="bottom", color=CHAIN)
    deployed = document["verdict"]["budget"]
    if deployed is not None:
        axis.axvline(deployed, color="0.85", linewidth=1, zorder=0)
