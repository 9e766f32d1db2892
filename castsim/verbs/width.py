"""castsim width."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from castsim import __version__, arguments, show
from castsim.errors import OptionError
from castsim.options import budgets_of
from castsim.plots import check_plot
from castsim.pricing.acceptance import Acceptance, mass_names, of_file, of_run, published, unknown_masses
from castsim.pricing.answer import Question, answer
from castsim.pricing.cost import Cost, overhead_of, require_cost, require_reach
from castsim.pricing.engines import configuration
from castsim.pricing.played import per_round_rows
from castsim.pricing.probefile import Probe, open_probe
from castsim.runlog import open_run
from castsim.sample import sample_run
from castsim.score import domains_of
from castsim.tables.width import width_tables
from castsim.verbs import chosen_prompts


def width(
    probe: arguments.ProbeName = "pair-cpu",
    masses: arguments.Masses = None,
    budgets: arguments.Budgets = "15,31,47,63,95,127",
    prefix: arguments.Prefix = None,
    batch: arguments.Requests = 1,
    draft_ms: arguments.DraftMs = None,
    overhead: arguments.OverheadMs = "0",
    line: arguments.LineMethod = "least_squares",
    domain: arguments.Domains = None,
    rank_cap: arguments.RankCap = 8,
    emit: arguments.Emit = None,
    plot: arguments.Plot = None,
    published: arguments.Published = False,
    seed: arguments.Seed = 0,
    json_to: arguments.Json = None,
) -> None:
    """How wide a tree pays: the answer of each rule, throughput and gain at each width, tree or chain.

    \b
    castsim width --probe blackwell-qwen3-8b --masses qwen3-8b-gsm8k
    castsim width --probe probe.json --masses RUN --plot width.png --emit vllm
    castsim width --published
    """
    show.check_target(json_to, "--json")
    show.check_target(plot, "--plot")
    check_plot(plot)
    if published:
        _published(json_to)
        return
    if emit is not None and emit != "json":
        configuration(emit, None, 1, None, None)  # an unknown engine is refused before any work
    opened = open_probe(probe)
    cost = require_cost(opened.curve(), prefix, batch, draft_ms, overhead_of(overhead), line)
    asked = Question(probe, opened, cost, _priced_grid(budgets_of(budgets), cost), prefix, batch, seed)
    with show.progress("width") as done:
        found, more = _found(asked, masses, domain, rank_cap, done)
    document = answer(asked, found, more)
    if emit is not None:
        _emit(emit, document, json_to)
        return
    show.emit(document, width_tables(document), document["caveats"], json_to)
    if plot is not None:
        from castsim.plots.width import width_figure

        width_figure(document, plot)


def _published(json_to: str | None) -> None:
    from castsim.published.intervals import intervals_table, prompt_gains
    from castsim.published.widths import CAVEATS, settings, settings_table

    rows, gains = settings(), prompt_gains()
    document = {"verb": "width", "version": __version__, "published": rows, "table_3": gains, "caveats": CAVEATS}
    show.emit(document, [settings_table(rows), intervals_table(gains)], CAVEATS, json_to)


def _priced_grid(grid: tuple[int, ...], cost: Cost) -> tuple[int, ...]:
    """Widths that the probe reaches."""
    most = int(cost.curve.packed[-1]) - 1
    if not (kept := tuple(n for n in grid if n <= most)):
        raise OptionError(f"--budgets {grid[0]}: the probe ends at {most + 1} packed tokens; give at most {most}")
    return kept


def _found(
    asked: Question, masses: str | None, domain: list[str] | None, rank_cap: int, done: Any
) -> tuple[Acceptance, list[dict[str, Any]]]:
    """What is known of acceptance, and rows of the per-round rule where a run was named."""
    path = sample_run() if masses is None else Path(masses)
    if not path.is_dir():
        if domain:
            raise OptionError(f"--domain {domain[0]}: only a run has domains")
        return _named(str(masses), asked.probe, asked.grid), []
    run = open_run(path)
    prompts = chosen_prompts(domains_of(run, domain or []), domain)
    found = of_run(run, prompts, asked.grid, rank_cap, asked.grid[-1], done)
    require_reach(asked.cost, found.depth_max)
    return found, per_round_rows(run, prompts, asked.cost, found, asked.grid[-1], rank_cap, asked.seed)


def _named(masses: str, probe: Probe, grid: tuple[int, ...]) -> Acceptance:
    if masses in mass_names():
        return published(masses, probe.target, probe.gpu, grid[-1])
    if Path(masses).is_file():
        return of_file(Path(masses), grid, grid[-1])
    raise unknown_masses(masses)


def _emit(engine: str, document: dict[str, Any], json_to: str | None) -> None:
    """The configuration alone on stdout."""
    if engine == "json":
        print(json.dumps(document, allow_nan=False))
        return
    probe, chosen = document["probe"], document["verdict"]["budget"]
    found = configuration(engine, chosen, document["acceptance"]["depth_max"], probe["target"], probe["drafter"])
    if json_to is not None:
        show.emit({**document, "engine": vars(found)}, [], [], json_to)
        return
    print(found.text)
    show.remark(document["caveats"][0])
    show.remark(found.note + ".")
