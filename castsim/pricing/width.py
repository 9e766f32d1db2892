"""How wide: every rule's answer, throughput and gain at each width, and what the probe's noise does to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castsim.forecast import DRAWS, committed_draws, forecast
from castsim.pricing.acceptance import Acceptance
from castsim.pricing.cost import Cost, noisy_costs, scatter
from replay.latency import LatencyCurve
from replay.width import (
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
    """What each rule says, N*, and the width of the grid that it means."""
    largest = grid[-1]
    mass, times, line = found.mass[:largest], cost.rounds_ms(largest), cost.affine()
    rate = throughput_tok_per_ms(mass, fixed_ms=line.fixed_ms, slope_ms=line.slope_ms)
    stop = stopping_budget(mass, fixed_ms=line.fixed_ms, slope_ms=line.slope_ms)
    entries = [
        {
            "rule": "affine",
            "budget": stop,
            "deployed": on_grid(rate, grid),
            "tok_per_ms_expected": float(rate[stop]),
            "slope_ms": line.slope_ms,
            "slope_method": cost.method,
            "clamped": line.clamped,
        },
        _measured("measured", mass, times, grid),
        _measured("measured, raw points", mass, cost.rounds_ms(largest, raw=True), grid),
    ]
    if found.round_mass is not None:
        entries += _per_round(found.round_mass[:, :largest], times)
    return entries


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
    """The chain and each width of the grid: time, throughput and gain over the chain with its interval.

    The interval joins the prompts that R was measured on, where they are known, and the probe's noise.
    """
    column = [0, *(1 + found.budgets.index(n) for n in grid)]
    budgets = [found.depth_max, *grid]
    tally = None if found.tally is None else (found.tally[0][:, column], found.tally[1][:, column])
    committed = found.committed[column]
    timed = forecast(cost, budgets, committed, committed_draws(committed, tally, seed), seed)
    line, expected = cost.affine(), 1 + expected_accepted(found.mass)
    rows = []
    for i, budget in enumerate(budgets):
        tree = i > 0
        rate = expected[budget - 1] / (line.fixed_ms + line.slope_ms * (budget - 1))
        rows.append(
            {
                "policy": "topN" if tree else "chain",
                "budget": budget,
                "packed": budget + 1,
                "mass": float(found.mass[budget - 1]) if tree else None,
                "threshold": float(rate * line.slope_ms) if tree else None,
                "committed_expected": float(expected[budget]) if tree else None,
                "committed": float(committed[i]),
                "round_ms": float(timed.round_ms[i]),
                "tok_per_ms": float(1 / timed.ms_per_token[i]),
                "ms_per_token": float(timed.ms_per_token[i]),
                "gain_over_chain": float(timed.gain[i]),
                "gain_over_chain_ci95": timed.gain_ci95[:, i].tolist(),
            }
        )
    return rows


def noise(cost: Cost, found: Acceptance, grid: Sequence[int], seed: int) -> dict[str, Any]:
    """How often each width of the grid is deployed when the probe is drawn anew."""
    largest, rng = grid[-1], np.random.default_rng(seed)
    mass = found.mass[:largest]
    picks: dict[str, list[int]] = {"affine": [], "measured": []}
    for drawn in noisy_costs(cost, DRAWS, rng):
        line = drawn.affine()
        rate = throughput_tok_per_ms(mass, fixed_ms=line.fixed_ms, slope_ms=line.slope_ms)
        picks["affine"].append(on_grid(rate, grid))
        picks["measured"].append(best_budget(mass, drawn.rounds_ms(largest), grid))
    return {
        "draws": DRAWS,
        "of": "points shaken by their scatter" if cost.curve.samples_ms is None else "samples of each point",
        "scatter": scatter(cost.curve),
        "share_by_width": {
            rule: {str(n): chosen.count(n) / DRAWS for n in grid if n in chosen} for rule, chosen in picks.items()
        },
    }


def by_prefix(
    curve: LatencyCurve, cost: Cost, found: Acceptance, grid: Sequence[int], batch: int
) -> list[dict[str, Any]]:
    """The affine and the measured answer at each prefix that was measured."""
    entries = []
    for prefix in curve.prefix.tolist():
        own = cost.at(curve.at(prefix, batch))
        affine, measured, *_ = rules(own, replace(found, round_mass=None), grid)
        entries.append({"prefix": prefix, "slope_ms": affine["slope_ms"], "affine": affine, "measured": measured})
    return entries


def by_batch(
    curve: LatencyCurve, cost: Cost, found: Acceptance, largest: int, prefix: int | None, seed: int
) -> list[dict[str, Any]]:
    """Proposition 3 at each batch size that was measured: the total budget M of B requests, and M / B.

    Requests are random rounds of a run, or copies of the mean masses. A batch of a probe packs the same count for each
    request; M nodes shared unevenly are priced as the same number shared evenly.
    """
    entries, rng = [], np.random.default_rng(seed)
    for batch in curve.batch.tolist():
        own = cost.at(curve.at(prefix, batch))
        line, totals = replace(own, overhead=Overhead(own.overhead.fixed_ms)).affine(), np.arange(batch * largest + 1)
        slope = line.slope_ms / batch + own.overhead.slope_ms  # a line's node is one of each request
        smooth = own.curve.smoothed().ms_at(np.maximum(1 + totals / batch, own.curve.packed[0]))
        times = own.draft_ms + own.overhead.fixed_ms + own.overhead.slope_ms * totals + smooth
        chosen = []
        for _ in range(BATCHES if found.round_mass is not None else 1):
            mass = _requests(found, batch, largest, rng)
            affine = batch_stopping_budget(mass, fixed_ms=line.fixed_ms, slope_ms=slope)
            chosen.append((affine, best_batch_budget(mass, times)))
        affine, measured = np.mean(chosen, axis=0).tolist()
        entries.append({"batch": batch, "affine": affine, "measured": measured, "draws": len(chosen)})
    return entries


def _requests(found: Acceptance, batch: int, largest: int, rng: np.random.Generator) -> Array:
    """(B, N) masses of a batch."""
    if found.round_mass is None:
        return np.broadcast_to(found.mass[:largest], (batch, min(largest, len(found.mass))))
    return found.round_mass[rng.integers(len(found.round_mass), size=batch), :largest]


def verdict(rows: Sequence[dict[str, Any]], deployed: int) -> dict[str, Any]:
    """Tree or chain, from the gain at the measured rule's width."""
    row = next(r for r in rows if r["policy"] == "topN" and r["budget"] == deployed)
    low, high = row["gain_over_chain_ci95"]
    word = "tree" if low > 0 else "chain" if high < 0 else "either"
    return {
        "verdict": word,
        "budget": deployed if word != "chain" else None,
        "gain_over_chain": row["gain_over_chain"],
        "gain_over_chain_ci95": [low, high],
    }
