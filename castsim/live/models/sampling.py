"""The law that a token is drawn from: temperature, then top-k, then top-p, applied once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from castsim.base.errors import OptionError


@dataclass(frozen=True)
class Sampling:
    """Processors of a target's logits. Temperature 0 is greedy; top_k 0 and top_p 1 keep every token.

    Raises:
        OptionError: a value outside its range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise OptionError(f"temperature {self.temperature}: give 0 (greedy) or a positive number")
        if self.top_k < 0 or not 0 < self.top_p <= 1:
            raise OptionError(f"top-k {self.top_k}, top-p {self.top_p}: give top-k from 0 and top-p in (0, 1]")


def law(logits: Tensor, sampling: Sampling) -> Tensor:
    """Probabilities (..., V) of logits (..., V) at a temperature above 0, in float32 or the wider type of the logits.

    Tokens that tie with the last of the top-k are kept with it.
    """
    scores = logits.to(torch.promote_types(logits.dtype, torch.float32))
    scores = (scores - scores.amax(dim=-1, keepdim=True)) / sampling.temperature  # no infinity at a low temperature
    if 0 < sampling.top_k < scores.shape[-1]:
        least = scores.topk(sampling.top_k, dim=-1).values[..., -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    chances = scores.softmax(dim=-1)
    if sampling.top_p < 1:
        ranked, order = chances.sort(dim=-1, descending=True, stable=True)
        ranked = ranked.masked_fill(ranked.cumsum(dim=-1) - ranked >= sampling.top_p, 0.0)
        chances = torch.zeros_like(chances).scatter(-1, order, ranked)
        chances = chances / chances.sum(dim=-1, keepdim=True)
    return chances


def draw(chances: Tensor, uniform: Tensor) -> Tensor:
    """Tokens (B,) of laws (B, V) by one number in [0, 1) each, so that a row's draw depends on nothing else."""
    ladder = chances.double().cumsum(dim=-1)
    token = torch.searchsorted(ladder, (uniform.double() * ladder[:, -1])[:, None], right=True)[:, 0]
    last = chances.shape[-1] - 1 - chances.flip(-1).gt(0).int().argmax(dim=-1)  # rounding must not leave the support
    return torch.minimum(token, last)


def first(scores: Tensor) -> Tensor:
    """Place (...) of the largest of scores (..., V), of equal ones the first."""
    if scores.is_cuda:
        return scores.argmax(dim=-1)
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return torch.from_numpy(np.asarray(wide.numpy().argmax(axis=-1)))  # NumPy takes a tenth of torch's time on a CPU
