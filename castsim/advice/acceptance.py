"""How masses fall and what trees commit, before any time is known: from a run, from published figures, or a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from castsim.base.errors import OptionError, PlacedError, RunLogError, first_line
from castsim.base.textfile import is_table, on_grid, read_json, read_table
from castsim.costs.match import UNKNOWN, Deployment, of_facts
from castsim.published import CREDIT, frame, short
from castsim.runs.reading import Run
from castsim.scoring.calibrate import chain_rounds
from castsim.scoring.policies import Choice
from castsim.scoring.tally import Mode, Plan, score
from replay.policies.topn import TopN
from replay.topn import sorted_masses
from replay.width import expected_accepted

Array = NDArray[np.float64]
MASS_ROUNDS = 5000  # of a run, evenly spaced; the paper's curve is a mean of 1,500
DEPTH_MAX = 15  # of a chain, where masses come without one
RANKS = ("rank", "node", "n", "N")  # columns that may number the masses


class MassError(PlacedError):
    """Masses that are none."""


@dataclass(frozen=True, eq=False)
class Acceptance:
    """What a deployment's rounds accept.

    Attributes:
        source: where it is from, in words.
        mass: (N,) mean masses, falling.
        depth_max: L, the chain's nodes.
        budgets: (C,) widths whose R is known.
        committed: (1+C,) R of the chain and at each width, pooled.
        round_mass: (B, N) masses of single rounds, or None.
        tally: emitted tokens and rounds by prompt, each (P, 1+C), or None where no prompt is known.
        prompt: (P,) which prompts these are.
        bounded: R is what the masses promise, and the chain's is bounded by the best L nodes.
        deployment: what the rounds were drafted with, as far as it is known.
    """

    source: str
    mass: Array
    depth_max: int
    budgets: tuple[int, ...]
    committed: Array
    round_mass: Array | None = None
    tally: tuple[Array, Array] | None = None
    prompt: NDArray[np.int32] | None = None
    bounded: bool = False
    notes: tuple[str, ...] = ()
    deployment: Deployment = UNKNOWN


def of_run(
    run: Run,
    prompts: Sequence[int] | None,
    budgets: Sequence[int],
    rank_cap: int,
    largest: int,
    done: Callable[[float], None] = lambda _: None,
) -> Acceptance:
    """Masses of the chain's rounds, and R of topN by replay: walked where the log is dense.

    Raises:
        RunLogError: from reading, or where no round is left.
    """
    found = scored(run, prompts, (Choice(TopN, {"rank_cap": rank_cap}),), budgets, lambda share: done(share / 2))
    emitted, rounds = found.emitted, found.rounds
    mass = round_masses(run, prompts, rank_cap, largest, lambda share: done(0.5 + share / 2))
    return Acceptance(
        f"{run.folder.name}, {len(emitted)} prompts, {found.how}",
        np.minimum.accumulate(mass.mean(axis=0)),
        run.facts.depth_max,
        tuple(budgets),
        emitted.sum(axis=0) / rounds.sum(axis=0),
        mass,
        (emitted, rounds),
        found.prompt,
        notes=tuple(run.facts.notes) + (("The run is simulated.",) if run.facts.simulated else ()),
        deployment=of_facts(run.facts),
    )


@dataclass(frozen=True, eq=False)
class Scored:
    """Replayed columns, the chain first, over the prompts that played rounds in all of them.

    Attributes:
        columns: (policy, budget) of each.
        prompt: (P,) numbers.
        emitted, rounds, nodes: (P, C) sums by prompt.
        how: walked, or a warning.
    """

    columns: list[tuple[Choice, int]]
    prompt: NDArray[np.int32]
    emitted: Array
    rounds: Array
    nodes: Array
    how: str


def scored(
    run: Run,
    prompts: Sequence[int] | None,
    choices: Sequence[Choice],
    budgets: Sequence[int],
    done: Callable[[float], None] = lambda _: None,
) -> Scored:
    """Replay policies at budgets, walked where the log is dense.

    Raises:
        RunLogError: from reading, or where no round is left.
    """
    mode: Mode = "walked" if run.facts.layout == "dense" else "per_round"
    plan = Plan(tuple(choices), tuple(budgets), mode)
    tally = score(run, plan, prompts, done=done)
    played = (tally.rounds > 0).all(axis=1)
    if not played.any():
        remedy = "choose other prompts, or record longer outputs"
        raise RunLogError(run.folder, "has no round with a whole continuation", remedy)
    sums = (table[played].astype(np.float64) for table in (tally.committed, tally.rounds, tally.nodes))
    how = "walked" if mode == "walked" else "per round, on logged rounds, which flatters trees"
    return Scored(plan.columns(run.facts.depth_max), tally.prompt[played], *sums, how)


def round_masses(
    run: Run, prompts: Sequence[int] | None, rank_cap: int, largest: int, done: Callable[[float], None]
) -> Array:
    """(B, N) sorted masses of up to `MASS_ROUNDS` rounds of the chain."""
    parts = []
    for number, rounds in enumerate(run.rounds(prompts), start=1):
        own = chain_rounds(rounds) if run.facts.layout == "dense" else rounds
        few = max(1, round(MASS_ROUNDS * len(rounds) / max(run.manifest.rounds, MASS_ROUNDS)))
        place = np.unique(np.linspace(0, len(own) - 1, min(few, len(own))).astype(np.intp))
        parts.append(sorted_masses(own.marginals.take(place).head(rank_cap=rank_cap), largest))
        done(number / len(run.shards))
    return np.concatenate(parts)


def published(name: str, target: str | None, gpu: str | None, largest: int) -> Acceptance:
    """A published mass curve, and R from the published sweep of the probe's target and GPU, or the nearest to it."""
    mass = frame("masses").filter(pl.col("curve") == name)["mass"].to_numpy()[:largest]
    own, domain = "Qwen/Qwen3-8B", name.removeprefix("qwen3-8b-")
    sweeps = frame("sweeps").filter(
        (pl.col("domain").str.to_lowercase() == domain) & (pl.col("temperature") == 0) & (pl.col("run") == 1)
    )
    for wish in ({"target": target, "gpu": gpu}, {"target": target}, {"target": own, "gpu": gpu}, {"target": own}):
        found = sweeps.filter(*(pl.col(key).eq_missing(pl.lit(value)) for key, value in wish.items()))
        if len(found):
            break
    setting = found.sort(pl.len().over("setting"), descending=True, maintain_order=True)["setting"][0]
    sweep = found.filter(pl.col("setting") == setting).sort("budget")
    cast = sweep.filter((pl.col("method") == "CAST") & (pl.col("budget") <= largest))
    chain = sweep.filter(pl.col("method") == "DFlash")
    where = f"{short(sweep['target'][0])}, {sweep['gpu'][0]}, {sweep['domain'][0]}"
    return Acceptance(
        f"masses {name}, R of the published sweep ({where}); {CREDIT}",
        mass,
        int(chain["depth_max"][0]),
        tuple(cast["budget"].to_list()),
        np.concatenate([chain["committed"].to_numpy(), cast["committed"].to_numpy()]),
        notes=("The published masses are renormalised over the logged ranks, so they lie at or above the drafter's.",),
        deployment=Deployment(own, None, "dflash", int(chain["depth_max"][0]) + 1, "bfloat16"),
    )


