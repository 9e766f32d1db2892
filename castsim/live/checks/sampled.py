"""Sampled decoding: the law at a node by enumeration, and what many draws commit beside their own noise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from castsim.live.checks import Finding
from castsim.live.checks.exact import drafted
from castsim.live.decode.loop import Decoder
from castsim.live.decode.walk import VERIFIERS, RandomDice, walk
from castsim.live.models.sampling import Sampling, law
from castsim.scoring.tree import Tree
from replay.policies.topn import TopN
from replay.verify import accept_sibling, law_of

EXACT = 1e-12
FEW = TopN(15, rank_cap=3)  # enough siblings, few enough orders to try them in
FLOORS = 200  # draws of the noise floor
PLAIN = Sampling(temperature=1.0)
NARROW = Sampling(temperature=1.0, top_k=20)  # few tokens have little noise between them


@torch.inference_mode()
def laws(decoder: Decoder, prompts: Sequence[list[int]]) -> list[Finding]:
    """Theorem 3 at every node of some trees, in float64, by enumeration of all orders of siblings and all coins."""
    law_worst = accept_worst = 0.0
    cases = 0
    for prompt in prompts:
        sequence, tree = drafted(decoder, prompt, FEW)
        logits, _ = sequence.read(sequence.packed(tree))
        for mass, outside, proposal in _nodes(tree, logits[0].double()):
            told = law_of(lambda d, m=mass, o=outside, q=proposal: accept_sibling(m, o, q, d))
            none = told.pop(None, 0.0)
            chances = np.array([told.get(i, 0.0) for i in range(len(mass))])
            law_worst = max(law_worst, float(np.abs(np.append(chances - mass, none - outside)).max()))
            accept_worst = max(accept_worst, abs(1 - none - float(mass.sum())))
            cases += 1
    return [
        Finding("sampled law at a node is the target's, by enumeration", cases, law_worst, EXACT, law_worst <= EXACT),
        Finding("both verifiers accept equally often", cases, accept_worst, EXACT, accept_worst <= EXACT),
    ]


def _nodes(tree: Tree, logits: torch.Tensor) -> Iterator[tuple[NDArray[np.float64], float, NDArray[np.float64]]]:
    """Target mass of the children, of all else, and the children's proposals, at each node that has some."""
    for row in range(len(tree)):
        below = tree.children(row)
        below = below[tree.proposal[below] > 0]
        if len(below):
            chances = law(logits[row], PLAIN).cpu().numpy()
            mass = chances[tree.token[below]]
            yield mass, float(np.delete(chances, tree.token[below]).sum()), tree.proposal[below]


@torch.inference_mode()
def draws(decoder: Decoder, prompts: Sequence[list[int]], count: int, seed: int) -> list[Finding]:
    """Total variation between first committed tokens and the target's law, beside that of as many plain draws."""
    worst, floor = dict.fromkeys(VERIFIERS, 0.0), 0.0
    rng = np.random.default_rng(seed)
    for prompt in prompts:
        sequence, tree = drafted(decoder, prompt)
        logits = sequence.read(sequence.packed(tree))[0][0]
        target = law(logits[0].double(), NARROW).cpu().numpy()
        plain = rng.multinomial(count, target / target.sum(), size=FLOORS)
        floor = max(floor, max(_variation(row, target) for row in plain))
        for name, verifier in VERIFIERS.items():
            choose = verifier(tree, logits, NARROW, RandomDice(rng))
            first = [_first(tree, *walk(tree, choose)) for _ in range(count)]
            counts = np.bincount(first, minlength=len(target))
            worst[name] = max(worst[name], _variation(counts, target))
    cases = count * len(prompts)
    return [
        Finding(f"draws of the {name} verifier, total variation", cases, value, floor, value <= floor)
        for name, value in worst.items()
    ]


def streams(decoder: Decoder, prompts: Sequence[list[int]], new_tokens: int, seed: int) -> Finding:
    """With the direct verifier a tree decodes what AR decodes from the same random stream."""
    sampled = replace(decoder, sampling=PLAIN, verifier="direct")
    apart = 0
    for number, prompt in enumerate(prompts):
        found = []
        for policy in (None, TopN(63)):
            stream = RandomDice(np.random.default_rng([seed, number]))
            sequence = sampled.begin(prompt, new_tokens, policy, stream)
            for _ in sampled.rounds(sequence, policy, stream):
                pass
            found.append(sequence.output)
        apart += found[0] != found[1]
    name = "direct draws equal AR's from the same stream"
    return Finding(name, len(prompts), float(apart), 0.0, not apart)


def _first(tree: Tree, rows: list[int], token: int) -> int:
    """The first token that a walk commits."""
    return int(tree.token[rows[1]]) if len(rows) > 1 else token


def _variation(counts: NDArray[np.int64], target: NDArray[np.float64]) -> float:
    return float(np.abs(counts / counts.sum() - target).sum() / 2)
