"""Which prefix a price is for: the one that was named, the contexts of a run's rounds, or the probe's own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from castsim.base.errors import OptionError
from castsim.runs.reading import Run
from replay.latency import LatencyCurve

USUAL = 1024  # cached tokens that the paper prices at (appendix D)


@dataclass(frozen=True, eq=False)
class Context:
    """What a price is for.

    Attributes:
        tokens: cached tokens, one number for each round that is priced; their mean curve is the price.
        held: some lie outside the measured prefixes, and another one stands for them.
        told: the same in words.
        flags: options that the user has; messages about prices name no others.
    """

    tokens: NDArray[np.int64]
    held: bool
    told: str
    flags: Collection[str] = ()

    def of(self, curve: LatencyCurve, batch: int = 1) -> LatencyCurve:
        """The curve of one batch size at this context. Raises `ValueError` for a batch size that was not measured."""
        return curve.at(self.tokens, batch, "hold")


def run_contexts(run: Run, prompts: Sequence[int] | None = None) -> NDArray[np.int64]:
    """Cached tokens at each position of a run's outputs: the prompt, and what came of the output before the root."""
    frame = run.sequences()
    if prompts is not None:
        frame = frame.filter(frame["prompt"].is_in(list(prompts)))
    before, rounds = (frame[name].list.len().to_numpy().astype(np.int64) for name in ("prompt_tokens", "output_tokens"))
    rounds = np.maximum(rounds - 1, 1)
    begun = np.repeat(np.cumsum(rounds) - rounds, rounds)
    return np.repeat(before, rounds) + np.arange(rounds.sum()) - begun


def holds_of(assume: str | None) -> bool:
    """Whether the nearest prefix may stand for what lies outside: what --assume says.

    Raises:
        OptionError: it says something else.
    """
    if assume not in (None, "hold"):
        raise OptionError(f"--assume {assume}: there is hold, which lets the nearest measured prefix stand")
    return assume == "hold"


def context_of(
    curve: LatencyCurve,
    asked: int | None,
    rounds: NDArray[np.int64] | None,
    holds: bool,
    own: bool = False,
    flags: Collection[str] = (),
) -> Context:
    """The context to price at.

    Args:
        asked: the prefix that the user named; it goes before all else.
        rounds: (n,) cached tokens of the rounds that are priced, see `run_contexts`, or None where none are known.
        holds: the user lets the nearest measured prefix stand for what lies outside.
        own: a prefix of the probe's own stands where the rounds lie outside, as the question is the machine's.
        flags: see `Context`.

    Raises:
        OptionError: a context outside several measured prefixes, or a named one outside, and `holds` is False.
    """
    low, high = int(curve.prefix[0]), int(curve.prefix[-1])
    if high == 0:
        return Context(curve.prefix, False, "The probe names no prefix: its times stand for every context.", flags)
    if asked is not None:
        told = f"Priced at a prefix of {asked} tokens"
        return _checked(curve, np.array([asked]), holds, f"--prefix {asked}", told, flags)
    if rounds is not None and not _outside(curve, rounds):
        return Context(rounds, False, f"Priced at {_held_by(rounds)}, {rounds.mean():.0f} on average.", flags)
    if rounds is not None and low < high and (holds or not own):
        return _checked(curve, rounds, holds, _held_by(rounds), f"Priced at {_held_by(rounds)}", flags)
    usual = int(np.clip(USUAL, low, high))
    beside = "" if rounds is None else f", which stands for {_held_by(rounds)}"
    other = "; --prefix names another" if "--prefix" in flags else ""
    told = f"Priced at a prefix of {usual} tokens{beside}{other}."
    return Context(np.array([usual]), rounds is not None, told, flags)


def _held_by(rounds: NDArray[np.int64]) -> str:
    return f"the {rounds.min()} to {rounds.max()} cached tokens of the run's rounds"


def _outside(curve: LatencyCurve, tokens: NDArray[np.int64]) -> bool:
    return bool(tokens.min() < curve.prefix[0] or tokens.max() > curve.prefix[-1])


def _checked(
    curve: LatencyCurve, tokens: NDArray[np.int64], holds: bool, what: str, told: str, flags: Collection[str]
) -> Context:
    """A context that may lie outside, where the user lets it."""
    low, high = int(curve.prefix[0]), int(curve.prefix[-1])
    if not _outside(curve, tokens):
        return Context(tokens, False, f"{told}.", flags)
    measured = f"from {low} to {high}" if low < high else f"at {low} only"
    if not holds:
        other = f"name a measured prefix, as in --prefix {low}" if "--prefix" in flags else "measure there"
        remedy = f"{other}, or let the nearest stand with --assume hold"
        raise OptionError(f"{what}: outside the probe, which measured {measured}; {remedy}")
    why = " (--assume hold)" if "--assume" in flags else ""
    beyond = f"outside the probe, which measured {measured}: the nearest prefix stands for them{why}"
    return Context(tokens, True, f"{told}, {beyond}.", flags)
