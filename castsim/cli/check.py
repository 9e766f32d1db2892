"""castsim check."""

from __future__ import annotations

import dataclasses
from typing import Any

import typer

from castsim import __version__
from castsim.base import terminal
from castsim.cli import arguments
from castsim.cli.common import live_extra, memory_told, some_prompts
from castsim.cli.exclusive import refuse, refuse_together
from castsim.scoring.policies import budgets_of
from castsim.show.tables.live_table import check_table

OWN_PROMPTS = 2  # of the pair's 60


def check(
    context: typer.Context,
    target: arguments.Target = "pair",
    drafter: arguments.Drafter = None,
    prompts: arguments.Prompts = None,
    limit: arguments.CheckLimit = None,
    budgets: arguments.Budgets = "15,63",
    max_new_tokens: arguments.NewTokens = 24,
    near_tie: arguments.NearTie = 0.25,
    draws: arguments.Draws = 1000,
    raw: arguments.Raw = False,
    thinking: arguments.Thinking = False,
    dtype: arguments.Dtype = "auto",
    device: arguments.Device = "auto",
    seed: arguments.RecordSeed = 0,
    json_to: arguments.Json = None,
) -> None:
    """Check that decoding is exact on a pair: masks, caches, greedy and sampled outputs, and the replay's forecast.

    Needs '.[live]'. Exit code 1 if a check fails. Without arguments it checks the small pair that castsim carries,
    on a CPU in under a minute.

    \b
    castsim check
    castsim check --target Qwen/Qwen3-4B --drafter z-lab/Qwen3-4B-DFlash-b16 --prompts gsm8k --limit 4 --dtype bfloat16
    """
    terminal.check_target(json_to, "--json")
    refuse_together(context, "--raw", "--thinking")
    widths = budgets_of(budgets)
    with live_extra("check"):
        from castsim.live.checks import CheckOptions
        from castsim.live.checks.all import checks
        from castsim.live.compare import first_turns
        from castsim.live.decode.loop import Decoder
        from castsim.live.models.load import load_pair
        from castsim.live.record import Recorder, RecordOptions
    talk = first_turns(some_prompts(prompts, limit, OWN_PROMPTS))
    with memory_told():
        bound, chat = load_pair(target, drafter, dtype, device, raw, thinking)
    if bound.target.dtype.itemsize >= 4:
        refuse(context, "float32, where outputs are equal token for token", "--near-tie")
    recorder = Recorder(bound, chat, RecordOptions(max_new_tokens, seed=seed))
    decoder = Decoder(bound, recorder.eos_ids)
    options = CheckOptions(max_new_tokens, widths, near_tie, draws, seed)
    with terminal.progress("check") as done, memory_told():
        findings = list(checks(recorder, decoder, talk, options, done))
    _tell(findings, json_to)
    if not all(finding.passed for finding in findings):
        raise typer.Exit(1)


def _tell(findings: list[Any], json_to: str | None) -> None:
    passed = all(finding.passed for finding in findings)
    document = {
        "verb": "check",
        "version": __version__,
        "passed": passed,
        "checks": [dataclasses.asdict(finding) for finding in findings],
    }
    terminal.emit(document, [check_table(findings)], ["All checks passed." if passed else "Failed."], json_to)
