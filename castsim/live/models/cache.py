"""The target's keys and values in place: a round moves the rows that it accepted and nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of all layers in one preallocated block, (layers, 2, B, G, capacity, D).

    A forward writes its rows behind the committed ones, and they stay provisional until `commit`. transformers' models
    call `update` and `get_seq_length`, as they would on a cache of their own; the block is made at the first `update`,
    in the model's shape, type and device.

    Attributes:
        capacity: most rows, committed and provisional.
        length: committed rows P.
    """

    def __init__(self, layers: int, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self._layers = layers
        self._blocks: list[Tensor] = []  # one, but for models whose layers differ in shape
        self._place: dict[int, Tensor] = {}  # layer -> (2, B, G, capacity, D), a view into a block

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write the rows (B, G, n, D) of a forward behind the committed ones; returns both, (B, G, P + n, D) each."""
        place = self._place.get(layer_idx)
        if place is None:
            place = self._placed(layer_idx, keys)
        end = self.length + keys.shape[2]
        place[0, :, :, self.length : end] = keys
        place[1, :, :, self.length : end] = values
        return place[0, :, :, :end], place[1, :, :, :end]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """P, by the name that transformers knows."""
        return self.length

    def commit(self, rows: Sequence[int]) -> None:
        """Keep these rows of the last forward, in this order, and drop its others. The prefix does not move.

        Args:
            rows: rising places in the forward's input, from 0.
        """
        count = len(rows)
        if rows[-1] >= count:  # else they are the first `count`, where they belong
            index = torch.tensor(rows, device=self._blocks[0].device) + self.length
            for block in self._blocks:
                block[..., self.length : self.length + count, :] = block.index_select(-2, index)
        self.length += count

    def rows(self, layer_idx: int) -> tuple[Tensor, Tensor]:
        """Committed keys and values (B, G, P, D) of a layer."""
        place = self._place[layer_idx]
        return place[0, :, :, : self.length], place[1, :, :, : self.length]

    @property
    def layers_filled(self) -> int:
        """How many layers have written to it; a recurrent layer does not."""
        return len(self._place)

    def _placed(self, layer_idx: int, keys: Tensor) -> Tensor:
        """A layer's place; the first layer makes room for all."""
        batch, groups, _, width = keys.shape
        shape = (2, batch, groups, self.capacity, width)
        if not self._blocks:
            self._blocks.append(keys.new_empty(self._layers, *shape))
        block = self._blocks[0]
        if block.shape[1:] == shape and layer_idx < len(block):
            place = block[layer_idx]
        else:
            self._blocks.append(keys.new_empty(1, *shape))
            place = self._blocks[-1][0]
        self._place[layer_idx] = place
        return place


@cache
def cache_argument(kind: type) -> str:
    """What this release of transformers calls the key-value cache of a forward of a class of models."""
    return "cache" if "cache" in inspect.signature(kind.forward).parameters else "past_key_values"
