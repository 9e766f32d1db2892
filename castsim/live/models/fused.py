"""The DFlash head as a decoder runs it: one block, fused weights, and a context that grows in place.

`DFlash.forward` computes the same for many blocks at once and is what this is tested against. Here a layer has one
product for queries, keys and values, one for both halves of the feed-forward, and the keys and values of committed
features are computed for all layers in one product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from castsim.live.models.dflash import DFlash, Layer
from castsim.live.models.drafter_context import Grown

Turn = tuple[Tensor, Tensor]  # cosines, and sines whose first half is negative, (rows, 1, D) each
LENGTH_BOUND = ("dynamic", "longrope")  # rotary embeddings whose frequencies change with the length


@dataclass(frozen=True)
class FusedContext:
    """What a sequence keeps of its prefix.

    Attributes:
        grown: keys and values (layers, 2, P, G, D).
        turn: of all positions, or None where they must be computed as the sequence grows.
    """

    grown: Grown
    turn: Turn | None


def turned(x: Tensor, turn: Turn) -> Tensor:
    """`rotated` of (rows, ..., D) in three steps."""
    cos, sin = turn
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def normed(x: Tensor, scale: Tensor, eps: float) -> Tensor:
    """RMS norm of (..., D), times a scale (..., D)."""
    if x.is_cuda or x.dtype != torch.float32:
        whole = scale.ndim == 1  # else each head has its own
        return rms_norm(x, x.shape[-1:], scale, eps) if whole else rms_norm(x, x.shape[-1:], None, eps) * scale
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # a CPU has no fused norm; torch's takes more steps
    return x * length.square_().mul_(1 / x.shape[-1]).add_(eps).rsqrt_() * scale


def _through(norm: nn.RMSNorm, x: Tensor) -> Tensor:
    return normed(x, norm.weight, norm.eps)


@dataclass(frozen=True)
class FusedLayer:
    """A layer, for H query heads and G key-value heads of D channels.

    Attributes:
        qkv, qkv_bias: ((H + 2 G) * D, hidden), and its bias or None.
        qk_norm: (H + G, D) scales of queries and keys.
        gate_up: (2 * intermediate, hidden).
        sight: causal, and the sliding window or None.
    """

    layer: Layer
    heads: int
    groups: int
    qkv: Tensor
    qkv_bias: Tensor | None
    qk_norm: Tensor
    gate_up: Tensor
    sight: tuple[bool, int | None]

    def __call__(self, x: Tensor, turn: Turn, room: Tensor) -> Tensor:
        """Rows (S, hidden) of a block to the same.

        Args:
            room: (2, P + S, G, D) keys and values of the context, with places behind them for the block's own.
        """
        layer, attention = self.layer, self.layer.self_attn
        rows, both = x.shape[0], self.heads + self.groups
        h = linear(_through(layer.input_layernorm, x), self.qkv, self.qkv_bias).view(rows, -1, attention.width)
        qk = normed(h[:, :both], self.qk_norm, attention.q_norm.eps)
        qk = turned(qk, turn)
        room[0, -rows:], room[1, -rows:] = qk[:, self.heads :], h[:, both:]
        mixed = self._attended(qk[:, : self.heads], room)
        x = x + attention.o_proj(mixed.reshape(rows, -1))
        gate, up = linear(_through(layer.post_attention_layernorm, x), self.gate_up).chunk(2, dim=-1)
        return x + layer.mlp.down_proj(silu(gate) * up)

    def _attended(self, q: Tensor, room: Tensor) -> Tensor:
        """(S, H, D) of queries (S, H, D) over context and block."""
        mask = self._mask(len(q), room.shape[1], q.device)
        k, v = room.transpose(1, 2)  # (G, P + S, D) each
        if mask is not None:  # a GPU has a fused kernel for grouped heads, and one for masks
            k, v = (x.repeat_interleave(self.heads // self.groups, dim=0) for x in (k, v))
        mixed = scaled_dot_product_attention(
            q.transpose(0, 1)[None], k[None], v[None], attn_mask=mask, enable_gqa=mask is None
        )
        return mixed[0].transpose(0, 1)

    def _mask(self, rows: int, length: int, device: torch.device) -> Tensor | None:
        """(S, P + S) True where a row of the block is seen; None where all are."""
        causal, window = self.sight
        if not causal and window is None:
            return None
        place = torch.arange(length, device=device)
        ahead = place[None] - place[-rows:, None]  # (S, P + S)
        seen = ahead <= 0 if causal else torch.ones_like(ahead, dtype=torch.bool)
        return seen if window is None else seen & (ahead.abs() < window)


@dataclass(frozen=True)
class FusedDFlash:
    """A head with its weights side by side, as they were when it was made.

    Attributes:
        kv, kv_bias: (layers * 2 * G * D, hidden) key and value projections, layer after layer, and bias or None.
        k_norm: (layers, 1, D) scales of the keys.
    """

    head: DFlash
    layers: tuple[FusedLayer, ...]
    kv: Tensor
    kv_bias: Tensor | None
    k_norm: Tensor

    def growing(self, capacity: int) -> FusedContext:
        """A context without rows, with room for `capacity`."""
        bound = getattr(self.head.rotary_emb, "rope_type", "default") in LENGTH_BOUND
        return FusedContext(Grown(capacity, axis=2), None if bound else self._computed(0, capacity))

    def extend(self, context: FusedContext, features: Tensor) -> None:
        """Append the keys and values of features (n, layers * hidden)."""
        layers, _, width = self.k_norm.shape
        x = _through(self.head.hidden_norm, self.head.fc(features))
        cos, sin = self._turn(context, len(x))
        both = linear(x, self.kv, self.kv_bias).view(len(x), layers, 2, -1, width)
        eps = self.layers[0].layer.self_attn.k_norm.eps
        k = normed(both[:, :, 0], self.k_norm, eps)
        both[:, :, 0] = turned(k, (cos[:, None], sin[:, None]))
        context.grown.append(both.permute(1, 2, 0, 3, 4))

    def __call__(self, rows: Tensor, context: FusedContext) -> Tensor:
        """Hidden states (S, hidden) of a block of embeddings (S, hidden) whose root stands behind the context."""
        turn, room = self._turn(context, len(rows)), context.grown.rows(len(rows))
        for layer, place in zip(self.layers, room, strict=True):
            rows = layer(rows, turn, place)
        return _through(self.head.norm, rows)

    def _turn(self, context: FusedContext, rows: int) -> Turn:
        """Of the next `rows` positions."""
        begin = context.grown.length
        if context.turn is None:
            return self._computed(begin, begin + rows)
        cos, sin = context.turn
        return cos[begin : begin + rows], sin[begin : begin + rows]

    def _computed(self, begin: int, end: int) -> Turn:
        cos, sin = self.head.rotary_emb(self.kv, torch.arange(begin, end, device=self.kv.device)[None])
        half = sin.shape[-1] // 2
        return cos[0, :, None], torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)[0, :, None]


@torch.no_grad()
def fused(head: DFlash) -> FusedDFlash:
    """A head for decoding. Its own layers share the fused weights from then on, so that none is kept twice."""
    layers = tuple(_fused_layer(layer, sight) for layer, sight in zip(head.layers, head.config.sight, strict=True))
    attention = [layer.self_attn for layer in head.layers]
    kv = [project for a in attention for project in (a.k_proj, a.v_proj)]
    k_norm = torch.stack([a.k_norm.weight for a in attention])[:, None]
    for alone in (head.fc, *(p for layer in head.layers for p in (layer.self_attn.o_proj, layer.mlp.down_proj))):
        alone.weight.data = _by_input(alone.weight.data)
    weight = _by_input(torch.cat([p.weight for p in kv]))
    return FusedDFlash(head, layers, weight, _joined([p.bias for p in kv]), k_norm)


def _fused_layer(layer: Layer, sight: tuple[bool, int | None]) -> FusedLayer:
    a, mlp = layer.self_attn, layer.mlp
    projections = (a.q_proj, a.k_proj, a.v_proj)
    heads, groups = (p.out_features // a.width for p in projections[:2])
    scales = [a.q_norm.weight.expand(heads, -1), a.k_norm.weight.expand(groups, -1)]
    return FusedLayer(
        layer,
        heads,
        groups,
        _shared(projections),
        _joined([p.bias for p in projections]),
        torch.cat(scales),
        _shared((mlp.gate_proj, mlp.up_proj)),
        sight,
    )


def _shared(projections: Sequence[nn.Linear]) -> Tensor:
    """One weight of several, of which theirs become views."""
    weight = _by_input(torch.cat([p.weight for p in projections]))
    for p, part in zip(projections, weight.split([p.out_features for p in projections]), strict=True):
        p.weight.data = part
    return weight


def _by_input(weight: Tensor) -> Tensor:
    """The same (out, in), on a CPU with the outputs of an input side by side in memory: faster for a block's rows."""
    return weight.T.contiguous().T if weight.device.type == "cpu" else weight


def _joined(biases: list[Tensor | None]) -> Tensor | None:
    return torch.cat(biases) if biases[0] is not None else None
