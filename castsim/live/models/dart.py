"""The DART head: one causal layer over the prefix and a row of learned mask slots.

Layout and arithmetic of `fvliang/qwen8b-dart` as the public inference code runs it (fvliang/DART, Apache-2.0): the
final norm is applied twice, row t joins the embedding of token t + 1 with the features of token t, and `d2t` is an
offset (token = draft id + d2t[draft id]).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from castsim.live.models.blocks import KeysValues, Mlp, block_attention, rotated
from castsim.live.models.config import DartConfig


class Attention(nn.Module):
    """Projections from joined embedding and feature (2 * hidden) to heads."""

    def __init__(self, config: DartConfig) -> None:
        super().__init__()
        self.width, self.base, double = config.head_dim, config.rope_theta, 2 * config.hidden_size
        self.q_proj = nn.Linear(double, config.heads * self.width, bias=False)
        self.k_proj = nn.Linear(double, config.kv_heads * self.width, bias=False)
        self.v_proj = nn.Linear(double, config.kv_heads * self.width, bias=False)
        self.o_proj = nn.Linear(config.heads * self.width, config.hidden_size, bias=False)

    def turn(self, place: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines (..., D) of positions (...)."""
        rate = self.base ** (-torch.arange(0, self.width, 2, device=like.device, dtype=torch.float32) / self.width)
        angle = (place[..., None].float() * rate).repeat(*[1] * place.ndim, 2)
        return angle.cos().to(like.dtype), angle.sin().to(like.dtype)

    def heads(self, project: nn.Linear, x: Tensor) -> Tensor:
        """(..., 2 * hidden) to (..., heads, D)."""
        return project(x).unflatten(-1, (-1, self.width))

    def keys_values(self, x: Tensor, place: Tensor) -> KeysValues:
        """(..., rows, 2 * hidden) at positions (..., rows) to keys and values."""
        return KeysValues(rotated(self.heads(self.k_proj, x), *self.turn(place, x)), self.heads(self.v_proj, x))


class Midlayer(nn.Module):
    """The one layer, with the mask slot that stands for every future token."""

    def __init__(self, config: DartConfig) -> None:
        super().__init__()
        hidden, eps = config.hidden_size, config.rms_norm_eps
        self.mask_rep = nn.Parameter(torch.zeros(2 * hidden))
        self.self_attn = Attention(config)
        self.mlp = Mlp(hidden, config.intermediate_size)
        self.hidden_norm = nn.RMSNorm(hidden, eps=eps)
        self.input_layernorm = nn.RMSNorm(hidden, eps=eps)
        self.post_attention_layernorm = nn.RMSNorm(hidden, eps=eps)


class Dart(nn.Module):
    """The head with its own output head over the draft vocabulary; the embedding is the target's."""

    def __init__(self, config: DartConfig) -> None:
        super().__init__()
        self.config = config
        self.fc = nn.Linear(3 * config.target_hidden, config.hidden_size, bias=False)
        self.midlayer = Midlayer(config)
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False)
        self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.int64))

    def rows(self, features: Tensor, embeds: Tensor) -> tuple[Tensor, Tensor]:
        """Attention input (B, P, 2 * hidden) and residual (B, P, hidden) of the prefix rows.

        Args:
            features: (B, P, 3 * target hidden) of tokens 0 .. P-1.
            embeds: (B, P, hidden) of tokens 1 .. P.
        """
        layer, residual = self.midlayer, self.fc(features)
        return torch.cat([layer.input_layernorm(embeds), layer.hidden_norm(residual)], dim=-1), residual

    def placed(self, device: torch.device, dtype: torch.dtype) -> Dart:
        """On a device and in a type; rotary angles are computed in float32."""
        return self.to(device, dtype)

    def context(self, joined: Tensor, begin: int = 0) -> KeysValues:
        """Keys and values of prefix rows (B, P, 2 * hidden) at positions from `begin`."""
        place = torch.arange(begin, begin + joined.shape[1], device=joined.device)
        return self.midlayer.self_attn.keys_values(joined, place.expand(joined.shape[:2]))

    def forward(self, joined: Tensor, residual: Tensor, anchor: Tensor, context: KeysValues) -> Tensor:
        """Logits (B, M, L, draft vocabulary) of the L tokens behind each root.

        Args:
            joined, residual: (B, M, 2 * hidden), (B, M, hidden) the row before the root, which carries the root.
            anchor: (B, M) position of the root.
            context: from `context`; rows before that row are seen.
        """
        layer, slots = self.midlayer, self.config.draft_length
        mask = layer.mask_rep.expand(*anchor.shape, slots, -1)
        x = torch.cat([joined[:, :, None], mask], dim=2)  # (B, M, S, 2 * hidden)
        skip = torch.cat([residual[:, :, None], mask[..., : self.config.hidden_size]], dim=2)
        ahead = torch.arange(slots + 1, device=x.device)
        place, attention = anchor[..., None] - 1 + ahead, layer.self_attn
        q = rotated(attention.heads(attention.q_proj, x), *attention.turn(place, x))
        seen = torch.arange(context.k.shape[1], device=x.device) < (anchor - 1)[..., None, None]
        within = ahead <= ahead[:, None]
        mixed = block_attention(q, context, attention.keys_values(x, place), seen, within)
        x = skip + attention.o_proj(mixed)
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.lm_head(self.norm(self.norm(x)))
