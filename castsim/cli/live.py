"""castsim live."""

from __future__ import annotations

import dataclasses
from typing import Any

import typer

from castsim import __version__
from castsim.advice.forecast import PARTS
from castsim.advice.pricing import Pricing, pricing
from castsim.base import terminal
from castsim.cli import arguments
from castsim.cli.common import live_extra, memory_told, some_prompts
from castsim.cli.exclusive import options_of, refuse_idle, refuse_sampling, refuse_together
from castsim.live.summary import Method, live_rows
from castsim.runs.manifest import Facts
from castsim.runs.prompts import Conversation
from castsim.scoring.policies import Choice, budgets_of, choose
from castsim.scoring.tally import BASELINE
from castsim.show.tables.live_table import live_table

OWN_PROMPTS = 6  # of the pair's 60, spread over its domains, for a run without --prompts


def live(
    context: typer.Context,
    target: arguments.Target = "pair",
    drafter: arguments.Drafter = None,
    prompts: arguments.Prompts = None,
    limit: arguments.LiveLimit = None,
    policy: arguments.Policies = None,
    setting: arguments.Settings = None,
    budgets: arguments.Budgets = "15,31,63",
    probe: arguments.PolicyProbe = None,
    strict: arguments.Strict = False,
    repeats: arguments.Repeats = 2,
    max_new_tokens: arguments.NewTokens = 48,
    temperature: arguments.Temperature = 0.0,
    top_k: arguments.TopK = 0,
    top_p: arguments.TopP = 1.0,
    verifier: arguments.VerifierName = "direct",
    rank_kept: arguments.RankKept = 16,
    no_ar: arguments.NoAr = False,
    no_chain: arguments.NoChain = False,
    raw: arguments.Raw = False,
    thinking: arguments.Thinking = False,
    dtype: arguments.Dtype = "auto",
    device: arguments.Device = "auto",
    seed: arguments.RecordSeed = 0,
    json_to: arguments.Json = None,
) -> None:
    """Decode live: AR, the DFlash chain and trees on the same prompts, timed, beside what replay and forecast said.

    Needs '.[live]'. Without arguments it decodes with the pair that castsim carries, on a CPU in under a minute.

    \b
    castsim live
    castsim live --target Qwen/Qwen3-8B --drafter z-lab/Qwen3-8B-DFlash-b16 --prompts gsm8k --limit 20 --device cuda
    """
    terminal.check_target(json_to, "--json")
    refuse_sampling(context, temperature, "--verifier")
    refuse_together(context, "--raw", "--thinking")
    refuse_idle(context, "--probe", "--strict")
    choices, widths = choose(policy or ["topN"], setting or []), budgets_of(budgets)
    weighed = pricing(choices, widths, probe, "0", None, holds=True, strict=strict, flags=options_of(context))
    with live_extra("live"):
        from castsim.live import compare as run
        from castsim.live.decode.loop import Decoder
        from castsim.live.models.load import load_pair
        from castsim.live.models.sampling import Sampling
        from castsim.live.record import Recorder, RecordOptions
    sampling = Sampling(temperature, top_k, top_p)
    talk = run.first_turns(some_prompts(prompts, limit, OWN_PROMPTS))
    with memory_told():
        bound, chat = load_pair(target, drafter, dtype, device, raw, thinking)
    recorder = Recorder(bound, chat, RecordOptions(max_new_tokens, rank_kept, sampling=sampling, seed=seed))
    if weighed is not None:
        weighed.warning(recorder.facts(talk, None))  # a strict user need not wait for a recording
    decoder = Decoder(bound, recorder.eos_ids, sampling, verifier, rank_kept)
    methods = _methods(choices, widths, not no_ar, None if no_chain else bound.depth_max)
    with terminal.progress("live") as done, memory_told():
        timing = run.LiveOptions(max_new_tokens, repeats, seed)
        found = run.live(recorder, decoder, talk, methods, timing, done, weighed)
    _tell(methods, talk, found, verifier if temperature else "greedy", seed, weighed, json_to)


def _methods(choices: list[Choice], budgets: tuple[int, ...], ar: bool, chain: int | None) -> list[Method]:
    """The baselines that are wanted, then each policy at each budget; the whole chain once."""
    baselines = [*([Method(None)] if ar else []), *([] if chain is None else [Method(BASELINE, chain)])]
    return [*baselines, *(m for m in (Method(c, n) for c in choices for n in budgets) if m not in baselines)]


def _tell(
    methods: list[Method],
    talk: list[Conversation],
    found: Any,
    verifier: str,
    seed: int,
    weighed: Pricing | None,
    json_to: str | None,
) -> None:
    rows = live_rows(methods, found.decodes, found.walked, seed)
    notes = [*_caveats(found.facts, rows, len(talk), verifier), *found.notes]
    document = {
        "verb": "live",
        "version": __version__,
        "run": found.facts.model_dump(mode="json"),
        "verifier": verifier,
        "prompts": [c.prompt_id for c in talk],
        "parts": PARTS,
        **({} if weighed is None else {"mismatch": weighed.mismatch(found.facts)}),
        "caveats": notes,
        "results": rows,
        "decodes": [dataclasses.asdict(d) for d in found.decodes],
    }
    terminal.emit(document, [live_table(rows, len(talk))], notes, json_to)


def _caveats(facts: Facts, rows: list[dict[str, Any]], prompts: int, verifier: str) -> list[str]:
    """What a reader must know of the table."""
    exact = facts.dtype == "float32" and verifier != "recursive"
    lines = [
        f"{prompts} prompts, up to {facts.new_tokens} tokens, {facts.dtype} on {facts.device}, {verifier}; in brackets "
        "what was said before: R, rows and rounds by the walked replay of a dense log of the same prompts, times by "
        "the replay's rounds and the medians of a profiled pass.",
        "ms/token: the window opens before the first verification, behind prefill and the first draft, and closes at "
        "the end of the output; tokens without the one that prefill gave; all prompts pooled, medians of the repeats.",
        "Shares are of the profiled pass. Intervals: 2,000 paired draws of prompts.",
        "Rows by the replay count whole trees; live, the last rounds leave out nodes behind the end of the output.",
    ]
    trees = [row for row in rows if "prompts_equal_to_replay" in row]
    if exact and any(row["prompts_equal_to_replay"] < prompts for row in trees):
        lines.append("A round's length differs from the replay's somewhere: castsim check finds out why.")
    if not exact:
        lines.append(
            "Round by round the replay is exact in float32 only, and under a verifier that shares the log's random "
            "stream (greedy, direct); here compare R with the replay's interval."
        )
    return lines
