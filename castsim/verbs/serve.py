"""castsim serve."""

from __future__ import annotations

from dataclasses import asdict

from castsim import arguments, show
from castsim.errors import OptionError
from castsim.plots import check_plot
from castsim.runlog import Run, open_run
from castsim.sample import sample_run
from castsim.score import domains_of
from castsim.serving.arrivals import KINDS
from castsim.serving.batchcost import BatchCost, Surface, Total, batch_cost
from castsim.serving.choose import choose_controllers
from castsim.serving.requests import outputs_of
from castsim.serving.sweep import Asked, Load, sweep
from castsim.tables.serve import serve_tables
from castsim.verbs import chosen_prompts, document_head
from castsim.verbs.counts import counts
from castsim.workers import workers_of


def serve_verb(
    run: arguments.RunFolder = None,
    probe: arguments.BatchProbe = "published",
    assume: arguments.Assume = None,
    policy: arguments.Controllers = None,
    setting: arguments.Settings = None,
    concurrency: arguments.Concurrency = "1,2,4,8,16,32",
    rate: arguments.Rates = None,
    arrivals: arguments.Arrivals = "poisson",
    requests: arguments.ServedRequests = 128,
    kv_tokens: arguments.KvTokens = None,
    within_ms: arguments.WithinMs = 20.0,
    domain: arguments.Domains = None,
    jobs: arguments.Jobs = 1,
    backend: arguments.Backend = "local",
    scheduler: arguments.Scheduler = None,
    seed: arguments.ServeSeed = 0,
    plot: arguments.Plot = None,
    json_to: arguments.Json = None,
) -> None:
    """Goodput and waits of continuous batching, simulated from a run's rounds, for each way to share the verifier.

    \b
    castsim serve RUN --concurrency 1,8,32
    castsim serve RUN --rate 2,8,32 --concurrency 32 --policy chain --policy batched --set every=8 --plot serve.png
    """
    show.check_target(json_to, "--json")
    show.check_target(plot, "--plot")
    check_plot(plot)
    loads = _loads(counts("--concurrency", concurrency) or (1,), rate, arrivals)
    chosen, cost = choose_controllers(policy or [], setting or []), batch_cost(probe, assume)
    workers = workers_of(jobs, backend, scheduler)
    opened = open_run(run or sample_run())
    outputs = outputs_of(opened, chosen_prompts(domains_of(opened, domain or []), domain))
    asked = Asked(requests, kv_tokens, within_ms, seed)
    with show.progress("serve") as done:
        rows = sweep(outputs, loads, chosen, cost, asked, workers, done)
    closed = loads[0].kind == "closed"
    notes = _notes(opened, asked, len(outputs.start), closed) + _cost_notes(cost)
    about = {"source": probe, "residual_points": dict(cost.residuals) if isinstance(cost, Surface) else None}
    document = {
        **document_head("serve", opened),
        "cost": about,
        "asked": asdict(asked),
        "caveats": notes,
        "results": rows,
    }
    if plot is not None:
        from castsim.plots.serve import serve_figure

        serve_figure(document, plot)
    show.emit(document, serve_tables(rows, waits=not closed), notes, json_to)


def _loads(batches: tuple[int, ...], rate: str | None, kind: str) -> list[Load]:
    if kind.endswith(".csv"):
        if rate is not None:
            raise OptionError(f"--rate {rate}: {kind} has its own times; give one of the two")
        return [Load(kind, batches[-1])]
    if kind not in KINDS:
        raise OptionError(f"--arrivals {kind}: there are {', '.join(KINDS)}, or a .csv file with a column ms")
    if rate is None and kind != KINDS[0]:
        raise OptionError(f"--arrivals {kind}: give --rate too, for example --rate 2,8,32")
    if rate is None:
        return [Load("closed", batch) for batch in batches]
    try:
        rates = [float(part) for part in rate.split(",")]
    except ValueError:
        raise OptionError(f"--rate {rate}: give requests a second with commas, for example 2,8,32") from None
    if any(not 0 < value < float("inf") for value in rates):
        raise OptionError(f"--rate {rate}: give positive numbers of requests a second")
    return [Load(kind, batches[-1], value) for value in rates]


def _notes(opened: Run, asked: Asked, outputs: int, closed: bool) -> list[str]:
    return [
        *opened.facts.notes,
        *(["The run is simulated."] if opened.facts.simulated else []),
        f"At most {asked.requests} requests a load, of {outputs} outputs; the same requests and arrivals for every "
        "controller. A request's tokens come from its own rounds, walked.",
        *(["All requests wait from the start, so waits for a first token are in the JSON only."] if closed else []),
        "Goodput: committed tokens from the first arrival to the last token; in time: requests of at most "
        f"{asked.within_ms:g} ms an output token. A prompt's prefill holds up the batch. *: the best of its load.",
    ]


def _cost_notes(cost: BatchCost) -> list[str]:
    if isinstance(cost, Total):
        return [
            "Cost, assumed: a batch costs what one request with all its tokens does, its drafter what it does alone."
        ]
    if not isinstance(cost, Surface):
        return []
    off = ", ".join(f"{points:+.0f} at B = {batch}" for batch, points in cost.residuals)
    return [
        f"Cost: one number fitted to the three width taxes of appendix F (off by {off} points) on Table 5's pass of "
        "one token; the paper prints no times of batched passes."
    ]
