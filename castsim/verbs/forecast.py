"""castsim forecast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from castsim import __version__, arguments, show
from castsim.errors import OptionError, PlacedError
from castsim.forecast import committed_draws, fitted_overhead, forecast
from castsim.options import budgets_of, choose
from castsim.pricing.acceptance import Scored, scored
from castsim.pricing.cost import Cost, overhead_of, require_cost, require_reach
from castsim.pricing.policies import pricing, without_priced
from castsim.pricing.probefile import open_probe
from castsim.runlog import open_run
from castsim.sample import sample_run
from castsim.score import domains_of
from castsim.tables.forecast import forecast_table
from castsim.verbs import chosen_prompts, document_head
from replay.policies import Priced
from replay.width import Overhead


def forecast_verb(
    run: arguments.RunFolder = None,
    probe: arguments.ProbeName = "pair-cpu",
    policy: arguments.Policies = None,
    setting: arguments.Settings = None,
    budgets: arguments.Budgets = "15,31,63",
    prefix: arguments.Prefix = None,
    batch: arguments.Requests = 1,
    draft_ms: arguments.DraftMs = None,
    overhead: arguments.OverheadMs = "0",
    live: arguments.LiveFile = None,
    domain: arguments.Domains = None,
    published: arguments.Published = False,
    seed: arguments.Seed = 0,
    json_to: arguments.Json = None,
) -> None:
    """What decoding should take: R from the replay of a run, times from a probe, overhead given or from live points.

    \b
    castsim forecast
    castsim forecast RUN --probe probe.json --policy topN,spine --overhead 0.8,0.01
    castsim live --json live.json && castsim forecast RUN --probe probe.json --live live.json
    castsim forecast --published
    """
    show.check_target(json_to, "--json")
    if published:
        _published(json_to)
        return
    opened, chosen, widths = (
        open_run(run or sample_run()),
        choose(policy or ["topN"], setting or []),
        budgets_of(budgets),
    )
    cost = require_cost(open_probe(probe).curve(), prefix, batch, draft_ms, overhead_of(overhead), "least_squares")
    require_reach(cost, max(widths[-1], opened.facts.depth_max))
    ar_host = 0.0
    if live is not None:
        host, ar_host = _of_live(live, cost, overhead)
        cost = Cost(cost.curve, cost.draft_ms, host)
    if policy == ["all"]:
        chosen = without_priced(chosen)
    if any(issubclass(c.kind, Priced) for c in chosen):
        weighed = pricing(chosen, widths, probe, overhead, draft_ms)
        chosen = chosen if weighed is None else weighed.of(chosen, opened)
    names = domains_of(opened, domain or [])
    with show.progress("forecast") as done:
        found = scored(opened, chosen_prompts(names, domain), chosen, widths, done)
    rows = rows_of(cost, found, seed, ar_host)
    notes = [*opened.facts.notes, *_caveats(cost, found, live, ar_host)]
    document = {
        **document_head("forecast", opened),
        "probe": probe,
        "draft_ms": cost.draft_ms,
        "overhead_ms": [cost.overhead.fixed_ms, cost.overhead.slope_ms],
        "caveats": notes,
        "results": rows,
    }
    show.emit(document, [forecast_table(rows, len(found.emitted))], notes, json_to)


def rows_of(cost: Cost, found: Scored, seed: int, ar_host_ms: float = 0.0) -> list[dict[str, Any]]:
    """AR, the chain, and each policy at each budget."""
    emitted, rounds = found.emitted, found.rounds
    nodes = found.nodes.sum(axis=0) / rounds.sum(axis=0)
    committed = emitted.sum(axis=0) / rounds.sum(axis=0)
    drawn = committed_draws(committed, (emitted, rounds), seed)
    timed = forecast(cost, nodes.tolist(), committed, drawn, seed, ar_host_ms)
    single = bool(np.isfinite(timed.ar_ms))
    rows: list[dict[str, Any]] = [{"policy": "AR", "budget": 0, "ms_per_token": timed.ar_ms}] if single else []
    for c, (choice, budget) in enumerate(found.columns):
        if c and (choice, budget) == found.columns[0]:
            continue
        rows.append(
            {
                "policy": choice.kind.name,
                "budget": budget,
                "nodes": float(nodes[c]),
                "committed_pooled": float(committed[c]),
                "round_ms": float(timed.round_ms[c]),
                "ms_per_token": float(timed.ms_per_token[c]),
                "ms_per_token_ci95": timed.ms_per_token_ci95[:, c].tolist(),
                "speedup_over_ar": float(timed.speedup[c]) if single else None,
                "speedup_over_ar_ci95": timed.speedup_ci95[:, c].tolist() if single else None,
                "gain_over_chain": float(timed.gain[c]),
                "gain_over_chain_ci95": timed.gain_ci95[:, c].tolist(),
            }
        )
    return rows


def _of_live(file: Path, cost: Cost, overhead: str) -> tuple[Overhead, float]:
    """h(N) from the rounds in the JSON of `castsim live`, and the host's time of a token of its AR, if it is there."""
    if overhead != "0":
        raise OptionError(f"--overhead {overhead}: goes without --live, which says it")
    remedy = "name a file that castsim live --json wrote, with trees"
    try:
        rows = [r for r in json.loads(file.read_text(encoding="utf-8"))["results"] if r["round_ms"] is not None]
        nodes, times = zip(*((r["packed"] - 1, r["round_ms"]) for r in rows if r["method"] != "AR"), strict=True)
        single = [r["round_ms"] for r in rows if r["method"] == "AR"]
        ar_host = max(single[0] - float(cost.curve.ms_at(1)), 0.0) if single else 0.0
        return fitted_overhead(cost, nodes, times), ar_host
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PlacedError(file, f"holds no live rounds ({type(error).__name__}: {error})", remedy) from error


def _caveats(cost: Cost, found: Scored, live: Path | None, ar_host_ms: float) -> list[str]:
    h = cost.overhead
    source = f"fitted to the rounds of {live.name}" if live is not None else "given"
    return [
        f"R: replay, {found.how}, {len(found.emitted)} prompts, pooled. A round: drafter {cost.draft_ms:.2f} ms + host "
        f"{h.fixed_ms:.2f} ms + {h.slope_ms:.4f} ms a node ({source}) + the target's pass, smoothed.",
        f"AR is a pass of one token and {ar_host_ms:.2f} ms of host. Trees of uneven size count at their mean size.",
        "Intervals: prompts and probe drawn anew together, the same prompts for all rows.",
    ]


def _published(json_to: str | None) -> None:
    from castsim.published.forecasts import CAVEATS, cells, cells_tables, summary

    found = cells()
    document = {
        "verb": "forecast",
        "version": __version__,
        "summary": summary(found),
        "published": found,
        "caveats": CAVEATS,
    }
    show.emit(document, cells_tables(found), CAVEATS, json_to)
