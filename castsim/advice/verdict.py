"""The whole answer of `castsim width`: one document for people, machines and the picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from castsim import __version__
from castsim.advice.acceptance import Acceptance
from castsim.advice.width import by_batch, by_prefix, noise, rules, verdict, widths
from castsim.base import terminal
from castsim.base.errors import OptionError
from castsim.costs.context import Context
from castsim.costs.curve import Cost
from castsim.costs.match import differences, of_probe, told
from castsim.costs.probefile import Probe
from replay.latency import LINE_FROM, LINE_TO
from replay.width import expected_accepted


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked.

    Attributes:
        name: what the probe was called.
        cost: of its curve at one context and batch size.
        grid: widths to choose from, rising, that the probe prices; those that R is known at count.
        context: what the cost is for.
        strict: refuse a probe of another deployment than that of the rounds.
        named: widths that the user asked for by number; those that get no answer are told.
    """

    name: str
    probe: Probe
    cost: Cost
    grid: tuple[int, ...]
    context: Context
    batch: int
    seed: int
    strict: bool = False
    named: tuple[int, ...] = ()


def answer(asked: Question, found: Acceptance, more: Sequence[dict[str, Any]] = ()) -> dict[str, Any]:
    """Rules, widths, noise, curves and caveats, with the verdict first among them.

    Args:
        asked: the probe and what to do with it.
        found: masses and R.
        more: rows of `castsim.advice.per_round` for the table of widths.

    Raises:
        OptionError: R is known at none of the widths, or rounds and probe differ where `asked` is strict.
    """
    cost, seed, whole = asked.cost, asked.seed, asked.probe.curve()
    grid = tuple(n for n in asked.grid if n in found.budgets)
    if not grid:
        known = ", ".join(map(str, found.budgets))
        raise OptionError(f"--budgets {asked.grid[0]}: R is known at {known} only; give one of them")
    mismatch = differences(found.deployment, of_probe(asked.probe))
    warning = told(mismatch, asked.strict)
    answers = rules(cost, found, grid)
    rows = widths(cost, found, grid, seed)
    deployed = next(rule["deployed"] for rule in answers if rule["rule"] == "measured")
    document = {
        "verb": "width",
        "version": __version__,
        "probe": {
            "name": asked.name,
            **asked.probe.model_dump(include={"source", "target", "drafter", "drafter_kind", "gpu", "device", "dtype"}),
        },
        "acceptance": {
            "source": found.source,
            "depth_max": found.depth_max,
            "bounded": found.bounded,
            **asdict(found.deployment),
        },
        "mismatch": mismatch,
        "grid": grid,
        "prefix": int(cost.curve.prefix[0]),
        "prefix_held": asked.context.held,
        "batch": asked.batch,
        "draft_ms": cost.draft_ms,
        "overhead_ms": [cost.overhead.fixed_ms, cost.overhead.slope_ms],
        "verdict": verdict(rows, deployed),
        "rules": answers,
        "widths": [*rows, *more],
        "noise": noise(cost, found, grid, seed),
        "by_prefix": by_prefix(whole, cost, found, grid, asked.batch),
        "by_batch": by_batch(whole, cost, found, grid[-1], asked.context, seed),
        "cliffs": [c._asdict() for c in cost.curve.cliffs()],
        "transients": [t._asdict() for t in cost.curve.transients()],
        **_curves(cost, found, grid[-1]),
    }
    return {**document, "caveats": [*_caveats(document, asked, found, warning)]}


def _curves(cost: Cost, found: Acceptance, largest: int) -> dict[str, Any]:
    """What the picture shows besides."""
    curve, affine = cost.curve, cost.affine()
    mass = found.mass[:largest]
    document: dict[str, Any] = {
        "curve": {
            "packed": curve.packed.tolist(),
            "ms": curve.ms[0, 0].tolist(),
            "smoothed_ms": curve.smoothed().ms[0, 0].tolist(),
        },
        "mass": mass.tolist(),
    }
    if affine is None:
        return document
    used, line = curve.line_points()[0], curve.line(cost.method)
    committed = 1 + expected_accepted(mass)[:-1]
    threshold = committed / (affine.fixed_ms + affine.slope_ms * np.arange(len(committed))) * affine.slope_ms
    document["curve"] |= {
        "line_packed": [int(used[0]), int(used[-1])],
        "intercept_ms": line.intercept_ms,
        "line_slope_ms": line.slope_ms,
    }
    return {**document, "threshold": threshold.tolist()}


