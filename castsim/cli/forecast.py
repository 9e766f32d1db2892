"""castsim forecast."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from castsim import __version__
from castsim.advice.acceptance import Scored, scored
from castsim.advice.forecast import committed_draws, fitted_overhead, forecast
from castsim.advice.pricing import with_price, without_priced
from castsim.base import terminal
from castsim.base.errors import PlacedError
from castsim.base.numbers import ends_or_none, or_none
from castsim.base.textfile import read_json
from castsim.cli import arguments
from castsim.cli.common import chosen_prompts, document_head
from castsim.cli.exclusive import options_of, refuse, refuse_all_but
from castsim.costs.context import Context, context_of, holds_of, run_contexts
from castsim.costs.curve import Cost, overhead_of, require_cost, require_reach
from castsim.costs.match import differences, of_facts, of_probe, told
from castsim.costs.probefile import open_probe
from castsim.runs.reading import Run, open_run
from castsim.runs.sample import sample_run
from castsim.scoring.policies import Choice, budgets_of, choose
from castsim.scoring.tally import domains_of
from castsim.show.tables.forecast_table import forecast_table
from replay.policies import Priced
from replay.width import Overhead

USUAL = (15, 31, 63)  # budgets


def forecast_verb(
    context: typer.Context,
    run: arguments.RunFolder = None,
    probe: arguments.ProbeName = "pair-cpu",
    policy: arguments.Policies = None,
    setting: arguments.Settings = None,
    budgets: arguments.AllBudgets = None,
    prefix: arguments.Prefix = None,
    assume: arguments.Hold = None,
    batch: arguments.Requests = 1,
    draft_ms: arguments.DraftMs = None,
    overhead: arguments.OverheadMs = "0",
    live: arguments.LiveFile = None,
    strict: arguments.Strict = False,
    domain: arguments.Domains = None,
    published: arguments.Published = False,
    seed: arguments.Seed = 0,
    json_to: arguments.Json = None,
) -> None:
    """What decoding should take: R from the replay of a run, times from a probe, overhead given or from live points.

    Rounds are priced at the run's own contexts, between the prefixes of the probe. Trees and chains of more nodes than
    the probe prices have no time.

    \b
    castsim forecast
    castsim forecast RUN --probe probe.json --policy topN,spine --overhead 0.8,0.01
    castsim forecast RUN --probe blackwell-qwen3-8b --prefix 1024
    castsim live --json live.json && castsim forecast RUN --probe probe.json --live live.json
    castsim forecast --published
    """
    terminal.check_target(json_to, "--json")
    if published:
        refuse_all_but(context, "--published", "--json")
        _published(json_to)
        return
    if live is not None:
        refuse(context, "--live, which says the host's time", "--overhead")
    opened, known = open_run(run or sample_run()), open_probe(probe)
    mismatch = differences(of_facts(opened.facts), of_probe(known))
    warning = told(mismatch, strict)
    prompts = chosen_prompts(domains_of(opened, domain or []), domain)
    at = context_of(known.curve(), prefix, run_contexts(opened, prompts), holds_of(assume), flags=options_of(context))
    cost = require_cost(known.curve(), at, batch, draft_ms, overhead_of(overhead), "least_squares")
    host, ar_host = (cost.overhead, 0.0) if live is None else _of_live(live, cost)
    cost, widths = replace(cost, overhead=host), _widths(budgets, cost)
    chosen = _priced(choose(policy or ["topN"], setting or []), policy == ["all"], cost, opened, widths)
    with terminal.progress("forecast") as done:
        found = scored(opened, prompts, chosen, widths, done)
    rows = rows_of(cost, found, seed, ar_host)
    notes = [*opened.facts.notes, *warning, at.told, *_caveats(cost, found, live, ar_host, rows)]
    document = {
        **document_head("forecast", opened),
        "probe": probe,
        "mismatch": mismatch,
        **_priced_at(cost, at),
        "caveats": notes,
        "results": rows,
    }
    terminal.emit(document, [forecast_table(rows, len(found.emitted))], notes, json_to)


def _priced(choices: list[Choice], every: bool, cost: Cost, run: Run, widths: tuple[int, ...]) -> list[Choice]:
    """The policies, those that weigh nodes with the price of the forecast; "all" leaves those out."""
    if every:
        return without_priced(choices)
    if any(issubclass(c.kind, Priced) for c in choices):
        require_reach(cost, max(widths))
    return with_price(choices, cost, max(widths), run)


def _widths(budgets: str | None, cost: Cost) -> tuple[int, ...]:
    """The budgets that were named; without any, the usual ones that the probe prices, or the widest that it does."""
    if budgets is not None:
        return budgets_of(budgets)
    return tuple(n for n in USUAL if n <= cost.most) or (cost.most,)


def rows_of(cost: Cost, found: Scored, seed: int, ar_host_ms: float = 0.0) -> list[dict[str, Any]]:
    """AR, the chain, and each policy at each budget."""
    emitted, rounds = found.emitted, found.rounds
    nodes = found.nodes.sum(axis=0) / rounds.sum(axis=0)
    committed = emitted.sum(axis=0) / rounds.sum(axis=0)
    drawn = committed_draws(committed, (emitted, rounds), seed)
    timed = forecast(cost, nodes.tolist(), committed, drawn, seed, ar_host_ms)
    rows: list[dict[str, Any]] = [{"policy": "AR", "budget": 0, "ms_per_token": or_none(timed.ar_ms)}]
    for c, (choice, budget) in enumerate(found.columns):
        if c and (choice, budget) == found.columns[0]:
            continue
        rows.append(
            {
                "policy": choice.kind.name,
                "budget": budget,
                "nodes": float(nodes[c]),
                "committed_pooled": float(committed[c]),
                "round_ms": or_none(timed.round_ms[c]),
                "ms_per_token": or_none(timed.ms_per_token[c]),
                "ms_per_token_ci95": ends_or_none(timed.ms_per_token_ci95[:, c]),
                "speedup_over_ar": or_none(timed.speedup[c]),
                "speedup_over_ar_ci95": ends_or_none(timed.speedup_ci95[:, c]),
                "gain_over_chain": or_none(timed.gain[c]),
                "gain_over_chain_ci95": ends_or_none(timed.gain_ci95[:, c]),
            }
        )
    return rows


def _of_live(file: Path, cost: Cost) -> tuple[Overhead, float]:
    """h(N) from the rounds in the JSON of `castsim live`, and the host's time of a token of its AR, if it is there."""
    remedy = "name a file that castsim live --json wrote, with trees"
    try:
        rows = [r for r in read_json(file)["results"] if r["round_ms"] is not None]
        nodes, times = zip(*((r["packed"] - 1, r["round_ms"]) for r in rows if r["method"] != "AR"), strict=True)
        single = [r["round_ms"] for r in rows if r["method"] == "AR"]
        ar_host = max(single[0] - cost.ar_ms, 0.0) if single and not np.isnan(cost.ar_ms) else 0.0
        return fitted_overhead(cost, nodes, times), ar_host
    except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise PlacedError(file, f"holds no live rounds ({type(error).__name__}: {error})", remedy) from error


