"""Attention of many draft blocks over one context in one pass: what recorder, trainer and decoder share."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn


class KeysValues(NamedTuple):
    """Keys and values of one layer, (B, rows, G, D) each, G key-value heads of D channels."""

    k: Tensor
    v: Tensor


def block_attention(q: Tensor, context: KeysValues, block: KeysValues, seen: Tensor, within: Tensor) -> Tensor:
    """Attention of M blocks of S rows: each row sees some of the context and some of its own block, no other block.

    Equal to one masked attention over context and all blocks, without the M - 1 blocks that no row sees.

    Args:
        q: (B, M, S, H, D) queries; H is a multiple of the G key-value heads.
        context: (B, P, G, D) each.
        block: (B, M, S, G, D) each.
        seen: (B, M, S or 1, P) bool, True where a row sees a context row.
        within: (S, S) bool, the same for the rows of a block; each row sees one row at least.

    Returns:
        (B, M, S, H * D)
    """
    b, m, s, h, d = q.shape
    groups, length = context.k.shape[2], context.k.shape[1]
    rows = q.reshape(b, m, s, groups, h // groups, d).permute(0, 3, 1, 4, 2, 5)  # (B, G, M, r, S, D)
    rows = rows * d**-0.5
    own_k, own_v = (x.permute(0, 3, 1, 2, 4).unsqueeze(3) for x in block)  # (B, G, M, 1, S, D)
    far_k, far_v = context.k.transpose(1, 2), context.v.transpose(1, 2)  # (B, G, P, D)

    far = (rows.reshape(b, groups, -1, d) @ far_k.mT).reshape(*rows.shape[:-1], length)
    far = far.masked_fill(~seen[:, None, :, None], -torch.inf)
    own = (rows @ own_k.mT).masked_fill(~within, -torch.inf)
    weight = torch.cat([far, own], dim=-1).softmax(dim=-1, dtype=torch.float32).to(q.dtype)
    far, own = weight.split([length, s], dim=-1)
    mixed = (far.reshape(b, groups, -1, length) @ far_v).reshape(rows.shape) + own @ own_v
    return mixed.permute(0, 2, 4, 1, 3, 5).reshape(b, m, s, h * d)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of (..., heads, D) by cos and sin (..., D)."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos.unsqueeze(-2) + turned * sin.unsqueeze(-2)


class Mlp(nn.Module):
    """Gated feed-forward with SiLU, no bias."""

    def __init__(self, hidden: int, intermediate: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., hidden) to (..., hidden)."""
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))