def _caveats(document: dict[str, Any], asked: Question, found: Acceptance, warning: list[str]) -> list[str]:
    """The verdict in words, and what a reader must know."""
    return [
        verdict_told(document["verdict"], found.depth_max),
        *warning,
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
        asked.context.told,
        *_left_out(asked, document["grid"], found),
        *_of_cost(document, asked, found.depth_max),
        *found.notes,
        f"R: {found.source}. Gain in time over the chain of {found.depth_max}; {_interval_of(asked.cost, found)}.",
    ]


def _left_out(asked: Question, grid: Sequence[int], found: Acceptance) -> list[str]:
    """The named widths without an answer, and why."""
    beyond = [n for n in asked.named if n > asked.cost.most]
    unknown = [n for n in asked.named if n <= asked.cost.most and n not in grid]
    most, known = f"the probe prices trees of at most {asked.cost.most} nodes", ", ".join(map(str, found.budgets))
    reasons = ((beyond, most), (unknown, f"R is known at {known} only"))
    return [f"No answer for N = {', '.join(map(str, left))}: {why}." for left, why in reasons if left]


def _interval_of(cost: Cost, found: Acceptance) -> str:
    """What the intervals join."""
    parts = ["the resampled prompts"] if found.tally is not None else []
    parts += ["the probe's noise"] if cost.curve.samples_ms is not None else []
    return f"intervals join {' and '.join(parts)}" if parts else "no interval, as neither prompts nor samples are known"


def verdict_told(answer: dict[str, Any], depth_max: int) -> str:
    """The verdict in one sentence."""
    tree, speedup = f"tree of N = {answer['budget']}", answer["speedup_over_ar"]
    best = tree if answer["budget"] is not None else "the chain"
    if answer["slower_than_ar"]:
        return f"Verdict: slower than decoding without a drafter: {speedup:.2f}x, with {best}."
    beside = "" if speedup is None else f" {speedup:.2f}x of decoding without a drafter."
    if answer["gain_over_chain"] is None:
        return f"Verdict: {tree}; the probe does not price the chain of {depth_max}.{beside}"
    ends = answer["gain_over_chain_ci95"]
    between = "without an interval" if ends is None else f"95 % interval {terminal.interval(ends, '{:+.1%}')}"
    gain = f"{answer['gain_over_chain']:+.1%} over the chain, {between}"
    words = {
        "tree": f"Verdict: {tree}, {gain}.",
        "chain": f"Verdict: chain; the best width would change throughput by {gain}.",
        "either": f"Verdict: neither is shown to be faster; N = {answer['budget']} gives {gain}.",
    }
    return words[answer["verdict"]] + beside


def _noise(found: dict[str, Any] | None) -> str:
    if found is None:
        return "The probe holds medians only: its noise is not known, and no interval has it."
    shares = "; ".join(
        f"{rule} " + ", ".join(f"{n} in {share:.0%}" for n, share in _often(part).items())
        for rule, part in found["share_by_width"].items()
    )
    return f"Probe drawn {found['draws']} times anew ({found['of']}, scatter {found['scatter']:.1%}): {shares}."


def _often(shares: dict[str, float]) -> dict[str, float]:
    """The widths that were picked most, at most five of them."""
    return dict(sorted(shares.items(), key=lambda item: -item[1])[:5])


def _of_cost(document: dict[str, Any], asked: Question, depth_max: int) -> list[str]:
    lines, cost = [], asked.cost
    affine = next((rule for rule in document["rules"] if rule["rule"] == "affine"), None)
    if affine is None:
        lines.append(
            f"No affine rule: the probe has fewer than two packed counts from {LINE_FROM} to {LINE_TO}, where its line "
            "is fitted."
        )
    elif affine["clamped"] == "slope":
        lines.append(
            "Warning: the line falls with n; its slope is clamped at 0, so the affine rule takes the largest width."
        )
    elif affine["clamped"] == "intercept":
        lines.append("Warning: the line starts below 0; the affine rule takes the one through 0.")
    if depth_max > cost.most:
        lines.append(
            f"The probe ends at {cost.most + 1} packed tokens: it prices trees of at most {cost.most} nodes, and not "
            f"the chain of {depth_max}."
        )
    if np.isnan(cost.ar_ms):
        lines.append("The probe has no pass of one token, so nothing is said of decoding without a drafter.")
    if document["overhead_ms"] == [0, 0]:
        remedy = "; --overhead puts it in" if "--overhead" in asked.context.flags else ""
        lines.append(f"Host overhead h(N) is left out, as in the paper's rule{remedy}.")
    return lines
