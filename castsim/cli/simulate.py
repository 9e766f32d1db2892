"""castsim simulate."""

from __future__ import annotations

import time
from pathlib import Path

import typer

from castsim.base import terminal
from castsim.cli import arguments
from castsim.cli.common import document_head
from castsim.cli.exclusive import refuse_idle
from castsim.profiles.profile import open_profile
from castsim.profiles.simulate import Shape, simulate_run
from castsim.runs.reading import open_run
from castsim.scoring.policies import one_policy


def simulate(
    context: typer.Context,
    profile: arguments.ProfileName = "qwen3-8b-gsm8k",
    rounds: arguments.RoundCount = 20_000,
    out: arguments.SimulatedOut = Path("simulated-run"),
    tokens: arguments.OutputTokens = None,
    rank_kept: arguments.RankKept = 16,
    depth_max: arguments.DepthMax = None,
    vocab_size: arguments.VocabSize = 32_000,
    eos_rate: arguments.EosRate = 0.0,
    sparse: arguments.Sparse = None,
    budget: arguments.Budget = 63,
    jobs: arguments.Jobs = 1,
    seed: arguments.SimulationSeed = 0,
    json_to: arguments.Json = None,
) -> None:
    """A run of simulated rounds, in the schema of a recorded one, so that every verb works on it.

    A simulation that was broken off goes on where it was.

    \b
    castsim simulate --profile qwen3-8b-gsm8k --rounds 20000 --seed 7 --out RUN
    castsim simulate --profile my-profile.json --sparse chain --out RUN
    """
    terminal.check_target(json_to, "--json")
    refuse_idle(context, "--sparse", "--budget")
    known = open_profile(profile)
    length = tokens or known.tokens
    shape = Shape(
        prompts=max(1, round(rounds / max(length - 1, 1))),
        tokens=length,
        depth_max=depth_max or known.depth_max,
        rank_kept=rank_kept,
        vocab_size=vocab_size,
        eos_rate=eos_rate,
        seed=seed,
        domain=known.name,
        sparse=one_policy("--sparse", sparse, [], budget) if sparse else None,
    )
    begun = time.perf_counter()
    with terminal.progress("simulate") as done:
        simulate_run(known.model(), shape, out, f"profile {known.name}: {known.source}", jobs, done)
    seconds = time.perf_counter() - begun
    made = open_run(out)
    grid = terminal.table(f"{out}", "layout", "prompts", "rounds", "L", "K", "seconds")
    cells = (made.manifest.prompts, made.manifest.rounds, made.facts.depth_max, made.facts.rank_kept)
    grid.add_row(made.facts.layout, *map(str, cells), f"{seconds:.1f}")
    missed = [row["statistic"] for row in known.statistics if not row["within"]]
    notes = [
        f"Simulated from profile {known.name}, fitted to {known.source}.",
        f"{len(known.statistics) - len(missed)} of its {len(known.statistics)} statistics are within their aims"
        f"{'' if not missed else '; not so: ' + ', '.join(missed)}.",
        *([f"Borrowed from {known.borrowed_from}: all but {', '.join(known.fitted)}."] if known.borrowed_from else []),
        f"Replay it: castsim replay {out}",
    ]
    terminal.emit({**document_head("simulate", made), "seconds": seconds, "caveats": notes}, [grid], notes, json_to)
