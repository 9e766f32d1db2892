"""How far apart a model's own answers to one question lie: what exactness can be asked of it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from castsim.live.models.target import Target

SLACK = 16  # largest of many rounded rows over the largest of the few that were measured
WIDER = {torch.float64: torch.float32}  # a model in the first may compute parts in the second: norms, softmax, caps
HUGE = 1e30  # stands for what is no number, which JSON has not


def limit_of(dtype: torch.dtype) -> float:
    """Relative deviation that rounding may leave: half the digits of a type."""
    return float(torch.finfo(dtype).eps ** 0.5)


def deviation(found: Tensor, expected: Tensor) -> float:
    """Largest difference, relative to the largest value; huge where a value is not finite."""
    apart = float((found - expected).abs().max() / expected.abs().max().clamp(min=1e-30))
    return apart if math.isfinite(apart) else HUGE


@torch.inference_mode()
def own_noise(target: Target, ids: Tensor, rows: int) -> float:
    """How far the last rows of a plain causal forward move when as many tokens stand behind them, or as many as there
    are positions for; relative.

    No mask or position of castsim's is in it, so that a fault in those cannot excuse itself.

    Args:
        ids: (1, T) tokens.
        rows: how many of the last are compared.
    """
    alone = target.model(ids, use_cache=False).logits[0, -rows:]
    length = ids.shape[1]
    longer = torch.cat([ids, ids[:, : target.positions_max - length]], dim=1)
    beside = target.model(longer, use_cache=False).logits[0, length - rows : length]
    return deviation(beside, alone)


def allowed(dtype: torch.dtype, noise: float) -> float:
    """The deviation to allow a model of a type and of so much own noise: never more than that of its narrowest part."""
    return min(max(limit_of(dtype), SLACK * noise), limit_of(WIDER.get(dtype, dtype)))
