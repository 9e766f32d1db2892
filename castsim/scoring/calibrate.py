"""Where a drafter's beliefs hold and where they fail: the diagnostics of Figure 4 and appendix G.1 on a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castsim.base.errors import RunLogError
from castsim.runs.reading import Run
from castsim.scoring.policies import Choice
from castsim.scoring.tally import BASELINE, Plan, parts, score
from replay import Rounds, accepted, committed, policy_entry_budgets, walk
from replay.calibrate import OFF, ON, Reliability, first_rejection_ranks, rank_counts, reliability
from replay.policies.full import Full
from replay.policies.topn import TopN
from replay.topn import sorted_masses

CURVE = 128  # budgets of the mass curve, as many as the published ones have
CALIBRATE_NOTE = (
    "Rounds of the chain: walked where the log is dense, logged where it is sparse. Of a round cut by the end of the "
    "output, the positions up to it count. The share beyond the cap is of positions whose earlier tokens are all kept."
)
CAP_BUDGETS = (32, 63)  # appendix G.1


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Sums over rounds of the chain; `+` joins shards."""

    rounds: int
    reliability: Reliability
    rejections: NDArray[np.int64]  # (K+1,)
    ranks: NDArray[np.int64]  # (L, K+1)
    mass: NDArray[np.float64]  # (CURVE,)

    def __add__(self, other: Diagnosis) -> Diagnosis:
        return Diagnosis(
            self.rounds + other.rounds,
            self.reliability + other.reliability,
            self.rejections + other.rejections,
            self.ranks + other.ranks,
            self.mass + other.mass,
        )


def diagnose(
    run: Run, prompts: Sequence[int] | None, domain_of: dict[int, str], rank_cap: int, done: Callable[[float], None]
) -> dict[str, Diagnosis]:
    """A diagnosis for each domain and for "all".

    The rounds are the chain's: walked where the log is dense, the logged ones where it is sparse.

    Raises:
        RunLogError: from reading, or where no round is left.
    """
    found: dict[str, Diagnosis] = {}
    for number, rounds in enumerate(run.rounds(prompts), start=1):
        own = chain_rounds(rounds) if run.facts.layout == "dense" else rounds
        domain = np.array([domain_of[p] for p in own.prompt.tolist()])
        for name in sorted(set(domain.tolist())):
            part = _diagnosis(own.take(domain == name), rank_cap)
            for key in (name, "all"):
                found[key] = found[key] + part if key in found else part
        done(number / len(run.shards))
    if not found:
        raise RunLogError(run.folder, "has no rounds to diagnose", "choose other prompts, or record some")
    return dict(sorted(found.items(), key=lambda item: (item[0] == "all", item[0])))


def chain_rounds(rounds: Rounds) -> Rounds:
    """The rounds of a dense log that the chain would play."""
    depth_max = rounds.marginals.depth_max
    entry, _ = policy_entry_budgets(BASELINE.at(depth_max), rounds)
    return rounds.take(walk(rounds, committed(accepted(entry, [depth_max]), rounds.remaining))[:, 0])


def _diagnosis(rounds: Rounds, rank_cap: int) -> Diagnosis:
    return Diagnosis(
        len(rounds),
        reliability(rounds, rank_cap=rank_cap),
        first_rejection_ranks(rounds),
        rank_counts(rounds),
        sorted_masses(rounds.marginals.head(rank_cap=rank_cap), CURVE).sum(axis=0),
    )


def summary(found: Diagnosis, rank_cap: int) -> dict[str, Any]:
    """One domain's entry in the JSON of `castsim calibrate`; every list's meaning is in its name."""
    error = found.reliability.calibration_error()
    bins = found.reliability.count.shape[2]
    with np.errstate(invalid="ignore"):
        confidence = found.reliability.confidence / found.reliability.count
        hit_rate = found.reliability.hits / found.reliability.count
        beyond = found.ranks[:, rank_cap:].sum() / found.ranks.sum()
        rejected = found.rejections / found.rejections.sum()
    return {
        "rounds": found.rounds,
        "expected_calibration_error_by_depth": {"on_spine": _list(error[ON]), "off_spine": _list(error[OFF])},
        "reliability": [
            {
                "depth": int(depth) + 1,
                "spine": ("on", "off")[side],
                "bin": [float(cell / bins), float((cell + 1) / bins)],
                "candidates": int(found.reliability.count[side, depth, cell]),
                "mean_probability": float(confidence[side, depth, cell]),
                "hit_rate": float(hit_rate[side, depth, cell]),
            }
            for side, depth, cell in zip(*np.nonzero(found.reliability.count), strict=True)
        ],
        "first_rejections": int(found.rejections.sum()),
        "first_rejection_share_by_rank": _list(rejected[1:-1]),  # ranks 2, 3, ..., K
        "first_rejection_share_beyond_kept": _list(rejected[-1:])[0],
        "true_token_share_beyond_rank_cap": _list(np.array([beyond]))[0],
        "mean_sorted_mass": _list(found.mass / found.rounds),
    }


def rank_cap_loss(
    run: Run, prompts: Sequence[int] | None, domain_of: dict[int, str], rank_cap: int, done: Callable[[float], None]
) -> list[dict[str, Any]]:
    """R with and without the rank cap at the budgets of appendix G.1, by domain; walked where the log is dense.

    "Without" means all ranks that the run keeps.
    """
    mode = "walked" if run.facts.layout == "dense" else "per_round"
    plan = Plan((Choice(TopN, {"rank_cap": rank_cap}), Choice(Full)), CAP_BUDGETS, mode)
    tally = score(run, plan, prompts, done=done)
    columns = plan.columns(run.facts.depth_max)
    found = []
    for name, part in parts(tally, domain_of):
        emitted, rounds = tally.committed[part].sum(axis=0), tally.rounds[part].sum(axis=0)
        mean = _list(emitted / np.where(rounds, rounds, np.nan))  # a domain without rounds has no mean
        for budget in CAP_BUDGETS:
            capped, whole = (mean[columns.index((choice, budget))] for choice in plan.choices)
            found.append(
                {
                    "domain": name,
                    "budget": budget,
                    "mode": mode,
                    "rank_cap": rank_cap,
                    "ranks_kept": run.facts.rank_kept,
                    "committed_pooled_capped": capped,
                    "committed_pooled_uncapped": whole,
                    "loss": None if capped is None or whole is None else 1 - capped / whole,
                }
            )
    return found


def _list(values: NDArray[np.float64]) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]
