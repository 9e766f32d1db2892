"""castsim serve."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray

from castsim.base import terminal
from castsim.base.errors import OptionError
from castsim.base.workers import workers_of
from castsim.cli import arguments, serve_options
from castsim.cli.common import chosen_prompts, document_head
from castsim.cli.counts import counts
from castsim.cli.exclusive import given, options_of, refuse
from castsim.costs.batch import BatchCost, Measured, Surface, Total, batch_cost, deployment_of
from castsim.costs.context import Context, context_of
from castsim.costs.match import differences, of_facts, told
from castsim.runs.reading import Run, open_run
from castsim.runs.sample import sample_run
from castsim.scoring.tally import domains_of
from castsim.serving.arrivals import KINDS
from castsim.serving.choose import choose_controllers
from castsim.serving.controllers import Controller
from castsim.serving.controllers.batched import Batched
from castsim.serving.requests import Requests, requests_of
from castsim.serving.serve import WINDOWS, Asked, Load, sweep
from castsim.serving.trace import ENDINGS, read_trace
from castsim.show.plots import check_plot
from castsim.show.tables.serve_table import serve_tables

USUAL = 128  # requests of a load
FLIGHT = (1, 2, 4, 8, 16, 32)
RATE_LEAST = 1e-6  # a second: one in twelve days, below which times in ms lose their digits
PREPARING = 0.2  # share of the progress bar


def serve_verb(
    context: typer.Context,
    run: arguments.RunFolder = None,
    probe: serve_options.BatchProbe = "published",
    assume: serve_options.Assume = None,
    policy: serve_options.Controllers = None,
    setting: arguments.Settings = None,
    concurrency: serve_options.Concurrency = None,
    rate: serve_options.Rates = None,
    arrivals: serve_options.Arrivals = "poisson",
    requests: serve_options.ServedRequests = None,
    kv_tokens: serve_options.KvTokens = None,
    within_ms: serve_options.WithinMs = 20.0,
    window: serve_options.Window = "steady",
    strict: arguments.Strict = False,
    domain: arguments.Domains = None,
    jobs: arguments.Jobs = 1,
    backend: arguments.Backend = "local",
    scheduler: arguments.Scheduler = None,
    seed: serve_options.ServeSeed = 0,
    plot: arguments.Plot = None,
    json_to: arguments.Json = None,
) -> None:
    """Goodput and waits of continuous batching, simulated from a run's rounds, for each way to share the verifier.

    Passes are priced at each request's own context, between the prefixes of the probe.

    \b
    castsim serve RUN --concurrency 1,8,32
    castsim serve RUN --rate 2,8,32 --concurrency 32 --policy chain --policy batched --set every=8 --plot serve.png
    castsim serve RUN --arrivals azure.csv --policy shared
    """
    _check(context, scheduler, window, plot, json_to)
    loads = _loads(counts("--concurrency", concurrency), rate, arrivals, given(context, "--arrivals"))
    asked = Asked(_count(requests, loads[0]), kv_tokens, within_ms, seed, window)
    loads = _filled(loads, asked.requests, given(context, "--concurrency"))
    chosen, cost = choose_controllers(policy or [], setting or []), batch_cost(probe, assume or ())
    workers = workers_of(jobs, backend, scheduler)
    opened = open_run(run or sample_run())
    mismatch = differences(of_facts(opened.facts), deployment_of(probe))
    warning = told(mismatch, strict)
    prompts = chosen_prompts(domains_of(opened, domain or []), domain)
    with terminal.progress("serve") as done:
        lengths = _prompt_lengths(loads[0], asked.requests)
        drawn = requests_of(opened, prompts, asked.requests, seed, lengths, lambda share: done(PREPARING * share))
        at = _context(cost, drawn, "hold" in (assume or ()), options_of(context))
        rows = sweep(drawn, loads, chosen, cost, asked, workers, partial(_later, done))
    notes = [*_notes(opened, asked, drawn, loads[0], rows), *warning, *_cost_notes(cost, chosen)]
    notes += [] if at is None else [at.told]
    document = {
        **document_head("serve", opened),
        "cost": {"source": probe, "residual_points": dict(cost.residuals) if isinstance(cost, Surface) else None},
        "mismatch": mismatch,
        "context_held": at is not None and at.held,
        "asked": asdict(asked),
        "caveats": notes,
        "results": rows,
    }
    _draw(document, plot)
    terminal.emit(document, serve_tables(rows, waits=loads[0].kind != "closed"), notes, json_to)


def _later(done: Callable[[float], None], share: float) -> None:
    """Serving comes behind preparing."""
    done(PREPARING + (1 - PREPARING) * share)


def _check(context: typer.Context, scheduler: str | None, window: str, plot: Path | None, json_to: str | None) -> None:
    terminal.check_target(json_to, "--json")
    terminal.check_target(plot, "--plot")
    check_plot(plot)
    if scheduler is not None:
        refuse(context, "--scheduler", "--jobs")
    if window not in WINDOWS:
        raise OptionError(f"--window {window}: there are {', '.join(WINDOWS)}")


def _draw(document: dict[str, Any], plot: Path | None) -> None:
    if plot is not None:
        from castsim.show.plots.serve_plot import serve_figure

        serve_figure(document, plot)


def _prompt_lengths(load: Load, count: int) -> NDArray[np.int64] | None:
    """Those of a trace that has them."""
    known = None if load.trace is None else load.trace.prompt_tokens
    return None if known is None else known[:count]


def _loads(batches: tuple[int, ...] | None, rate: str | None, kind: str, named: bool) -> list[Load]:
    """Closed loads, one for each number in flight; or open ones, which have one."""
    traced = kind not in KINDS and (Path(kind).suffix.lower() in ENDINGS or Path(kind).is_file())
    if not traced and kind not in KINDS:
        raise OptionError(f"--arrivals {kind}: there are {', '.join(KINDS)}, or a file ({', '.join(ENDINGS)})")
    if traced and rate is not None:
        raise OptionError(f"--rate {rate}: {kind} has its own times; give one of the two")
    if rate is None and not traced:
        if named:
            raise OptionError(f"--arrivals {kind}: give --rate too, for example --rate 2,8,32")
        return [Load("closed", batch) for batch in batches or FLIGHT]
    if batches is not None and len(batches) > 1:
        how = f"--arrivals {kind}" if traced else f"--rate {rate}"
        told = ",".join(map(str, batches))
        raise OptionError(f"--concurrency {told}: {how} has one number, the most in flight; give {batches[-1]} alone")
    most = (batches or FLIGHT)[-1]
    return [Load(kind, most, trace=read_trace(Path(kind)))] if traced else _rated(kind, most, str(rate))


def _rated(kind: str, most: int, rate: str) -> list[Load]:
    try:
        rates = [float(part) for part in rate.split(",")]
    except ValueError:
        raise OptionError(f"--rate {rate}: give requests a second with commas, for example 2,8,32") from None
    if any(not RATE_LEAST <= value < float("inf") for value in rates):
        raise OptionError(f"--rate {rate}: give positive numbers of requests a second, from {RATE_LEAST:g} on")
    return [Load(kind, most, value) for value in rates]


def _filled(loads: list[Load], count: int, named: bool) -> list[Load]:
    """The loads that so many requests can fill: the usual ones are cut to that, a named one beyond it is refused."""
    most = max(load.batch for load in loads)
    if most > count and named:
        never = f"a load has {count} requests, so as many are never in flight"
        raise OptionError(f"--concurrency {most}: {never}; give at most {count}, or more requests")
    if loads[0].kind == "closed":
        return [load for load in loads if load.batch <= count]
    return [replace(load, batch=min(load.batch, count)) for load in loads]


def _count(requests: int | None, load: Load) -> int:
    """Requests of a load: those that were asked for, or all of a trace."""
    if load.trace is None:
        return USUAL if requests is None else requests
    there = len(load.trace.arrival_ms)
    if requests is not None and requests > there:
        raise OptionError(f"--requests {requests}: the trace {load.kind} has {there}; give at most that")
    return there if requests is None else requests


def _context(cost: BatchCost, drawn: Requests, holds: bool, flags: Collection[str]) -> Context | None:
    """What the probe is read at, checked against what it measured; None of published costs, which name no prefix."""
    if isinstance(cost, Surface):
        return None
    rounds = drawn.outputs.tokens[drawn.which] - 1
    begun = np.repeat(np.cumsum(rounds) - rounds, rounds)
    cached = np.repeat(drawn.prompt_tokens, rounds) + np.arange(rounds.sum()) - begun
    return context_of(cost.curve, None, cached, holds, flags=flags)


def _notes(opened: Run, asked: Asked, drawn: Requests, load: Load, rows: list[dict[str, Any]]) -> list[str]:
    whole = sorted({row["load"] for row in rows if row["window"] == "all"})
    steady = any(row["window"] == "steady" for row in rows)
    short = f": {', '.join(whole)}, where too few requests leave no steady part" if asked.window == "steady" else ""
    held = len(drawn.outputs.start)
    return [
        *opened.facts.notes,
        *(["The run is simulated."] if opened.facts.simulated else []),
        f"{asked.requests} requests a load, {held} of the run's {drawn.of} outputs; the same requests and arrivals for "
        "every controller. A request's tokens come from its own rounds, walked.",
        *([_of_trace(load, asked)] if load.trace is not None else []),
        *(
            ["All requests wait from the start, so waits for a first token are in the JSON only."]
            if load.kind == "closed"
            else []
        ),
        *(["Measured from the end of the first request to the last admission."] if steady else []),
        *([f"Measured from the first arrival to the last token{short}."] if whole else []),
        f"Goodput: committed tokens of that time; in time: requests of at most {asked.within_ms:g} ms an output token. "
        "A prompt's prefill holds up the batch. *: the best of its load.",
    ]


def _of_trace(load: Load, asked: Asked) -> str:
    assert load.trace is not None
    there = len(load.trace.arrival_ms)
    part = "" if asked.requests == there else f", its first {asked.requests} of {there} requests"
    prompts = "prompts as long as there" if load.trace.prompt_tokens is not None else "prompts as long as in the run"
    lost = "" if not load.trace.failed else f" {load.trace.failed} of all got no token there; here they are answered."
    return f"Arrivals of {load.label} ({load.trace.kind}){part}; {prompts}, outputs as in the run.{lost}"


def _cost_notes(cost: BatchCost, chosen: Sequence[Controller]) -> list[str]:
    if isinstance(cost, Measured):
        widest = int(cost.reach(1)) - 1
        cut = any(isinstance(controller, Batched) and controller.most > widest for controller in chosen)
        return [f"The probe prices {widest} nodes a request, so batched weighs no more of them."] if cut else []
    if isinstance(cost, Total):
        return [
            "Cost, assumed: a batch costs what one request with all its tokens does, its drafter what it does alone."
        ]
    off = ", ".join(f"{points:+.0f} at B = {batch}" for batch, points in cost.residuals)
    return [
        f"Cost: one number fitted to the three width taxes of appendix F (off by {off} points) on Table 5's pass of "
        "one token; the paper prints no times of batched passes."
    ]
