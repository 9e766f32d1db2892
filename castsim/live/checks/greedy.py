"""Greedy decoding against AR, token for token or up to a near-tie, and against the walked replay, round by round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from castsim.live.checks import Finding
from castsim.live.compare import Live
from castsim.live.models.target import Target
from castsim.live.summary import Decode, Method


class Divergence(NamedTuple):
    """Where an output first leaves AR's.

    Attributes:
        position: in the output.
        token, ar_token: both ids; None behind the end of an output.
        margin: how far the AR logits put the one above the other; the top-2 margin, or more where the token is not the
            second choice.
    """

    position: int
    token: int | None
    ar_token: int | None
    margin: float


def near_tie(divergence: Divergence, limit: float) -> bool:
    """Whether rounding explains a divergence. Only the first is judged: behind it the prefixes differ.

    Source: "Greedy equivalence" of appendix D.2; the limit of .25 is that of appendix F.
    """
    return divergence.margin <= limit


@torch.inference_mode()
def divergence(target: Target, prompt: Sequence[int], output: Sequence[int], ar: Sequence[int]) -> Divergence | None:
    """The first place where an output differs from AR's, with the AR logits' margin there; None if there is none."""
    if list(output) == list(ar):
        return None
    pairs = zip(output, ar, strict=False)
    place = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(output), len(ar)))
    if place >= min(len(output), len(ar)):
        return Divergence(place, *(x[place] if place < len(x) else None for x in (output, ar)), float("inf"))
    ids = torch.tensor([[*prompt, *ar[:place]]], device=target.device)
    logits = target.model(ids, use_cache=False).logits[0, -1].float()
    return Divergence(place, output[place], ar[place], float((logits[ar[place]] - logits[output[place]]).abs()))


def parity(
    target: Target, prompts: Sequence[list[int]], methods: Sequence[Method], decodes: Sequence[Decode], limit: float
) -> Finding:
    """Every output beside that of AR, which is method 0: equal in float32 and wider, else equal up to a near-tie."""
    ar = {d.prompt: d.output for d in decodes if d.method == 0}
    others = [d for d in decodes if d.method]
    apart = []
    for d in others:
        found = divergence(target, prompts[d.prompt], d.output, ar[d.prompt])
        if found is not None:
            apart.append((found, d))
    dtype = str(target.dtype).removeprefix("torch.")
    exact = torch.finfo(target.dtype).bits >= 32
    bad = [(found, d) for found, d in apart if exact or not near_tie(found, limit)]
    told = max(bad or apart, key=lambda pair: pair[0].margin, default=None)
    note = "" if told is None else _told(*told, methods)
    name = f"greedy output equals AR's, {dtype}" + ("" if exact else ", up to near-ties")
    if exact:
        return Finding(name, len(others), float(len(bad)), 0.0, not bad, note)
    worst = max((found.margin for found, _ in apart if math.isfinite(found.margin)), default=0.0)
    return Finding(name, len(others), worst, limit, not bad, f"{len(apart)} apart; {note}" if apart else "")


def rounds(methods: Sequence[Method], found: Live) -> Finding:
    """Tokens that each round committed, live and as the walked replay of a dense log of the same prompts said."""
    trees = [d for d in found.decodes if found.walked[d.method] is not None]
    apart = [d for d in trees if found.walked[d.method].rounds[d.prompt] != d.committed]
    count = sum(len(d.committed) for d in trees)
    note = "" if not apart else f"{methods[apart[0].method].name} at {methods[apart[0].method].budget}"
    return Finding("rounds commit what the walked replay said", count, float(len(apart)), 0.0, not apart, note)


def _told(found: Divergence, decode: Decode, methods: Sequence[Method]) -> str:
    method = methods[decode.method]
    where = f"{method.name} at {method.budget}, prompt {decode.prompt}, position {found.position}"
    return f"{where}: {found.token} for {found.ar_token}, margin {found.margin:.3f}"
