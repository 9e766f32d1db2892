"""What one request keeps between rounds: its tokens, the target's cache and the drafter's context."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from castsim.live.decode.pack import Packed, chain, pack
from castsim.live.models.attention import Windows
from castsim.live.models.cache import KeyValueCache
from castsim.live.models.drafter import Drafter
from castsim.scoring.tree import Tree

PREFILL_ROWS = 512  # bounds the mask of a long prompt


class Sequence:
    """A prompt and its output so far, at the entry of a round: all tokens are emitted, both caches lack the last one.

    Attributes:
        tokens: prompt and output; the last one is the pending root.
        begin, limit: tokens of the prompt, and the most of the output.
        finish: "stop" behind an end of sequence, "length" at the limit, None while it goes on.
        cache: the target's.
        context: the drafter's, or None for a sequence that never drafts.

    Source: appendix C, "The round".
    """

    def __init__(
        self, drafter: Drafter, windows: Windows, prompt: list[int], limit: int, eos_ids: Iterable[int], rows: int
    ) -> None:
        """`rows` is the most that a pass packs; 1 is autoregressive decoding, which never drafts."""
        room = len(prompt) + limit
        self.tokens = list(prompt)
        self.begin, self.limit = len(prompt), limit
        self.finish: str | None = None
        self.cache = KeyValueCache(drafter.target.layers, room + rows)
        self.context: Any = drafter.growing(room) if rows > 1 else None
        self._drafter, self._windows, self._eos_ids = drafter, windows, frozenset(eos_ids)
        self._ids = torch.zeros(1, room, dtype=torch.int64, device=drafter.target.device)
        self._ids[0, : self.begin] = torch.tensor(self.tokens)

    @property
    def output(self) -> list[int]:
        """Ids behind the prompt, an end of sequence included."""
        return self.tokens[self.begin :]

    @property
    def remaining(self) -> int:
        """Tokens that may still be emitted."""
        return self.begin + self.limit - len(self.tokens)

    @property
    def root(self) -> int:
        """The pending root b."""
        return self.tokens[-1]

    @property
    def prefix(self) -> int:
        """P, the tokens that both caches hold."""
        return self.cache.length

    def prefill(self) -> None:
        """Read the prompt up to its last token, which is the first pending root."""
        for begin in range(0, self.begin - 1, PREFILL_ROWS):
            end = min(begin + PREFILL_ROWS, self.begin - 1)
            _, features = self.read(self.packed(chain(self.tokens[begin:end])), logits_kept=1)
            self._keep(list(range(end - begin)), features)

    def draft_logits(self) -> Tensor:
        """Logits (L, draft vocabulary) of the tokens behind the root."""
        return self._drafter.draft(self.context, self._ids)

    def packed(self, tree: Tree) -> Packed:
        """A tree behind the prefix."""
        target = self._drafter.target
        return pack([tree], [self.prefix], self._windows, target.dtype, target.device)

    def read(self, packed: Packed, logits_kept: int = 0) -> tuple[Tensor, Tensor | None]:
        """Logits (1, n, V), or of the last rows only, and features (1, n, layers * hidden) of the target's one pass."""
        layer_ids = () if self.context is None else self._drafter.layer_ids
        return self._drafter.target.read(packed.ids, packed.positions, packed.mask, self.cache, layer_ids, logits_kept)

    def commit(self, tree: Tree, rows: list[int], token: int, features: Tensor | None) -> list[int]:
        """Emit the path of `rows` and the token behind it, cut where the output ends; returns what was emitted.

        Both caches keep exactly the root and the accepted path; at the end of the output nothing needs them.
        """
        emitted = self._ended([*tree.token[rows[1:]].tolist(), token])
        begin = len(self.tokens)
        self.tokens += emitted
        if self.finish is None:
            self._ids[0, begin : len(self.tokens)] = torch.tensor(emitted)
            self._keep(rows, features)
        return emitted

    def _ended(self, path: list[int]) -> list[int]:
        """A path up to the first end of sequence in it, and up to the limit."""
        path = path[: self.remaining]
        for place, token in enumerate(path):
            if token in self._eos_ids:
                self.finish = "stop"
                return path[: place + 1]
        if len(path) == self.remaining:
            self.finish = "length"
        return path

    def _keep(self, rows: list[int], features: Tensor | None) -> None:
        """Append rows of the last pass to both caches."""
        begin = self.prefix + 1
        self.cache.commit(rows)
        if features is not None:
            self._drafter.extend(self.context, features[:, rows], self._ids[:, begin : begin + len(rows)])