def of_file(path: Path, largest: int, budgets: Sequence[int] | None = None) -> Acceptance:
    """Masses alone: R is what they promise, 1 + g(N), and the chain's at most 1 + g(L).

    Args:
        path: a JSON list, or a CSV with a column mass, in any order, and if you like one named rank.
        largest: masses that are used, at most.
        budgets: widths that R is asked at; None is every width that there are masses for.

    Raises:
        MassError: no row of numbers in 0..1 that does not rise, or too few of them.
    """
    remedy = "give a JSON list or a CSV column named mass, largest first"
    try:
        values = _of_csv(path) if is_table(path) else read_json(path)
        if not isinstance(values, list) or any(isinstance(value, bool) for value in values):
            raise ValueError("it is no list of numbers")
        mass = np.asarray(values, np.float64)[:largest]
        gained = expected_accepted(mass)
    except (OSError, ValueError, TypeError, KeyError, RecursionError, pl.exceptions.PolarsError) as error:
        raise MassError(path, first_line(error), remedy) from error
    widest = max(budgets or (0,))
    if len(mass) < max(widest, DEPTH_MAX):
        short_of = f"the chain of {DEPTH_MAX}" if widest <= DEPTH_MAX else f"the tree of {widest}"
        raise MassError(path, f"has {len(mass)} masses, fewer than {short_of}", "give more of them")
    chosen = tuple(range(1, len(mass) + 1)) if budgets is None else tuple(budgets)
    return Acceptance(
        path.name,
        mass,
        DEPTH_MAX,
        chosen,
        1 + gained[[DEPTH_MAX, *chosen]],
        bounded=True,
        notes=(
            f"R is 1 + g(N), as the masses promise. A chain of {DEPTH_MAX} commits at most 1 + g({DEPTH_MAX}), so the "
            "gain over it is at least what is shown.",
        ),
    )


def _of_csv(path: Path) -> list[float]:
    """Masses in the order of their ranks; without ranks, largest first."""
    table = read_table(path)
    rank = next((name for name in RANKS if name in table.columns), None)
    if rank is None:
        return table["mass"].sort(descending=True).to_list()
    rows, axes = on_grid(table, [rank])
    wanted = range(axes[rank][0], axes[rank][0] + len(rows))
    if missing := sorted(set(wanted) - set(axes[rank])):
        raise ValueError(f"there is no row of {rank} {missing[0]}")
    return rows["mass"].to_list()


def mass_names() -> list[str]:
    """Published mass curves by name."""
    return frame("masses")["curve"].unique(maintain_order=True).to_list()


def unknown_masses(name: str) -> OptionError:
    """What --masses can be."""
    return OptionError(
        f"--masses {name}: is no run, no file and no published curve; there are {', '.join(mass_names())}"
    )
