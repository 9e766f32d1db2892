"""Figure 1: one round of a run, as the chain verifies it and as the best-first tree of as many nodes does."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from castsim.show.figures import empty
from castsim.show.sources import MissingSourceError, Sources
from replay import Rounds, accepted, best_first, entry_budgets
from replay.forest import Forest

TITLE = "Figure 1. One round of the run: chain and tree of as many nodes"
PANELS = ("chain", "tree")  # on one pair of axes
AXES = 1
NODES, GAINED = 15, 3
SCHEMA = {
    "panel": pl.String,
    "source": pl.String,
    "row": pl.Int64,
    "parent": pl.Int64,
    "depth": pl.Int64,
    "text": pl.String,
    "mass": pl.Float64,
    "accepted": pl.Boolean,
}
GREEN, RED, AMBER = "#009E73", "#D55E00", "#B36B00"


def table(sources: Sources) -> pl.DataFrame:
    """Nodes of chain and tree of the round where the tree gains most."""
    try:
        return pl.DataFrame(_rows(sources), schema=SCHEMA)
    except MissingSourceError as error:
        return pl.DataFrame([{"panel": "none", "source": str(error)}], schema=SCHEMA)


def _rows(sources: Sources) -> list[dict[str, Any]]:
    run = sources.need_run()
    rounds = next(iter(run.rounds()))
    rounds = rounds.take(~rounds.censored)
    if not len(rounds):
        raise MissingSourceError("the run has no whole round")
    one = rounds.take(slice(row := _most_gained(rounds), row + 1))
    where = f"{sources.own}, prompt {one.prompt[0]}, position {one.position[0]}"
    chain = best_first(one.marginals.head(rank_cap=1), NODES)
    tree = best_first(one.marginals.head(rank_cap=8), NODES)
    text = _texts() if run.facts.target == "pair" else {}
    return [
        row
        for panel, forest in zip(PANELS, (chain, tree), strict=True)
        for row in _nodes(panel, where, forest, one.continuation[0].tolist(), text)
    ]


def _most_gained(rounds: Rounds) -> int:
    """A round where both accept something and the tree much more, of the most different words; the first of equals."""
    whole, spine = (
        accepted(
            entry_budgets(rounds.marginals, rounds.continuation, rounds.known, budget=NODES, rank_cap=cap), [NODES]
        )[:, 0]
        for cap in (8, 1)
    )
    words = np.array([len(set(row[:n])) for row, n in zip(rounds.continuation.tolist(), whole.tolist(), strict=True)])
    return int(np.where((spine > 0) & (whole - spine >= GAINED), words, whole - spine - GAINED).argmax())


def _nodes(panel: str, where: str, forest: Forest, true: list[int], text: dict[int, str]) -> list[dict[str, Any]]:
    rows, on_path = [], {0}
    for node in range(1, int(forest.width[0]) + 1):
        parent, depth, token = (int(a[0, node]) for a in (forest.parent, forest.depth, forest.token))
        right = parent in on_path and depth <= len(true) and token == true[depth - 1]
        if right:
            on_path.add(node)
        rows.append(
            {
                "panel": panel,
                "source": where,
                "row": node,
                "parent": parent,
                "depth": depth,
                "text": text.get(token, str(token)),
                "mass": float(np.exp(forest.score[0, node])),
                "accepted": right,
            }
        )
    return rows


@cache
def _texts() -> dict[int, str]:
    """The embedded pair's tokens as they read, a space as a dot below and a new line as a return."""
    from castsim.live.pair import PROMPTS

    file = PROMPTS.parent / "weights" / "target" / "tokenizer.json"
    vocab = json.loads(file.read_text(encoding="utf-8-sig"))["model"]["vocab"]
    shown = {"\u0120": "\u00b7", "\u010a": "\u21b5"}
    return {i: "".join(shown.get(c, c) for c in token).replace("$", r"\$") for token, i in vocab.items()}


def draw(found: pl.DataFrame, axes: Any) -> None:
    """Depth to the right; accepted nodes green, rejected ones red, prefix masses amber below them."""
    (axis,) = axes
    axis.set_axis_off()
    if "none" in found["panel"]:
        empty(axis, f"Not drawn: {found['source'][0]}.")
        return
    line = 0.0
    for panel in PANELS:
        part = found.filter(panel=panel)
        place = {0: (0.0, line), **{node: (x, y + line) for node, (x, y) in _places(part).items()}}
        count = int(part["accepted"].sum())
        words = f"{panel}: {len(part)} nodes, {count} accepted, {count + 1} tokens committed"
        axis.text(-0.4, line - 0.75, words, fontsize=9, weight="bold")
        _tree(axis, part, place)
        line = max(y for _, y in place.values()) + 2.2
    axis.set_xlim(-0.5, NODES + 0.5)
    axis.set_ylim(line - 1.2, -1.1)
    axis.text(-0.4, line - 1.3, found["source"][0], fontsize=7, color="0.4")


def _tree(axis: Any, part: pl.DataFrame, place: dict[int, tuple[float, float]]) -> None:
    axis.text(
        *place[0], "root", ha="center", va="center", fontsize=7, bbox={"boxstyle": "round", "fc": "0.9", "ec": "0.5"}
    )
    for row in part.iter_rows(named=True):
        (x, y), (px, py) = place[row["row"]], place[row["parent"]]
        colour = GREEN if row["accepted"] else RED
        axis.plot([px, x], [py, y], color=colour, linewidth=1, zorder=0)
        box = {"boxstyle": "round,pad=0.2", "fc": "white", "ec": colour}
        axis.text(x, y, row["text"], ha="center", va="center", fontsize=7, color=colour, bbox=box)
        plain = {"boxstyle": "square,pad=0.1", "fc": "white", "ec": "none"}
        axis.text(x, y + 0.42, f"{row['mass']:.2g}", ha="center", va="center", fontsize=6, color=AMBER, bbox=plain)


def _places(part: pl.DataFrame) -> dict[int, tuple[float, float]]:
    """x is the depth; a first child stands on its parent's line, every other one on a line of its own."""
    children: dict[int, list[int]] = {}
    for row in part.iter_rows(named=True):
        children.setdefault(row["parent"], []).append(row["row"])
    place: dict[int, tuple[float, float]] = {}
    lowest = 0

    def put(node: int, depth: int, line: int) -> None:
        nonlocal lowest
        for i, child in enumerate(children.get(node, [])):
            if i:
                lowest += 1
            own = line if i == 0 else lowest
            place[child] = (float(depth + 1), float(own))
            put(child, depth + 1, own)

    put(0, 0, 0)
    return place
