"""How wide: every rule's answer, throughput and gain at each width, and what the probe's noise does to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castsim.advice.acceptance import Acceptance
from castsim.advice.forecast import DRAWS, Timed, committed_draws, forecast
from castsim.base.numbers import ends_or_none, or_none
from castsim.costs.context import Context
from castsim.costs.curve import Cost, noisy_costs, scatter
from replay.latency import LatencyCurve
from replay.width import (
    AffineCost,
    Overhead,
    batch_stopping_budget,
    best_batch_budget,
    best_budget,
    best_rate,
    expected_accepted,
    on_grid,
    round_budgets,
    stopping_budget,
    throughput_tok_per_ms,
)

Array = NDArray[np.float64]
GRID = (15, 31, 47, 63, 95, 127)  # the paper's
BATCHES = 20  # random batches of a run's rounds for Proposition 3


def rules(cost: Cost, found: Acceptance, grid: Sequence[int]) -> list[dict[str, Any]]:
    """What each rule says, N*, and the width of the grid that it means; the affine one where a line can be fitted."""
    largest = grid[-1]
    mass, times, line = found.mass[:largest], cost.rounds_ms(largest), cost.affine()
    entries = [] if line is None else [_affine(mass, line, cost.method, grid)]
    entries += [
        _measured("measured", mass, times, grid),
        _measured("measured, raw points", mass, cost.rounds_ms(largest, raw=True), grid),
    ]
    if found.round_mass is not None:
        entries += _per_round(found.round_mass[:, :largest], times)
    return entries


def _affine(mass: Array, line: AffineCost, method: str, grid: Sequence[int]) -> dict[str, Any]:
    rate = throughput_tok_per_ms(mass, fixed_ms=line.fixed_ms, slope_ms=line.slope_ms)
    stop = stopping_budget(mass, fixed_ms=line.fixed_ms, slope_ms=line.slope_ms)
    return {
        "rule": "affine",
        "budget": stop,
        "deployed": on_grid(rate, grid),
        "tok_per_ms_expected": float(rate[stop]),
        "slope_ms": line.slope_ms,
        "slope_method": method,
        "clamped": line.clamped,
    }


def _measured(name: str, mass: Array, times: Array, grid: Sequence[int]) -> dict[str, Any]:
    best = best_budget(mass, times)
    rate = (1 + expected_accepted(mass)) / times
    return {
        "rule": name,
        "budget": best,
        "deployed": best_budget(mass, times, grid),
        "tok_per_ms_expected": float(rate[best]),
    }


def _per_round(mass: Array, times: Array) -> list[dict[str, Any]]:
    """Each round's own width: by its own ratio, and at the best rate of all rounds together."""
    entries = []
    gained = 1 + np.cumsum(np.pad(mass, ((0, 0), (1, 0))), axis=1)
    for name, rate in (("per round, own ratio", None), ("per round, best rate", best_rate(mass, times))):
        budget = round_budgets(mass, times, rate)
        low, high = np.quantile(budget, [0.1, 0.9])
        committed = gained[np.arange(len(mass)), budget]
        entries.append(
            {
                "rule": name,
                "budget": float(budget.mean()),
                "budget_p10_p90": [float(low), float(high)],
                "tok_per_ms_expected": float(committed.sum() / times[budget].sum()),
                **({} if rate is None else {"rate_tok_per_ms": rate}),
            }
        )
    return entries


def widths(cost: Cost, found: Acceptance, grid: Sequence[int], seed: int) -> list[dict[str, Any]]:
    """AR, the chain and each width of the grid: time, throughput, gain over the chain and speedup over AR.

    Intervals join the prompts that R was measured on, where they are known, and the probe's noise, where it has
    samples. Null stands for what the probe does not price, and for an interval that nothing is known of.
    """
    column = [0, *(1 + found.budgets.index(n) for n in grid)]
    budgets = [found.depth_max, *grid]
    tally = None if found.tally is None else (found.tally[0][:, column], found.tally[1][:, column])
    committed = found.committed[column]
    timed = forecast(cost, budgets, committed, committed_draws(committed, tally, seed), seed)
    known = cost.curve.samples_ms is not None or (tally is not None and len(tally[0]) > 1)
    line, expected = cost.affine(), 1 + expected_accepted(found.mass)
    rows = [_ar_row(timed, known)]
    for i, budget in enumerate(budgets):
        tree = i > 0
        before, threshold = budget - 1, None
        if tree and line is not None:
            threshold = float(line.slope_ms * expected[before] / (line.fixed_ms + line.slope_ms * before))
        rows.append(
            {
                "policy": "topN" if tree else "chain",
                "budget": budget,
                "packed": budget + 1,
                "mass": float(found.mass[budget - 1]) if tree else None,
                "threshold": threshold,
                "committed_expected": float(expected[budget]) if tree else None,
                "committed": float(committed[i]),
                "round_ms": or_none(timed.round_ms[i]),
                "tok_per_ms": or_none(1 / timed.ms_per_token[i]),
                "ms_per_token": or_none(timed.ms_per_token[i]),
                "gain_over_chain": or_none(timed.gain[i]),
                "gain_over_chain_ci95": ends_or_none(timed.gain_ci95[:, i], known),
                "speedup_over_ar": or_none(timed.speedup[i]),
                "speedup_over_ar_ci95": ends_or_none(timed.speedup_ci95[:, i], known),
            }
        )
    return rows


