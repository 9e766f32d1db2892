"""All checks in turn, from the cheap and basic to the dear and whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from castsim.live.checks import CheckOptions, Finding
from castsim.live.checks.exact import caches, cast, packed_rows, siblings
from castsim.live.checks.greedy import parity, rounds
from castsim.live.checks.sampled import draws, laws, streams
from castsim.live.compare import LiveOptions, live
from castsim.live.decode.loop import Decoder
from castsim.live.record import Recorder
from castsim.live.summary import Method
from castsim.runs.prompts import Conversation
from castsim.scoring.policies import choose
from replay.policies import Measured

SMALL = 2e8  # parameters of a target of which copies in other types are made


def checks(
    recorder: Recorder,
    decoder: Decoder,
    conversations: Sequence[Conversation],
    options: CheckOptions,
    done: Callable[[float], None] = lambda _: None,
) -> Iterator[Finding]:
    """Each finding as it comes.

    What can be exact is held to it in float32 and float64. A pair loaded in a narrower type is audited for near-ties,
    and so is a copy of a small pair.
    """
    prompts = [recorder.first_prompt(c) for c in conversations]
    target = decoder.drafter.target
    wide, small = torch.finfo(target.dtype).bits >= 32, target.model.num_parameters() < SMALL
    yield packed_rows(decoder, prompts)
    if small:
        yield packed_rows(_in(decoder, torch.float64), prompts)
    yield siblings(decoder, prompts)
    yield caches(decoder, prompts)
    done(0.2)
    yield from _greedy(recorder, decoder, conversations, prompts, options, wide)
    done(0.6)
    if small and wide:
        narrow = _in(decoder, torch.bfloat16)
        again = Recorder(narrow.drafter, recorder.chat, recorder.options)
        less = replace(options, budgets=options.budgets[-1:])  # a CPU is slow in this type
        yield from _greedy(again, narrow, conversations, prompts, less, replayed=False)
    done(0.8)
    yield from laws(decoder, prompts)
    yield from draws(decoder, prompts, options.draws, options.seed)
    if wide:
        yield streams(decoder, prompts, options.new_tokens, options.seed)


def _greedy(
    recorder: Recorder,
    decoder: Decoder,
    conversations: Sequence[Conversation],
    prompts: Sequence[list[int]],
    options: CheckOptions,
    replayed: bool,
) -> Iterator[Finding]:
    """Every policy at every budget beside AR and, where rounds can be exact, beside the replay.

    A policy that is measured on other prompts is left out where there is one prompt only.
    """
    choices = [c for c in choose(["all"], []) if len(prompts) > 1 or not issubclass(c.kind, Measured)]
    grid = [Method(choice, budget) for choice in choices for budget in options.budgets]
    methods = [Method(None), *grid]
    found = live(recorder, decoder, conversations, methods, LiveOptions(options.new_tokens, 0, options.seed))
    yield parity(decoder.drafter.target, prompts, methods, found.decodes, options.near_tie)
    if replayed:
        yield rounds(methods, found)


def _in(decoder: Decoder, dtype: torch.dtype) -> Decoder:
    return replace(decoder, drafter=cast(decoder.drafter, dtype))
