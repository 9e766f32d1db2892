"""A policy whose trees differ from round to round, walked on a dense log and priced round by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castsim.advice.acceptance import Acceptance
from castsim.advice.forecast import DRAWS
from castsim.base.numbers import ends_or_none, or_none
from castsim.costs.curve import Cost
from castsim.runs.reading import Run
from replay import accepted, committed, policy_entry_budgets, walk
from replay.bootstrap import prompt_weights
from replay.policies import Policy
from replay.policies.perround import PerRound
from replay.width import best_rate

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Played:
    """Sums over a policy's own rounds, by prompt (P,).

    Attributes:
        prompt: numbers, rising.
        emitted, rounds, nodes: tokens, rounds and nonroot nodes.
        ms: time of the rounds.
    """

    prompt: NDArray[np.int32]
    emitted: Array
    rounds: Array
    nodes: Array
    ms: Array


def played(run: Run, prompts: Sequence[int] | None, policy: Policy, round_ms: Array) -> Played:
    """Walk a policy on a dense run; `round_ms` (N+1,) prices a round by its nodes."""
    parts = []
    for rounds in run.rounds(prompts):
        entry, width = policy_entry_budgets(policy, rounds)
        emitted = committed(accepted(entry, [policy.budget]), rounds.remaining)
        own = walk(rounds, emitted)[:, 0]
        nodes = width[own]
        parts.append(np.stack([rounds.prompt[own], emitted[own, 0], np.ones(len(nodes)), nodes, round_ms[nodes]]))
    row = np.concatenate(parts, axis=1)
    prompt, place = np.unique(row[0].astype(np.int32), return_inverse=True)
    return Played(prompt, *(np.bincount(place, values) for values in row[1:]))


def per_round_rows(
    run: Run, prompts: Sequence[int] | None, cost: Cost, found: Acceptance, largest: int, rank_cap: int, seed: int
) -> list[dict[str, Any]]:
    """The per-round rule as a policy, beside the fixed widths: by each round's own ratio, and at the best rate.

    Gains are over the same prompts' chain; intervals resample prompts, not the probe, on which the trees depend.
    """
    if found.round_mass is None or found.tally is None or run.facts.layout != "dense":
        return []
    times = cost.rounds_ms(largest)
    rate = best_rate(found.round_mass[:, :largest], times)
    chain_ms = float(cost.round_ms(found.depth_max))
    rows = []
    for name, value in (("perround", 0.0), (f"perround rate={rate:.4f}", rate)):
        policy = PerRound(largest, rank_cap, value).priced(times, found.mass)
        rows.append(_row(name, played(run, prompts, policy, times), found, (chain_ms, cost.ar_ms), seed))
    return rows


def _row(name: str, mine: Played, found: Acceptance, baseline_ms: tuple[float, float], seed: int) -> dict[str, Any]:
    """One row of the table of widths; `baseline_ms` is of a chain's round and of an AR token, NaN where unknown."""
    order = np.argsort(found.prompt)  # as in `Played`
    emitted, rounds = (table[order, 0] for table in found.tally or ())
    kept = np.isin(mine.prompt, found.prompt)
    ms, tokens = mine.ms[kept], mine.emitted[kept]
    chain_ms, ar_ms = baseline_ms

    def gains(weight: Array) -> Array:  # (2, D) over the chain, and times AR
        pace = (weight @ tokens) / (weight @ ms)
        return np.stack([chain_ms * (weight @ rounds) / (weight @ emitted) * pace - 1, ar_ms * pace])

    point = gains(np.ones((1, len(tokens))))[:, 0]
    draws = prompt_weights(len(tokens), DRAWS, np.random.default_rng(seed))
    ends = np.quantile(np.concatenate([gains(w) for w in draws], axis=1), [0.025, 0.975], axis=1)  # (2, 2)
    nodes = float(mine.nodes.sum() / mine.rounds.sum())
    return {
        "policy": name,
        "budget": nodes,
        "packed": nodes + 1,
        "mass": None,
        "threshold": None,
        "committed_expected": None,
        "committed": float(mine.emitted.sum() / mine.rounds.sum()),
        "round_ms": float(mine.ms.sum() / mine.rounds.sum()),
        "tok_per_ms": float(tokens.sum() / ms.sum()),
        "ms_per_token": float(ms.sum() / tokens.sum()),
        "gain_over_chain": or_none(point[0]),
        "gain_over_chain_ci95": ends_or_none(ends[:, 0], len(tokens) > 1),
        "speedup_over_ar": or_none(point[1]),
        "speedup_over_ar_ci95": ends_or_none(ends[:, 1], len(tokens) > 1),
    }
