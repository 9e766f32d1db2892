"""The whole answer of `castsim width`: one document for people, machines and the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from castsim import __version__, show
from castsim.errors import OptionError
from castsim.pricing.acceptance import Acceptance
from castsim.pricing.cost import Cost, require_reach
from castsim.pricing.probefile import Probe
from castsim.pricing.width import by_batch, by_prefix, noise, rules, verdict, widths
from replay.latency import LINE_FROM, LINE_TO
from replay.width import expected_accepted


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked.

    Attributes:
        name: what the probe was called.
        cost: of its curve at one prefix and batch size.
        grid: widths to choose from, rising.
        prefix: as asked; None is the probe's smallest.
    """

    name: str
    probe: Probe
    cost: Cost
    grid: tuple[int, ...]
    prefix: int | None
    batch: int
    seed: int


def answer(asked: Question, found: Acceptance, more: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Rules, widths, noise, curves and caveats, with the verdict first among them.

    Args:
        asked: the probe and what to do with it.
        found: masses and R.
        more: rows of `castsim.pricing.played` for the table of widths.

    Raises:
        OptionError: R is known at none of the widths.
    """
    cost, seed, whole = asked.cost, asked.seed, asked.probe.curve()
    require_reach(cost, found.depth_max)
    grid = tuple(n for n in asked.grid if n in found.budgets)
    if not grid:
        known = ", ".join(map(str, found.budgets))
        raise OptionError(f"--budgets {asked.grid[0]}: R is known at {known} only; give one of them")
    answers = rules(cost, found, grid)
    rows = widths(cost, found, grid, seed)
    deployed = next(rule["deployed"] for rule in answers if rule["rule"] == "measured")
    document = {
        "verb": "width",
        "version": __version__,
        "probe": {
            "name": asked.name,
            **asked.probe.model_dump(include={"source", "target", "drafter", "gpu", "device", "dtype"}),
        },
        "acceptance": {"source": found.source, "depth_max": found.depth_max, "bounded": found.bounded},
        "grid": grid,
        "prefix": int(cost.curve.prefix[0]),
        "batch": asked.batch,
        "draft_ms": cost.draft_ms,
        "overhead_ms": [cost.overhead.fixed_ms, cost.overhead.slope_ms],
        "verdict": verdict(rows, deployed),
        "rules": answers,
        "widths": [*rows, *more],
        "noise": noise(cost, found, grid, seed),
        "by_prefix": by_prefix(whole, cost, found, grid, asked.batch),
        "by_batch": by_batch(whole, cost, found, grid[-1], asked.prefix, seed),
        "cliffs": [c._asdict() for c in cost.curve.cliffs()],
        "transients": [t._asdict() for t in cost.curve.transients()],
        **_curves(cost, found, grid[-1]),
    }
    return {**document, "caveats": _caveats(document, asked, found)}


def _curves(cost: Cost, found: Acceptance, largest: int) -> dict[str, Any]:
    """What the picture shows besides."""
    curve, line, affine = cost.curve, cost.curve.line(cost.method), cost.affine()
    used = curve.packed[(curve.packed >= LINE_FROM) & (curve.packed <= LINE_TO)]
    committed = 1 + expected_accepted(found.mass[:largest])[:-1]
    threshold = committed / (affine.fixed_ms + affine.slope_ms * np.arange(len(committed))) * affine.slope_ms
    return {
        "curve": {
            "packed": curve.packed.tolist(),
            "ms": curve.ms[0, 0].tolist(),
            "smoothed_ms": curve.smoothed().ms[0, 0].tolist(),
            "line_packed": [int(used[0]), int(used[-1])],
            "intercept_ms": line.intercept_ms,
            "line_slope_ms": line.slope_ms,
        },
        "mass": found.mass[:largest].tolist(),
        "threshold": threshold.tolist(),
    }


def _caveats(document: dict[str, Any], asked: Question, found: Acceptance) -> list[str]:
    """The verdict in words, and what a reader must know."""
    return [
        _verdict(document["verdict"]),
        *(
            f"The curve has a cliff: {c['rise']:+.0%} from n = {c['below']} to {c['above']}."
            for c in document["cliffs"]
        ),
        *(
            f"n = {t['packed']} took {t['measured_ms']:.2f} ms, its neighbours say {t['neighbours_ms']:.2f}; "
            "it is taken for a transient."
            for t in document["transients"]
        ),
        _noise(document["noise"]),
        *asked.probe.notes,
        *_of_cost(document, asked.cost, asked.prefix),
        *found.notes,
        f"R: {found.source}. Gain in time over the chain of {found.depth_max}; intervals join "
        f"{'the resampled prompts and ' if found.tally is not None else ''}the probe's noise.",
    ]


def _verdict(answer: dict[str, Any]) -> str:
    gain = f"{answer['gain_over_chain']:+.1%} over the chain, 95 % interval " + show.interval(
        answer["gain_over_chain_ci95"], "{:+.1%}"
    )
    words = {
        "tree": f"Verdict: tree of N = {answer['budget']}, {gain}.",
        "chain": f"Verdict: chain; the best width would change throughput by {gain}.",
        "either": f"Verdict: neither is shown to be faster; N = {answer['budget']} gives {gain}.",
    }
    return words[answer["verdict"]]


def _noise(found: dict[str, Any]) -> str:
    shares = "; ".join(
        f"{rule} " + ", ".join(f"{n} in {share:.0%}" for n, share in part.items())
        for rule, part in found["share_by_width"].items()
    )
    return f"Probe drawn {found['draws']} times anew ({found['of']}, scatter {found['scatter']:.1%}): {shares}."


def _of_cost(document: dict[str, Any], cost: Cost, prefix: int | None) -> list[str]:
    lines = []
    if document["rules"][0]["clamped"]:
        lines.append(
            "Warning: the line falls with n; its slope is clamped at 0, so the affine rule takes the largest width."
        )
    if prefix is not None and prefix != cost.curve.prefix[0]:
        lines.append(
            f"Warning: prefix {prefix} lies outside the probe; its prefix {cost.curve.prefix[0]} stands for it."
        )
    if document["overhead_ms"] == [0, 0]:
        lines.append("Host overhead h(N) is left out, as in the paper's rule; --overhead puts it in.")
    return lines
