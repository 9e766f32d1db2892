"""Trees as one input of the target: ids, positions by depth, and a mask under which a row sees its own path only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from castsim.live.models.attention import Windows
from castsim.scoring.tree import Tree


@dataclass(frozen=True, eq=False)
class Packed:
    """What a target reads in one pass behind its cache of P columns.

    Attributes:
        ids, positions: (B, n) int64.
        mask: additive, (B, 1, n, P + n), of each kind of attention that the target has.
    """

    ids: Tensor
    positions: Tensor
    mask: dict[str, Tensor]


def pack(
    trees: Sequence[Tree], prefixes: Sequence[int], windows: Windows, dtype: torch.dtype, device: torch.device
) -> Packed:
    """The trees of B requests, each behind its own prefix.

    Shorter trees are padded on the right: a padding row sees itself and the prefix, so it is finite. Shorter prefixes
    are padded on the left, as in a cache whose columns end together.

    Args:
        prefixes: P of each request; the root of a tree stands at position P, a node at P + depth.
        windows: see `castsim.live.models.attention`.

    Source: Lemma 1 and appendix C, "Packed verification".
    """
    rows, columns = max(map(len, trees)), max(prefixes)
    if len(trees) == 1:
        (tree,), (prefix,) = trees, prefixes
        ids, depth, sight = tree.token[None], tree.depth[None], tree.sight[None]
    else:
        ids, depth, sight = _padded(trees, rows)
    positions = np.asarray(prefixes)[:, None] + depth
    mask = torch.zeros(len(trees), 1, rows, columns + rows, dtype=dtype, device=device)
    mask[:, 0, :, columns:] = torch.from_numpy(sight).to(device)
    for request, prefix in enumerate(prefixes):
        if prefix < columns:
            mask[request, :, :, : columns - prefix] = -torch.inf
    at = torch.from_numpy(positions).to(device)
    near = {kind: window for kind, window in windows.items() if window is not None and positions.max() >= window}
    masks = {kind: _windowed(mask, at, near[kind]) if kind in near else mask for kind in windows}
    return Packed(torch.from_numpy(ids).to(device), at, masks)


def chain(token: Sequence[int]) -> Tree:
    """Tokens that follow each other, as a tree of one path: what prefill reads."""
    count = len(token)
    place = np.arange(count, dtype=np.int32)
    return Tree(np.asarray(token, np.int64), place - 1, place, np.ones(count))


def _padded(trees: Sequence[Tree], rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids and depths (B, n), sight (B, n, n)."""
    ids, depth = np.zeros((2, len(trees), rows), np.int64)
    sight = np.where(np.eye(rows, dtype=bool), np.float32(0), np.float32(-np.inf))[None].repeat(len(trees), axis=0)
    for request, tree in enumerate(trees):
        own = slice(len(tree))
        ids[request, own], depth[request, own], sight[request, own, own] = tree.token, tree.depth, tree.sight
    return ids, depth, sight


def _windowed(mask: Tensor, positions: Tensor, window: int) -> Tensor:
    """The mask without the columns that lie a window or more behind a row, as a sliding layer has it."""
    columns = mask.shape[-1] - positions.shape[1]
    before = positions[:, :1] - columns + torch.arange(columns, device=mask.device)  # (B, P), which end at the root
    place = torch.cat([before, positions], dim=1)  # (B, P + n)
    far = positions[:, :, None] - place[:, None, :] >= window
    return mask.masked_fill(far[:, None], -torch.inf)