def _ar_row(timed: Timed, known: bool) -> dict[str, Any]:
    """Decoding without a drafter: a pass of one token for each token."""
    return {
        "policy": "AR",
        "budget": 0,
        "packed": 1,
        "mass": None,
        "threshold": None,
        "committed_expected": None,
        "committed": 1.0,
        "round_ms": or_none(timed.ar_ms),
        "tok_per_ms": or_none(1 / timed.ar_ms),
        "ms_per_token": or_none(timed.ar_ms),
        "gain_over_chain": or_none(timed.ar_gain),
        "gain_over_chain_ci95": ends_or_none(timed.ar_gain_ci95, known),
        "speedup_over_ar": None if np.isnan(timed.ar_ms) else 1.0,
        "speedup_over_ar_ci95": None,
    }


def noise(cost: Cost, found: Acceptance, grid: Sequence[int], seed: int) -> dict[str, Any] | None:
    """How often each width of the grid is deployed when the probe is drawn anew; None of a probe without samples."""
    if cost.curve.samples_ms is None:
        return None
    largest, rng = grid[-1], np.random.default_rng(seed)
    mass = found.mass[:largest]
    picks: dict[str, list[int]] = {"affine": [], "measured": []}
    for drawn in noisy_costs(cost, DRAWS, rng):
        if (line := drawn.affine()) is not None:
            rate = throughput_tok_per_ms(mass, fixed_ms=line.fixed_ms, slope_ms=line.slope_ms)
            picks["affine"].append(on_grid(rate, grid))
        picks["measured"].append(best_budget(mass, drawn.rounds_ms(largest), grid))
    return {
        "draws": DRAWS,
        "of": "samples of each point",
        "scatter": scatter(cost.curve),
        "share_by_width": {
            rule: {str(n): chosen.count(n) / DRAWS for n in grid if n in chosen}
            for rule, chosen in picks.items()
            if chosen
        },
    }


def by_prefix(
    curve: LatencyCurve, cost: Cost, found: Acceptance, grid: Sequence[int], batch: int
) -> list[dict[str, Any]]:
    """The affine and the measured answer at each prefix that was measured."""
    entries = []
    for prefix in curve.prefix.tolist():
        own = cost.at(curve.at(prefix, batch))
        answers = {rule["rule"]: rule for rule in rules(own, replace(found, round_mass=None), grid)}
        affine = answers.get("affine")
        slope = None if affine is None else affine["slope_ms"]
        entries.append({"prefix": prefix, "slope_ms": slope, "affine": affine, "measured": answers["measured"]})
    return entries


def by_batch(
    curve: LatencyCurve, cost: Cost, found: Acceptance, largest: int, context: Context, seed: int
) -> list[dict[str, Any]]:
    """Proposition 3 at each batch size that was measured: the total budget M of B requests, and M / B.

    Requests are random rounds of a run, or copies of the mean masses. A batch of a probe packs the same count for each
    request; M nodes shared unevenly are priced as the same number shared evenly.
    """
    entries, rng = [], np.random.default_rng(seed)
    for batch in curve.batch.tolist():
        own = cost.at(context.of(curve, batch))
        line, totals = replace(own, overhead=Overhead(own.overhead.fixed_ms)).affine(), np.arange(batch * largest + 1)
        times = replace(own, overhead=Overhead()).round_ms(totals / batch)
        times += own.overhead.fixed_ms + own.overhead.slope_ms * totals
        chosen = []
        for _ in range(BATCHES if found.round_mass is not None else 1):
            mass = _requests(found, batch, largest, rng)
            affine = np.nan
            if line is not None:
                slope = line.slope_ms / batch + own.overhead.slope_ms  # a line's node is one of each request
                affine = batch_stopping_budget(mass, fixed_ms=line.fixed_ms, slope_ms=slope)
            chosen.append((affine, best_batch_budget(mass, times)))
        affine, measured = np.mean(chosen, axis=0).tolist()
        entries.append({"batch": batch, "affine": or_none(affine), "measured": measured, "draws": len(chosen)})
    return entries


def _requests(found: Acceptance, batch: int, largest: int, rng: np.random.Generator) -> Array:
    """(B, N) masses of a batch."""
    if found.round_mass is None:
        return np.broadcast_to(found.mass[:largest], (batch, min(largest, len(found.mass))))
    return found.round_mass[rng.integers(len(found.round_mass), size=batch), :largest]


def verdict(rows: Sequence[dict[str, Any]], deployed: int) -> dict[str, Any]:
    """Tree or chain, from the gain at the measured rule's width, and whether it is faster than no drafter at all.

    A gain without an interval decides by its sign. A chain that the probe does not price leaves the tree.
    """
    chain = next(r for r in rows if r["policy"] == "chain")
    tree = next(r for r in rows if r["policy"] == "topN" and r["budget"] == deployed)
    gain = tree["gain_over_chain"]
    low, high = tree["gain_over_chain_ci95"] or (gain, gain)
    word = "tree" if gain is None or low > 0 else "chain" if high < 0 else "either"
    chosen = chain if word == "chain" else tree
    return {
        "verdict": word,
        "budget": deployed if word != "chain" else None,
        "gain_over_chain": gain,
        "gain_over_chain_ci95": tree["gain_over_chain_ci95"],
        "speedup_over_ar": chosen["speedup_over_ar"],
        "speedup_over_ar_ci95": chosen["speedup_over_ar_ci95"],
        "slower_than_ar": None if chosen["speedup_over_ar"] is None else chosen["speedup_over_ar"] < 1,
    }
