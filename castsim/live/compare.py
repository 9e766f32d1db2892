"""Live decodes of some prompts by several methods, timed in one process, and the replay that forecast them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from castsim.advice.pricing import Pricing
from castsim.live.decode.clock import Stopwatch
from castsim.live.decode.loop import Decoder
from castsim.live.decode.walk import RandomDice
from castsim.live.record import Recorder, record
from castsim.live.summary import Decode, Method, Walked
from castsim.runs.manifest import Facts
from castsim.runs.prompts import Conversation
from castsim.runs.reading import Run, open_run
from castsim.scoring.tally import policy_entries, rank_tables
from replay import Rounds, accepted, committed, walk
from replay.bootstrap import paired_bootstrap, pooled_mean
from replay.policies import Measured, Policy

WARM_TOKENS = 16  # of each method and width, before anything is timed


@dataclass(frozen=True)
class LiveOptions:
    """How often, how long and by which streams.

    Attributes:
        new_tokens: limit of an output.
        repeats: timed passes over all prompts and methods; a profiled pass goes before them.
        seed: with a prompt's number, of its random stream; the recorder's streams are the same.
    """

    new_tokens: int = 48
    repeats: int = 2
    seed: int = 0


class Live(NamedTuple):
    """What a live run found: each decode, what the replay said of each method, the facts of the log, and what a reader
    must know of the probe that policies weighed.
    """

    decodes: list[Decode]
    walked: list[Walked | None]
    facts: Facts
    notes: Sequence[str]


def first_turns(conversations: Sequence[Conversation]) -> list[Conversation]:
    """Each conversation's first turn, numbered anew: what the paper decodes of MT-Bench."""
    return [replace(c, number=i, turns=c.turns[:1]) for i, c in enumerate(conversations)]


def live(
    recorder: Recorder,
    decoder: Decoder,
    conversations: Sequence[Conversation],
    methods: Sequence[Method],
    options: LiveOptions,
    done: Callable[[float], None] = lambda _: None,
    price: Pricing | None = None,
) -> Live:
    """Record a dense log of the prompts, replay every method on it, then decode them live.

    The window is the paper's (appendix D). Methods take turns, prompt by prompt, in an order that shifts, so that a
    drift of the machine falls on all alike.

    Raises:
        PromptError: a prompt is empty or too long; nothing is run then.
        ModelError: see `Decoder`.
    """
    prompts = [recorder.first_prompt(c) for c in conversations]
    with tempfile.TemporaryDirectory(prefix="castsim-") as folder:
        record(recorder, conversations, Path(folder) / "log")
        run = open_run(Path(folder) / "log")
        shards = list(run.rounds())
        methods, notes = _priced(methods, price, run), [] if price is None else price.notes(run)
        tables = rank_tables(run.shards, None) if any(_measured(m) for m in methods) else None
    policies = [[_policy(m, half, tables) for half in (0, 1)] for m in methods]
    limits = [min(options.new_tokens, recorder.sequence_max - len(prompt)) for prompt in prompts]

    def decode(method: int, prompt: int, repeat: int, limit: int) -> Decode:
        policy = policies[method][prompt % 2]
        dice = RandomDice(np.random.default_rng([options.seed, prompt]))
        return _decoded(decoder, policy, prompts[prompt], limit, dice, (method, prompt, repeat))

    for method in range(len(methods) if options.repeats else 0):  # without timed passes there is nothing to warm up for
        decode(method, 0, 0, min(WARM_TOKENS, limits[0]))
    plan = list(_turns(len(methods), len(prompts), options.repeats + 1))
    decodes = []
    for method, prompt, repeat in plan:
        done(len(decodes) / len(plan))
        decodes.append(decode(method, prompt, repeat, limits[prompt]))
    walked = [None if m.choice is None else _walked(shards, m, tables, len(prompts), options.seed) for m in methods]
    return Live(decodes, walked, run.facts, notes)


def _priced(methods: Sequence[Method], price: Pricing | None, run: Run) -> list[Method]:
    """The methods, their policies weighing what the log's masses and a probe say."""
    if price is None:
        return list(methods)
    return [m if m.choice is None else replace(m, choice=price.of([m.choice], run)[0]) for m in methods]


def _turns(methods: int, prompts: int, passes: int) -> Iterator[tuple[int, int, int]]:
    """(method, prompt, pass) in the order of decoding."""
    for repeat in range(passes):
        for prompt in range(prompts):
            for turn in range(methods):
                yield (turn + prompt + repeat) % methods, prompt, repeat


def _decoded(
    decoder: Decoder,
    policy: Policy | None,
    prompt: list[int],
    limit: int,
    dice: RandomDice,
    key: tuple[int, int, int],
) -> Decode:
    """One prompt decoded once; `key` is (method, prompt, pass), and pass 0 is timed by part."""
    clock = Stopwatch(decoder.drafter.target.device, by_part=key[2] == 0)
    sequence = decoder.begin(prompt, limit, policy, dice)
    rounds = list(decoder.rounds(sequence, policy, dice, clock))
    return Decode(
        *key,
        finish=sequence.finish or "",
        output=tuple(sequence.output),
        window_ms=clock.window_ms,
        committed=tuple(len(r.emitted) for r in rounds),
        packed=tuple(r.packed for r in rounds),
        parts_ms=tuple(r.parts_ms for r in rounds if r.parts_ms),
    )


def _measured(method: Method) -> bool:
    return method.choice is not None and issubclass(method.choice.kind, Measured)


def _policy(method: Method, half: int, tables: NDArray[np.float64] | None) -> Policy | None:
    """The policy for the prompts of one half, with the rank rates of the other half where it wants some."""
    if method.choice is None:
        return None
    policy = method.choice.at(method.budget)
    return policy.measured(tables[half]) if tables is not None and isinstance(policy, Measured) else policy


def _walked(
    shards: Sequence[Rounds], method: Method, tables: NDArray[np.float64] | None, prompts: int, seed: int
) -> Walked:
    """The walked replay of one method."""
    played: list[NDArray[np.int32]] = [np.empty(0, np.int32)] * prompts
    widths = []
    for rounds in shards:
        policy = method.choice.at(method.budget)
        entry, width = policy_entries(policy, rounds, tables)
        emitted = committed(accepted(entry, [policy.budget]), rounds.remaining)
        visited = walk(rounds, emitted)[:, 0]
        widths.append(width[visited])
        for prompt in np.unique(rounds.prompt):
            played[prompt] = emitted[visited & (rounds.prompt == prompt), 0]
    sums = (np.array([[f(p)] for p in played], np.float64) for f in (np.sum, len))
    return Walked(
        tuple(tuple(p.tolist()) for p in played),
        float(np.concatenate(widths).mean()) + 1 if any(map(len, played)) else None,
        _interval(*sums, seed),
    )


def _interval(emitted: NDArray[np.float64], rounds: NDArray[np.float64], seed: int) -> tuple[float, float] | None:
    """95 % of pooled R over prompts, from sums (P, 1); None for one prompt."""
    prompts, rng = len(emitted), np.random.default_rng(seed)
    low, high = paired_bootstrap(lambda weight: pooled_mean(weight, emitted, rounds), prompts, rng=rng)[:, 0]
    return None if np.isnan(low) else (float(low), float(high))
