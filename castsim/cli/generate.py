"""castsim generate."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import typer

from castsim import __version__
from castsim.base import terminal
from castsim.cli import arguments
from castsim.cli.common import live_extra, memory_told
from castsim.cli.exclusive import refuse, refuse_sampling, refuse_together
from castsim.runs.prompts import Conversation
from castsim.scoring.policies import one_policy


def generate(
    context: typer.Context,
    prompt: arguments.PromptText,
    target: arguments.Target = "pair",
    drafter: arguments.Drafter = None,
    policy: arguments.OnePolicy = "topN",
    setting: arguments.Settings = None,
    budget: arguments.Budget = 63,
    max_new_tokens: arguments.NewTokens = 128,
    temperature: arguments.Temperature = 0.0,
    top_k: arguments.TopK = 0,
    top_p: arguments.TopP = 1.0,
    verifier: arguments.VerifierName = "direct",
    rank_kept: arguments.RankKept = 16,
    raw: arguments.Raw = False,
    thinking: arguments.Thinking = False,
    dtype: arguments.Dtype = "auto",
    device: arguments.Device = "auto",
    seed: arguments.RecordSeed = 0,
    json_to: arguments.Json = None,
) -> None:
    """Answer one prompt, as it comes, and say on stderr what the rounds were like. Needs '.[live]'.

    \b
    castsim generate "A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts in total?"
    castsim generate "def add(a, b):" --policy chain --temperature 0.7 --json -
    """
    terminal.check_target(json_to, "--json")
    if policy == "ar":
        refuse(context, "--policy ar", "--set", "--budget", "--rank-kept", "--verifier")
    refuse_sampling(context, temperature, "--verifier")
    refuse_together(context, "--raw", "--thinking")
    chosen = None if policy == "ar" else one_policy("--policy", policy, setting or [], budget)
    with live_extra("generate"):
        from castsim.live.decode.clock import Stopwatch
        from castsim.live.decode.loop import Decoder
        from castsim.live.decode.walk import RandomDice
        from castsim.live.models.load import load_pair
        from castsim.live.models.sampling import Sampling
        from castsim.live.record import Recorder, RecordOptions
    sampling = Sampling(temperature, top_k, top_p)
    with memory_told("give fewer --max-new-tokens, a smaller --budget or another --device"):
        bound, chat = load_pair(target, drafter, dtype, device, raw, thinking)
        recorder = Recorder(bound, chat, RecordOptions(max_new_tokens, rank_kept, sampling=sampling, seed=seed))
        ids = recorder.first_prompt(Conversation(0, "prompt", "prompt", (prompt,), "the prompt"))
        decoder, clock = Decoder(bound, recorder.eos_ids, sampling, verifier, rank_kept), Stopwatch(bound.target.device)
        dice = RandomDice(np.random.default_rng([seed, 0]))
        sequence = decoder.begin(ids, max_new_tokens, chosen, dice)
        rounds = _shown(sequence, decoder.rounds(sequence, chosen, dice, clock), chat, quiet=json_to == "-")
    _tell(_document(policy, sequence, rounds, clock.window_ms, chat), json_to)


def _shown(sequence: Any, rounds: Iterator[Any], chat: Any, quiet: bool) -> list[Any]:
    """All rounds; the text is printed as it comes. A character may need the tokens of several rounds."""
    played, text = [], ""
    while True:
        said = chat.said(sequence.output)
        if not quiet and said.startswith(text) and not said.endswith("\ufffd"):
            print(said[len(text) :], end="", flush=True)
            text = said
        if (last := next(rounds, None)) is None:
            if not quiet:
                print(said[len(text) :] if said.startswith(text) else f"\n{said}")
            return played
        played.append(last)


def _document(policy: str, sequence: Any, rounds: list[Any], window_ms: float, chat: Any) -> dict[str, Any]:
    emitted = sum(len(r.emitted) for r in rounds)
    return {
        "verb": "generate",
        "version": __version__,
        "policy": policy,
        "text": chat.said(sequence.output),
        "finish": sequence.finish,
        "prompt_tokens": sequence.begin,
        "output": sequence.output,
        "rounds": [{"packed": r.packed, "committed": len(r.emitted)} for r in rounds],
        "committed_mean": emitted / len(rounds) if rounds else None,
        "ms_per_token": window_ms / emitted if emitted else None,
    }


def _tell(document: dict[str, Any], json_to: str | None) -> None:
    """The document where it is wanted, and a line on stderr of what the rounds were like."""
    if json_to is not None:
        terminal.emit(document, [], [], json_to)
    if json_to != "-":
        mean, pace = (terminal.number(document[key], "{:.2f}") for key in ("committed_mean", "ms_per_token"))
        count, rounds = len(document["output"]), len(document["rounds"])
        line = f"{count} tokens, {rounds} rounds, R {mean}, {pace} ms/token without prefill, {document['finish']}"
        print(line, file=sys.stderr)
