"""castsim allocate."""

from __future__ import annotations

from typing import Any

import typer

from castsim.base import terminal
from castsim.base.errors import OptionError
from castsim.base.workers import workers_of
from castsim.cli import arguments
from castsim.cli.common import document_head
from castsim.cli.counts import counts
from castsim.cli.exclusive import refuse_together
from castsim.runs.reading import open_run
from castsim.runs.sample import sample_run
from castsim.scoring.allocate import NODES, Experiment, allocation
from castsim.scoring.tally import domains_of
from castsim.show.tables.allocate_table import allocate_tables


def allocate(
    context: typer.Context,
    run: arguments.RunFolder = None,
    batch: arguments.BatchOf = 32,
    per_request: arguments.PerRequest = "4,8,16",
    batches: arguments.BatchDraws = 400,
    requests: arguments.RequestPool = 900,
    domain: arguments.Domains = None,
    jobs: arguments.Jobs = 1,
    backend: arguments.Backend = "local",
    scheduler: arguments.Scheduler = None,
    seed: arguments.AllocationSeed = 0,
    json_to: arguments.Json = None,
) -> None:
    """What sharing one verifier budget across requests is worth, in accepted draft tokens over random batches.

    \b
    castsim allocate RUN --batch 32 --per-request 4
    """
    terminal.check_target(json_to, "--json")
    refuse_together(context, "--scheduler", "--jobs")
    workers = workers_of(jobs, backend, scheduler)
    opened = open_run(run or sample_run())
    asked = Experiment(batch, _means(per_request), batches, requests, seed)
    if requests < batch:
        there = f"the pool of a domain has {requests} requests"
        raise OptionError(f"--batch {batch}: {there}; give a smaller batch, or more --requests")
    with terminal.progress("allocate") as done:
        rows = allocation(opened, domains_of(opened, domain or []), asked, workers, done)
    whose = "that a tree of the smallest budget plays, walked" if opened.facts.layout == "dense" else "of the log"
    notes = [
        *opened.facts.notes,
        *(["The run is simulated."] if opened.facts.simulated else []),
        f"Requests: rounds with a whole continuation {whose}; {batches} batches of {batch}, a request at most once "
        "in each. Budgets count nonroot nodes; a pass packs B + M.",
        "shared: the batch's best nodes (Proposition 2). Chains: cut evenly; by prefix mass (as TETRIS picks tokens); "
        "by one confidence (as D-cut and vLLM's adaptive verification prune).",
        "hindsight: the best split of the trees' budget for the answers that came; it sees the future, and bounds "
        "trees, not chains.",
        "Accepted draft tokens, without the target's own; committed: with it. Intervals: 1,000 draws of batches.",
        *_without_gain(rows),
    ]
    document = {**document_head("allocate", opened), "caveats": notes, "results": rows}
    terminal.emit(document, allocate_tables(rows), notes, json_to)


def _means(text: str) -> tuple[int, ...]:
    """Mean nodes a request, no more than one can have."""
    means = counts("--per-request", text) or ()
    if means[-1] > NODES:
        raise OptionError(f"--per-request {text}: a request has at most {NODES} nodes; give at most that")
    return means


def _without_gain(rows: list[dict[str, Any]]) -> list[str]:
    """Why a gain or an interval is missing."""
    none = [row for row in rows if row["allocators"]["shared"]["gain_over_uniform_ci95"] is None]
    where = ", ".join(f"{row['domain']} at {row['per_request']}" for row in none)
    words = "the even split accepts nothing, in all batches or in those of a draw, so a gain or its interval is missing"
    return [f"{where}: {words}; give a larger --batch or more --batches."] if none else []