def _caveats(cost: Cost, found: Scored, live: Path | None, ar_host_ms: float, rows: list[dict[str, Any]]) -> list[str]:
    h = cost.overhead
    source = f"fitted to the rounds of {live.name}" if live is not None else "given"
    lines = [
        f"R: replay, {found.how}, {len(found.emitted)} prompts, pooled. A round: drafter {cost.draft_ms:.2f} ms + host "
        f"{h.fixed_ms:.2f} ms + {h.slope_ms:.4f} ms a node ({source}) + the target's pass, smoothed.",
        f"AR is a pass of one token and {ar_host_ms:.2f} ms of host. Trees of uneven size count at their mean size.",
    ]
    unpriced = [f"{row['policy']} of {row['budget']}" for row in rows if row["ms_per_token"] is None]
    if unpriced:
        lines.append(
            f"The probe ends at {cost.most + 1} packed tokens, which prices {cost.most} nodes: no time for "
            f"{', '.join(unpriced)}."
        )
    if np.isnan(cost.ar_ms):
        lines.append("The probe has no pass of one token, so nothing is said of decoding without a drafter.")
    if cost.curve.samples_ms is None:
        return [*lines, "Intervals: prompts drawn anew; the probe holds medians only, so its noise is not in them."]
    return [*lines, "Intervals: prompts and probe drawn anew together, the same prompts for all rows."]


def _priced_at(cost: Cost, at: Context) -> dict[str, Any]:
    return {
        "prefix": int(cost.curve.prefix[0]),
        "prefix_held": at.held,
        "draft_ms": cost.draft_ms,
        "overhead_ms": [cost.overhead.fixed_ms, cost.overhead.slope_ms],
    }


def _published(json_to: str | None) -> None:
    from castsim.paper.forecast_tables import CAVEATS, cells, cells_tables, summary

    found = cells()
    document = {
        "verb": "forecast",
        "version": __version__,
        "summary": summary(found),
        "published": found,
        "caveats": CAVEATS,
    }
    terminal.emit(document, cells_tables(found), CAVEATS, json_to)
