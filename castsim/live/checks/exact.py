"""One packed pass against many standalone ones (Lemma 1), and caches against a recomputation."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from castsim.live.checks import Finding
from castsim.live.decode.clock import Stopwatch
from castsim.live.decode.loop import Decoder
from castsim.live.decode.sequence import Sequence as Decoding
from castsim.live.decode.walk import RandomDice
from castsim.live.models.drafter import Drafter
from castsim.live.models.drafter_context import Grown
from castsim.live.models.noise import allowed, deviation, limit_of, own_noise
from castsim.scoring.tree import Tree
from replay.policies.topn import TopN

ROUNDS = (1, 10, 50)  # after which the caches are compared
TREE = TopN(31)


def cast(drafter: Drafter, dtype: torch.dtype) -> Drafter:
    """A copy of a pair in another type; rotary frequencies stay as they are, as in a model loaded in that type.

    Experts of a mixture are multiplied one by one, as the grouped product of torch takes no float64.
    """
    model = copy.deepcopy(drafter.target.model)
    model.set_experts_implementation("eager")
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    head = copy.deepcopy(drafter.head).placed(drafter.target.device, dtype)
    return replace(drafter, head=head, target=replace(drafter.target, model=model))


def dice(seed: int = 0) -> RandomDice:
    """A stream for decodes that are greedy, or that a seed repeats."""
    return RandomDice(np.random.default_rng(seed))


def drafted(decoder: Decoder, prompt: list[int], policy: TopN = TREE) -> tuple[Decoding, Tree]:
    """A sequence at the entry of its first round, and the tree that the round would verify."""
    sequence = decoder.begin(prompt, decoder.drafter.depth_max + 2, policy, dice())
    with torch.inference_mode():
        return sequence, decoder.tree(sequence, policy, decoder.draft(sequence, policy))


@torch.inference_mode()
def packed_rows(decoder: Decoder, prompts: Sequence[list[int]]) -> Finding:
    """Lemma 1: each row of a packed tree has the logits of a standalone forward on its own path.

    A model that computes parts in a narrower type is judged by its own noise.
    """
    worst, noise, cases, target = 0.0, 0.0, 0, decoder.drafter.target
    for prompt in prompts:
        sequence, tree = drafted(decoder, prompt)
        logits, _ = sequence.read(sequence.packed(tree))
        for path in _leaves(tree):
            alone = torch.tensor([[*sequence.tokens[:-1], *tree.token[path].tolist()]], device=target.device)
            expected = target.model(alone, use_cache=False).logits[0, -len(path) :]
            worst = max(worst, deviation(logits[0, path], expected))
            cases += len(path)
        noise = max(noise, own_noise(target, alone, len(path)))
    limit = allowed(target.dtype, noise)
    name = f"packed rows equal standalone forwards, {str(target.dtype).removeprefix('torch.')}"
    told = f"the model's own noise is {noise:.1g}, as parts of it are narrower"
    return Finding(name, cases, worst, limit, worst <= limit, told if limit > limit_of(target.dtype) else "")


@torch.inference_mode()
def siblings(decoder: Decoder, prompts: Sequence[list[int]]) -> Finding:
    """Another token in one row leaves the logits of all rows that do not descend from it as they are.

    Bit for bit, but for mixtures of experts, whose products round by how many tokens an expert gets.
    """
    worst, cases = 0.0, 0
    for prompt in prompts:
        sequence, tree = drafted(decoder, prompt)
        before, _ = sequence.read(sequence.packed(tree))
        for row in range(1, len(tree), 5):
            token = tree.token.copy()
            token[row] = (token[row] + 1) % decoder.drafter.target.vocab_size
            after, _ = sequence.read(sequence.packed(replace(tree, token=token)))
            apart = torch.from_numpy(tree.sight[:, row] < 0)
            worst = max(worst, deviation(after[0, apart], before[0, apart]))
            cases += 1
    limit = limit_of(decoder.drafter.target.dtype)
    return Finding("rows see their own path only", cases, worst, limit, worst <= limit)


def caches(decoder: Decoder, prompts: Sequence[list[int]]) -> Finding:
    """After 1, 10 and 50 rounds both caches hold what a pass over the committed tokens computes."""
    worst, cases, target = 0.0, 0, decoder.drafter.target
    endless = replace(decoder, eos_ids=())
    for prompt in prompts:
        room = min(target.positions_max, decoder.drafter.positions_max) - len(prompt)
        sequence = endless.begin(prompt, min(room, ROUNDS[-1] * 8), TREE, dice())
        for number in range(1, ROUNDS[-1] + 1):
            if sequence.finish is not None:
                break
            endless.round(sequence, TREE, dice(), Stopwatch(target.device))
            if number in ROUNDS and sequence.finish is None:
                worst = max(worst, _stale(endless, sequence))
                cases += 1
    limit = limit_of(target.dtype)
    return Finding("caches equal a recomputation after rounds 1, 10, 50", cases, worst, limit, worst <= limit)


@torch.inference_mode()
def _stale(decoder: Decoder, sequence: Decoding) -> float:
    """How far both caches of a sequence are from those of its tokens read at once."""
    fresh = Decoding(decoder.drafter, decoder.windows, sequence.tokens, 1, (), 2)
    fresh.prefill()
    return max(deviation(a, b) for a, b in zip(held(sequence), held(fresh), strict=True))


def held(sequence: Decoding) -> list[Tensor]:
    """All that the target's cache and the drafter's context hold of the prefix."""
    layers = [rows for layer in range(sequence.cache.layers_filled) for rows in sequence.cache.rows(layer)]
    return [*layers, *_context(sequence.context)]


def _context(context: Any) -> list[Tensor]:
    return [value.rows() for value in vars(context).values() if isinstance(value, Grown)]


def _leaves(tree: Tree) -> list[list[int]]:
    """Rows of the path to each leaf, the root first."""
    paths = []
    for leaf in sorted(set(range(len(tree))) - set(tree.parent.tolist())):
        path = [leaf]
        while path[0]:
            path.insert(0, int(tree.parent[path[0]]))
        paths.append(path)
    return paths
