"""castsim replay."""

from __future__ import annotations

import typer

from castsim.advice.pricing import pricing, without_priced
from castsim.base import terminal
from castsim.base.errors import OptionError
from castsim.base.workers import workers_of
from castsim.cli import arguments
from castsim.cli.common import chosen_prompts, document_head
from castsim.cli.exclusive import options_of, refuse_idle, refuse_together
from castsim.costs.context import holds_of
from castsim.runs.reading import open_run
from castsim.runs.sample import sample_run
from castsim.scoring.policies import budgets_of, choose
from castsim.scoring.replay import caveats, results
from castsim.scoring.tally import Mode, Plan, domains_of, score
from castsim.show.tables.replay_table import replay_tables

MODES: dict[str, Mode] = {"walked": "walked", "per-round": "per_round", "chain-rounds": "chain_rounds"}


def replay(
    context: typer.Context,
    run: arguments.RunFolder = None,
    policy: arguments.Policies = None,
    setting: arguments.Settings = None,
    budgets: arguments.Budgets = "15,31,47,63,95,127",
    mode: arguments.ScoreMode = None,
    probe: arguments.PolicyProbe = None,
    draft_ms: arguments.DraftMs = None,
    overhead: arguments.OverheadMs = "0",
    prefix: arguments.Prefix = None,
    assume: arguments.Hold = None,
    strict: arguments.Strict = False,
    domain: arguments.Domains = None,
    jobs: arguments.Jobs = 1,
    backend: arguments.Backend = "local",
    scheduler: arguments.Scheduler = None,
    seed: arguments.Seed = 0,
    json_to: arguments.Json = None,
    csv_to: arguments.Csv = None,
) -> None:
    """Committed round length R of tree policies on a recorded run, beside the chain.

    \b
    castsim replay --policy topN
    castsim replay RUN --policy topN,spine --set rank_cap=4 --budgets 31,63 --json -
    castsim replay --policy costaware,perround --probe blackwell-qwen3-8b --budgets 127
    """
    terminal.check_target(json_to, "--json")
    terminal.check_target(csv_to, "--csv")
    refuse_idle(context, "--probe", "--draft-ms", "--overhead", "--prefix", "--assume", "--strict")
    refuse_together(context, "--scheduler", "--jobs")
    workers = workers_of(jobs, backend, scheduler)
    opened = open_run(run or sample_run())
    walked = "walked" if opened.facts.layout == "dense" else "per-round"
    if (chosen := walked if mode is None else mode) not in MODES:
        raise OptionError(f"--mode {chosen}: there are {', '.join(MODES)}")
    widths = budgets_of(budgets)
    choices = choose(policy or ["topN"], setting or [])
    if policy == ["all"] and probe is None:
        choices = without_priced(choices)
    how = {"prefix": prefix, "holds": holds_of(assume), "strict": strict, "flags": options_of(context)}
    weighed = pricing(choices, widths, probe, overhead, draft_ms, **how)
    notes = [] if weighed is None else weighed.notes(opened)  # what is refused there is refused before the work
    choices = choices if weighed is None else weighed.of(choices, opened)
    plan = Plan(tuple(choices), widths, MODES[chosen])
    names = domains_of(opened, domain or [])
    with terminal.progress("replay") as done:
        tally = score(opened, plan, chosen_prompts(names, domain), workers, done)
    rows = results(opened, plan, tally, names, seed)
    priced = {} if weighed is None else {"mismatch": weighed.mismatch(opened.facts)}
    notes = [*caveats(opened, plan), *notes]
    document = {**document_head("replay", opened), **priced, "caveats": notes, "results": rows}
    terminal.emit(document, replay_tables(rows), notes, json_to)
    if csv_to is not None:
        terminal.write_text(csv_to, terminal.csv_of(rows), "--csv")
