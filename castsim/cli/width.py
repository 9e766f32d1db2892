"""castsim width."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from castsim import __version__
from castsim.advice.acceptance import Acceptance, mass_names, of_file, of_run, published, unknown_masses
from castsim.advice.engines import Configuration, configuration
from castsim.advice.per_round import per_round_rows
from castsim.advice.verdict import Question, answer
from castsim.base import terminal
from castsim.base.errors import OptionError
from castsim.cli import arguments
from castsim.cli.common import chosen_prompts
from castsim.cli.exclusive import options_of, refuse, refuse_all_but, refuse_idle
from castsim.costs.context import context_of, holds_of, run_contexts
from castsim.costs.curve import Cost, overhead_of, require_cost
from castsim.costs.probefile import open_probe
from castsim.runs.reading import Run, open_run
from castsim.runs.sample import sample_run
from castsim.scoring.policies import budgets_of
from castsim.scoring.tally import domains_of
from castsim.show.plots import check_plot
from castsim.show.tables.width_table import width_tables


def width(
    context: typer.Context,
    probe: arguments.ProbeName = "pair-cpu",
    masses: arguments.Masses = None,
    budgets: arguments.AllBudgets = None,
    prefix: arguments.Prefix = None,
    assume: arguments.Hold = None,
    batch: arguments.Requests = 1,
    draft_ms: arguments.DraftMs = None,
    overhead: arguments.OverheadMs = "0",
    line: arguments.LineMethod = "least_squares",
    domain: arguments.Domains = None,
    rank_cap: arguments.RankCap = 8,
    strict: arguments.Strict = False,
    emit: arguments.Emit = None,
    force: arguments.Force = False,
    plot: arguments.Plot = None,
    published: arguments.Published = False,
    seed: arguments.Seed = 0,
    json_to: arguments.Json = None,
) -> None:
    """How wide a tree pays: the answer of each rule, throughput and gain at each width, tree or chain or no drafter.

    Without --budgets every width that the probe prices is weighed, and the table shows some of them.

    \b
    castsim width --probe blackwell-qwen3-8b --masses qwen3-8b-gsm8k
    castsim width --probe probe.json --masses RUN --plot width.png
    castsim width --probe blackwell-qwen3-8b --masses qwen3-8b-gsm8k --emit vllm
    castsim width --published
    """
    terminal.check_target(json_to, "--json")
    terminal.check_target(plot, "--plot")
    check_plot(plot)
    if published:
        refuse_all_but(context, "--published", "--json")
        _published(json_to)
        return
    _check_emit(context, emit)
    opened, run = open_probe(probe), _run_of(masses)
    if run is None:
        refuse(context, f"--masses {masses}, which is no run", "--domain", "--rank-cap")
    prompts = None if run is None else chosen_prompts(domains_of(run, domain or []), domain)
    rounds = None if run is None else run_contexts(run, prompts)
    at = context_of(opened.curve(), prefix, rounds, holds_of(assume), True, options_of(context))
    cost = require_cost(opened.curve(), at, batch, draft_ms, overhead_of(overhead), line)
    named = () if budgets is None else budgets_of(budgets)
    asked = Question(probe, opened, cost, _priced_grid(named, cost), at, batch, seed, strict, named)
    most = asked.grid[-1]
    with terminal.progress("width") as done:
        found = _named(str(masses), asked) if run is None else of_run(run, prompts, asked.grid, rank_cap, most, done)
        more = [] if run is None else per_round_rows(run, prompts, cost, found, most, rank_cap, seed)
    document = answer(asked, found, more)
    if emit is None:
        terminal.emit(document, width_tables(document, budgets is None), document["caveats"], json_to)
    else:
        _emit(emit, document, force, json_to)
    _draw(document, plot)


def _check_emit(context: typer.Context, emit: str | None) -> None:
    refuse_idle(context, "--emit", "--force")
    if emit == "json":
        refuse(context, "--emit json, which prints every answer", "--force")
    elif emit is not None:
        configuration(emit, None, 1)  # an unknown engine is refused before any work


def _draw(document: dict[str, Any], plot: Path | None) -> None:
    if plot is not None:
        from castsim.show.plots.width_plot import width_figure

        width_figure(document, plot)


def _published(json_to: str | None) -> None:
    from castsim.paper.table_2 import CAVEATS, settings, settings_table
    from castsim.paper.table_3 import intervals_table, prompt_gains

    rows, gains = settings(), prompt_gains()
    document = {"verb": "width", "version": __version__, "published": rows, "table_3": gains, "caveats": CAVEATS}
    terminal.emit(document, [settings_table(rows), intervals_table(gains)], CAVEATS, json_to)


def _priced_grid(named: tuple[int, ...], cost: Cost) -> tuple[int, ...]:
    """The widths that were named, as far as the probe prices them; without any, all that it prices."""
    kept = tuple(n for n in named or range(1, cost.most + 1) if n <= cost.most)
    if not kept:
        problem = f"the probe ends at {cost.most + 1} packed tokens; give at most {cost.most}"
        raise OptionError(f"--budgets {named[0]}: {problem}")
    return kept


def _run_of(masses: str | None) -> Run | None:
    """The run that masses come from; None where they have a name or a file of their own."""
    path = sample_run() if masses is None else Path(masses)
    return open_run(path) if path.is_dir() else None


def _named(masses: str, asked: Question) -> Acceptance:
    if masses in mass_names():
        return published(masses, asked.probe.target, asked.probe.gpu, asked.cost.most)
    if Path(masses).is_file():
        return of_file(Path(masses), asked.grid[-1], asked.grid if asked.named else None)
    raise unknown_masses(masses)


def _emit(engine: str, document: dict[str, Any], force: bool, json_to: str | None) -> None:
    """The configuration alone on stdout, and the document in the file of --json; "--json -" prints the document.

    Raises:
        OptionError: what the engine would run does not pay, unless forced, or it does not run such drafters.
    """
    if engine == "json":
        terminal.emit(document, [], [], json_to)
        if json_to != "-":
            terminal.emit(document, [], [], "-")
        return
    found = _configured(engine, document)
    if not force:
        _require_gain(found, document)
    terminal.emit({**document, "engine": vars(found)}, [], [], json_to)
    if json_to == "-":
        return
    print(found.text)
    terminal.remark(document["caveats"][0])
    for line in document["caveats"]:
        if line.startswith("Warning: run and probe"):
            terminal.remark(line)
    terminal.remark(found.note + ".")


def _configured(engine: str, document: dict[str, Any]) -> Configuration:
    probe, drafted = document["probe"], document["acceptance"]
    target, drafter = (drafted[name] or probe[name] for name in ("target", "drafter"))
    kind = drafted["kind"] or probe["drafter_kind"]
    return configuration(engine, document["verdict"]["budget"], drafted["depth_max"], target, drafter, kind)


def _require_gain(found: Configuration, document: dict[str, Any]) -> None:
    """Refuse what is slower than no drafter: the tree, or the chain where the engine verifies no tree."""
    budget = document["verdict"]["budget"] if found.expresses else None
    policy, what = ("chain", "the chain") if budget is None else ("topN", f"the tree of N = {budget}")
    rows = (r for r in document["widths"] if r["policy"] == policy and budget in (None, r["budget"]))
    speedup = next(rows)["speedup_over_ar"]
    if speedup is not None and speedup < 1:
        slow = f"{what} that it would run is slower than decoding without a drafter: {speedup:.2f}x"
        raise OptionError(f"--emit {found.engine}: {slow}; run without a drafter, or print it with --force")
