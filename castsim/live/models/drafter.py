"""One interface for one-pass drafters: a context of the whole sequence, then marginals at many roots at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from castsim.live.models.blocks import KeysValues
from castsim.live.models.dart import Dart
from castsim.live.models.dflash import DFlash
from castsim.live.models.drafter_context import Grown, GrownDartContext
from castsim.live.models.fused import FusedContext, FusedDFlash, fused
from castsim.live.models.target import Target


class Drafter(Protocol):
    """What record, live decoding and probe need of a drafter."""

    kind: str  # what engines call such heads
    name: str
    revision: str
    layer_ids: tuple[int, ...]
    target: Target
    depth_max: int  # L
    positions_max: int  # longest sequence that it was made for
    vocab_size: int  # of its logits
    token_of: Tensor | None  # (draft vocabulary,) target ids, or None where both vocabularies are one

    def context(self, features: Tensor, tokens: Tensor) -> Any:
        """What is shared by all roots of a sequence.

        Args:
            features: (B, P, layers * hidden) target features of tokens 0 .. P-1.
            tokens: (B, P + 1) ids.
        """

    def growing(self, capacity: int) -> Any:
        """A context without rows and with room for `capacity`, for a sequence that grows."""

    def extend(self, context: Any, features: Tensor, tokens: Tensor) -> None:
        """Append rows to a growing context, in place.

        Args:
            features: (1, n, layers * hidden) of the tokens that follow those in the context.
            tokens: (1, n) ids, each the one behind a row's own.
        """

    def draft(self, context: Any, tokens: Tensor) -> Tensor:
        """Logits (L, draft vocabulary) of the tokens behind the root, which stands where a growing context ends.

        Args:
            tokens: (1, P + 1 or more) ids of the sequence.
        """

    def logits(self, context: Any, tokens: Tensor, anchor: Tensor) -> Tensor:
        """Logits (B, M, L, draft vocabulary) of the L tokens behind the roots at positions `anchor` (B, M).

        Args:
            context: from `context`.
            tokens: (B, P + 1 or more) ids of the sequence.
        """


@dataclass(frozen=True)
class DFlashDrafter:
    """A DFlash head bound to its target."""

    head: DFlash
    target: Target
    name: str
    revision: str = ""
    token_of: None = None
    kind: ClassVar[str] = "dflash"

    @property
    def layer_ids(self) -> tuple[int, ...]:
        """Target layers that it reads."""
        return self.head.config.target_layer_ids

    @property
    def depth_max(self) -> int:
        """L, one less than the block."""
        return self.head.config.block_size - 1

    @property
    def positions_max(self) -> int:
        """Longest sequence that the head was made for."""
        return self.head.config.arch.max_position_embeddings

    @property
    def vocab_size(self) -> int:
        """The target's."""
        return self.target.vocab_size

    def context(self, features: Tensor, tokens: Tensor) -> list[KeysValues]:
        """See `Drafter`; `tokens` are not used."""
        return self.head.context(features)

    @cached_property
    def _fused(self) -> FusedDFlash:
        return fused(self.head)

    @cached_property
    def _masks(self) -> Tensor:
        return torch.full((self.depth_max,), self.head.config.mask_token_id, device=self.target.device)

    def growing(self, capacity: int) -> FusedContext:
        """See `Drafter`."""
        return self._fused.growing(capacity + self.depth_max + 1)  # a block stands behind the last row

    def extend(self, context: FusedContext, features: Tensor, tokens: Tensor) -> None:
        """See `Drafter`; `tokens` are not used."""
        self._fused.extend(context, features[0])

    def draft(self, context: FusedContext, tokens: Tensor) -> Tensor:
        """See `Drafter`."""
        block = torch.cat([tokens[0, context.grown.length : context.grown.length + 1], self._masks])
        hidden = self._fused(self.target.embed(block) * self.head.config.embedding_scale, context)
        return self._logits(hidden[1:])

    def logits(self, context: list[KeysValues], tokens: Tensor, anchor: Tensor) -> Tensor:
        """See `Drafter`. Slot 0 of a block holds the root, all others the mask token."""
        config = self.head.config
        root = tokens.gather(1, anchor)[..., None]  # (B, M, 1)
        block = torch.cat([root, root.new_full((*anchor.shape, self.depth_max), config.mask_token_id)], dim=-1)
        rows = self.target.embed(block) * config.embedding_scale
        return self._logits(self.head(rows, anchor, context)[:, :, 1:])

    def _logits(self, hidden: Tensor) -> Tensor:
        config = self.head.config
        logits = self.target.head(hidden)
        if config.output_multiplier != 1.0:
            logits = logits * config.output_multiplier
        return logits if config.softcap is None else torch.tanh(logits / config.softcap) * config.softcap


