"""The DFlash head: marginals of a whole block from target features, in one pass.

Layout, names and arithmetic are those of the public heads and of the package `dflash` 0.1.0 (z-lab, MIT), which a test
runs beside this module; the code is our own, so that many blocks can share one pass.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from castsim.live.models.blocks import KeysValues, Mlp, block_attention, rotated
from castsim.live.models.config import DraftConfig


class Attention(nn.Module):
    """Block rows attend to the projected target features before their root, and to their block."""

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        self.width = config.head_dim
        heads, groups = config.num_attention_heads, config.num_key_value_heads
        bias = bool(config.attention_bias)
        self.q_proj = nn.Linear(config.hidden_size, heads * self.width, bias=bias)
        self.k_proj = nn.Linear(config.hidden_size, groups * self.width, bias=bias)
        self.v_proj = nn.Linear(config.hidden_size, groups * self.width, bias=bias)
        self.o_proj = nn.Linear(heads * self.width, config.hidden_size, bias=bias)
        self.q_norm = nn.RMSNorm(self.width, eps=config.rms_norm_eps)
        self.k_norm = nn.RMSNorm(self.width, eps=config.rms_norm_eps)

    def keys_values(self, x: Tensor, turn: tuple[Tensor, Tensor]) -> KeysValues:
        """(..., rows, hidden) to keys and values (..., rows, G, D)."""
        k, v = (project(x).unflatten(-1, (-1, self.width)) for project in (self.k_proj, self.v_proj))
        return KeysValues(rotated(self.k_norm(k), *turn), v)

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor], context: KeysValues, seen: Tensor, within: Tensor
    ) -> Tensor:
        """(B, M, S, hidden) to the same."""
        q = rotated(self.q_norm(self.q_proj(x).unflatten(-1, (-1, self.width))), *turn)
        return self.o_proj(block_attention(q, context, self.keys_values(x, turn), seen, within))


class Layer(nn.Module):
    """Attention and feed-forward, each after a norm and beside a residual."""

    def __init__(self, config: Qwen3Config) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = Mlp(config.hidden_size, config.intermediate_size)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, x: Tensor, *sight: Any) -> Tensor:
        """(B, M, S, hidden) to the same; `sight` is what `Attention` takes."""
        x = x + self.self_attn(self.input_layernorm(x), *sight)
        return x + self.mlp(self.post_attention_layernorm(x))


class DFlash(nn.Module):
    """The head alone; embedding and output head are the target's."""

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        arch = config.arch
        self.config = config
        self.fc = nn.Linear(len(config.target_layer_ids) * arch.hidden_size, arch.hidden_size, bias=False)
        self.hidden_norm = nn.RMSNorm(arch.hidden_size, eps=arch.rms_norm_eps)
        self.layers = nn.ModuleList(Layer(arch) for _ in range(arch.num_hidden_layers))
        self.norm = nn.RMSNorm(arch.hidden_size, eps=arch.rms_norm_eps)
        self.rotary_emb = Qwen3RotaryEmbedding(arch)

    def placed(self, device: torch.device, dtype: torch.dtype) -> DFlash:
        """On a device and in a type; the rotary frequencies stay float32, as transformers builds them."""
        self.to(device, dtype)
        self.rotary_emb = Qwen3RotaryEmbedding(self.config.arch).to(device)
        return self

    def context(self, features: Tensor, begin: int = 0) -> list[KeysValues]:
        """Keys and values, a pair a layer, of target features (B, P, layers * hidden) at positions from `begin`."""
        x = self.hidden_norm(self.fc(features))
        place = torch.arange(begin, begin + x.shape[1], device=x.device)[None]
        turn = self.rotary_emb(x, place)
        return [layer.self_attn.keys_values(x, turn) for layer in self.layers]

    def forward(self, rows: Tensor, anchor: Tensor, context: list[KeysValues]) -> Tensor:
        """Hidden states of blocks.

        Args:
            rows: (B, M, S, hidden) embeddings of root and mask tokens.
            anchor: (B, M) position of each block's root; the block sees the context before it.
            context: from `context`, at positions from 0.

        Returns:
            (B, M, S, hidden); row j belongs to the token j places behind the root.
        """
        x, ahead = rows, torch.arange(rows.shape[2], device=rows.device)
        place = anchor[..., None] + ahead  # (B, M, S)
        turn = tuple(t.unflatten(1, place.shape[1:]) for t in self.rotary_emb(rows, place.flatten(1)))
        before = torch.arange(context[0].k.shape[1], device=rows.device)
        for layer, keys_values, (causal, window) in zip(self.layers, context, self.config.sight, strict=True):
            seen = before < anchor[..., None, None]
            within = torch.ones(len(ahead), len(ahead), dtype=torch.bool, device=rows.device)
            if window is not None:
                seen = seen & (place[..., None] - before < window)
                within = (ahead[:, None] - ahead).abs() < window
            if causal:
                within = within & (ahead <= ahead[:, None])
            x = layer(x, turn, keys_values, seen, within)
        return self.norm(x)
