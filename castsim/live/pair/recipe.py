"""Every number of the recipe."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Schedule:
    """One training run.

    Attributes:
        steps: optimiser steps. batch: sequences a step, `micro` of them a worker at a time.
        peak, floor: learning rates after the warm-up and at the end; a cosine between.
    """

    steps: int
    batch: int
    micro: int
    peak: float
    floor: float
    warmup: int = 100
    weight_decay: float = 0.05
    clip: float = 1.0


@dataclass(frozen=True)
class Recipe:
    """The embedded pair. Units: tokens, layers, channels; see `castsim/live/pair/README.md` for what came out.

    Attributes:
        window: tokens of a training window of the target.
        shares: how much of the target's windows each kind of text gets.
        aux_layers: target layers whose outputs the drafters see, from 0.
        answers: prompts that the target answers, up to `new_tokens` each, `answers_batch` at a time.
        greedy_share: part of them that is answered greedily; the rest at temperature 1.
        anchors: roots of a sequence in a step of a drafter's training.
        decay: positions over which the weight of a DFlash position falls to 1/e.
    """

    seed: int = 11
    vocab_size: int = 4096
    hidden: int = 256
    intermediate: int = 768
    layers: int = 4
    heads: int = 8
    kv_heads: int = 4
    head_dim: int = 32
    positions_max: int = 1024
    window: int = 320
    shares: dict[str, float] = field(
        default_factory=lambda: {"gsm8k": 0.55, "mbpp": 0.07, "stdlib": 0.22, "source": 0.16}
    )
    target: Schedule = Schedule(steps=1400, batch=12, micro=3, peak=3e-3, floor=1e-4)

    aux_layers: tuple[int, ...] = (0, 1, 2)
    answers: int = 6144
    new_tokens: int = 160
    answers_batch: int = 128
    greedy_share: float = 0.7
    anchors: int = 48
    draft_layers: int = 2
    block_size: int = 16
    decay: float = 7.0
    dflash: Schedule = Schedule(steps=1400, batch=8, micro=2, peak=1.5e-3, floor=5e-5)
    dart_length: int = 7
    dart_vocab: int = 1024
    dart: Schedule = Schedule(steps=400, batch=8, micro=2, peak=1.5e-3, floor=5e-5)