@dataclass(frozen=True)
class DartContext:
    """Prefix rows (B, P, ...) and their keys and values."""

    joined: Tensor
    residual: Tensor
    keys_values: KeysValues


@dataclass(frozen=True)
class DartDrafter:
    """A DART head bound to its target."""

    head: Dart
    target: Target
    name: str
    revision: str = ""
    kind: ClassVar[str] = "dart"

    @property
    def layer_ids(self) -> tuple[int, ...]:
        """Target layers that it reads: the inputs of layers 2, half and third from last, unless told otherwise."""
        layers = self.target.layers
        told = self.head.config.aux_layer_ids
        return (1, layers // 2 - 1, layers - 4) if told is None else told

    @property
    def depth_max(self) -> int:
        """L: the row of the root and those of the mask slots."""
        return self.head.config.draft_length + 1

    @property
    def positions_max(self) -> int:
        """Longest sequence that the head was made for."""
        return self.head.config.positions_max

    @property
    def vocab_size(self) -> int:
        """The draft vocabulary's."""
        return self.head.config.draft_vocab_size

    @cached_property
    def token_of(self) -> Tensor:
        """(draft vocabulary,) target ids."""
        return token_table(self.head.d2t)

    def context(self, features: Tensor, tokens: Tensor) -> DartContext:
        """See `Drafter`; row t joins token t + 1 with the features of token t."""
        joined, residual = self.head.rows(features, self.target.embed(tokens[:, 1 : features.shape[1] + 1]))
        return DartContext(joined, residual, self.head.context(joined))

    def growing(self, capacity: int) -> GrownDartContext:
        """See `Drafter`."""
        return GrownDartContext(Grown(capacity, axis=1), Grown(capacity, axis=1), Grown(capacity, axis=2))

    def extend(self, context: GrownDartContext, features: Tensor, tokens: Tensor) -> None:
        """See `Drafter`."""
        joined, residual = self.head.rows(features, self.target.embed(tokens))
        new = self.head.context(joined, context.joined_rows.length)
        context.keys_values_rows.append(torch.stack(new))
        context.joined_rows.append(joined)
        context.residual_rows.append(residual)

    def draft(self, context: GrownDartContext, tokens: Tensor) -> Tensor:
        """See `Drafter`."""
        anchor = torch.tensor([[context.joined_rows.length]], device=tokens.device)
        return self.logits(context, tokens, anchor)[0, 0]

    def logits(self, context: DartContext | GrownDartContext, tokens: Tensor, anchor: Tensor) -> Tensor:
        """See `Drafter`; a root needs a token before it."""
        joined, residual = (
            x.gather(1, (anchor - 1)[..., None].expand(-1, -1, x.shape[-1])) for x in (context.joined, context.residual)
        )
        return self.head(joined, residual, anchor, context.keys_values)


def token_table(offset: Tensor) -> Tensor:
    """Target ids of draft ids from the offsets `d2t` (draft vocabulary,)."""
    return torch.arange(len(offset), device=offset.device) + offset
