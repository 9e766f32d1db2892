"""From a tally to the results that `castsim replay` prints: means with a name, paired intervals, gains."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from castsim.runs.reading import Run
from castsim.scoring.tally import Plan, Tally, parts
from replay.bootstrap import paired_bootstrap, pooled_mean, prompt_mean
from replay.policies import Measured

Array = NDArray[np.float64]


def results(run: Run, plan: Plan, tally: Tally, domain_of: dict[int, str], seed: int) -> list[dict[str, Any]]:
    """One dict for each policy, budget and domain, and for domain "all": the entries of `results` in the JSON.

    Intervals are paired over the columns of a domain. "all" is all of `domain_of`, so what was chosen; of one domain it
    is the same, intervals included.
    """
    rows: list[dict[str, Any]] = []
    found = list(parts(tally, domain_of))
    for number, (name, part) in enumerate(found):
        stream = number if len(found) > 2 else 0
        rows += _domain_results(run, plan, tally, part, name, np.random.default_rng([seed, stream]))
    return rows


def _domain_results(
    run: Run, plan: Plan, tally: Tally, part: NDArray[np.bool_], domain: str, rng: np.random.Generator
) -> list[dict[str, Any]]:
    emitted, rounds = (a[part].astype(np.float64) for a in (tally.committed, tally.rounds))  # (P, C)
    played = (rounds > 0).all(axis=1)  # the same for all columns: a round is cut, or a prompt empty, for all or none
    emitted, rounds, prompts = emitted[played], rounds[played], int(played.sum())

    columns = plan.columns(run.facts.depth_max)

    def statistics(weight: Array) -> Array:
        """(D, 3 C): mean per prompt, pooled mean, pooled gain over column 0."""
        pooled = pooled_mean(weight, emitted, rounds)
        return np.hstack([prompt_mean(weight, emitted, rounds), pooled, pooled / pooled[:, :1] - 1])

    with np.errstate(all="ignore"):  # a domain without rounds has NaN, printed as n/a
        point = statistics(np.ones((1, prompts)))[0].reshape(3, -1)
        interval = paired_bootstrap(statistics, prompts, rng=rng).T.reshape(3, -1, 2)
    return [
        {
            "policy": choice.kind.name,
            "options": choice.all_options,
            "budget": budget,
            "domain": domain,
            "mode": "walked" if plan.mode == "walked" else "per_round",
            "rounds_of": rounds_of(run, plan),
            "prompts": prompts,
            "rounds": int(rounds[:, c].sum()),
            "censored": int(tally.censored[part][:, c].sum()),
            "nodes": _number(tally.nodes[part][:, c].sum() / max(rounds[:, c].sum(), 1)),
            "committed_pooled": _number(point[1, c]),
            "committed_per_prompt": _number(point[0, c]),
            "ci95": _pair(interval[0, c]),
            "committed_pooled_ci95": _pair(interval[1, c]),
            "gain_over_chain": _number(point[2, c]),
            "gain_over_chain_ci95": _pair(interval[2, c]),
            "acceptance_histogram": tally.histogram[part][:, c].sum(axis=0).tolist(),
        }
        for c, (choice, budget) in enumerate(columns)
        if c == 0 or (choice, budget) != columns[0]  # the baseline stands once
    ]


def rounds_of(run: Run, plan: Plan) -> str:
    """Whose rounds were scored, in words: the difference between a forecast and a biased score."""
    if plan.mode == "walked":
        return "the policy itself"
    if plan.mode == "chain_rounds" or run.facts.logged_by == "chain":
        return "the chain"
    return "every position" if run.facts.layout == "dense" else run.facts.logged_by or "an unnamed policy"


def caveats(run: Run, plan: Plan) -> list[str]:
    """What a reader must know of the numbers."""
    lines = [*run.facts.notes, *_of_mode(rounds_of(run, plan))]
    if run.facts.normaliser != "full_vocabulary":
        lines.append("Log-probabilities are not over the full vocabulary in this run.")
    if run.facts.simulated:
        lines.append("The run is simulated.")
    lines.append("R = A + 1 counts the target's own token; ci95 is of R per prompt, 2,000 paired draws of prompts.")
    for choice in plan.choices:
        if issubclass(choice.kind, Measured):
            lines.append(
                f"{choice.kind.name}: rank rates measured on the other half of the chosen prompts, at every logged row."
            )
        if choice.price is not None:
            lines.append(
                f"{choice.kind.name}: weighs a probe with the run's own mean masses; N is the widest tree it may take. "
                "It saves time, which a gain in rounds does not show: castsim width does."
            )
        cap = choice.all_options.get("rank_cap", 0)
        if cap > run.facts.rank_kept:
            lines.append(
                f"{choice.kind.name}: rank_cap {cap} is {run.facts.rank_kept} here, as many ranks as the run keeps."
            )
    return lines


def _of_mode(source: str) -> list[str]:
    if source == "the policy itself":
        return [
            "Walked: each policy plays its own rounds. Rounds cut by the end of the output count, as in a decoder, "
            "with the tokens that they emit."
        ]
    left_out = "Rounds cut by the end of the output are left out."
    if source == "every position":
        return [
            f"Per round, at every position alike, which no decoder visits alike: no forecast of decoding. {left_out}"
        ]
    return [
        f"Per round, on rounds laid out by {source}: no forecast of decoding. They begin where {source} failed, which "
        f"flatters other trees. {left_out}"
    ]


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _pair(interval: Array) -> list[float] | None:
    return [float(v) for v in interval] if np.isfinite(interval).all() else None
