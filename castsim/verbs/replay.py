"""castsim replay."""

from __future__ import annotations

import typer

from castsim import arguments, show
from castsim.errors import OptionError
from castsim.options import budgets_of, choose
from castsim.pricing.context import holds_of
from castsim.pricing.policies import pricing, without_priced
from castsim.results import caveats, results
from castsim.runlog import open_run
from castsim.sample import sample_run
from castsim.score import Mode, Plan, domains_of, score
from castsim.tables.replay import replay_tables
from castsim.verbs import chosen_prompts, document_head
from castsim.verbs.exclusive import refuse_idle, refuse_together
from castsim.workers import workers_of

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
    show.check_target(json_to, "--json")
    show.check_target(csv_to, "--csv")
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
    how = {"prefix": prefix, "holds": holds_of(assume), "strict": strict}
    weighed = pricing(choices, widths, probe, overhead, draft_ms, **how)
    choices = choices if weighed is None else weighed.of(choices, opened)
    plan = Plan(tuple(choices), widths, MODES[chosen])
    names = domains_of(opened, domain or [])
    with show.progress("replay") as done:
        tally = score(opened, plan, chosen_prompts(names, domain), workers, done)
    rows = results(opened, plan, tally, names, seed)
    priced = {} if weighed is None else {"mismatch": weighed.mismatch(opened)}
    notes = [*caveats(opened, plan), *([] if weighed is None else weighed.notes(opened))]
    document = {**document_head("replay", opened), **priced, "caveats": notes, "results": rows}
    show.emit(document, replay_tables(rows), notes, json_to)
    if csv_to is not None:
        show.write_text(csv_to, show.csv_of(rows), "--csv")
