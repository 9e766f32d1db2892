"""A batch of candidate trees as arrays: what a policy returns and a verifier packs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from replay.rounds import PAD, Marginals

_Value = TypeVar("_Value", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """B trees of at most N nonroot nodes; column 0 is the pending root, so a column is a row of the packed input.

    Columns 1..width are in entry order: parents come before children, and for a nested policy the first n of them are
    its budget-n tree. Columns behind `width` are empty: token and parent `PAD`, depth 0, score -inf.

    Attributes:
        token: (B, 1+N) int32 target ids; `PAD` at the root, whose token the round supplies.
        parent: (B, 1+N) int32, the parent's column; `PAD` at the root.
        depth: (B, 1+N) int32, 0 at the root, at most L.
        score: (B, 1+N) float64, log of the product of q along the path (eq. 1); 0 at the root.
        width: (B,) int32, how many nonroot nodes there are. Packed tokens n = width + 1.
    """

    token: NDArray[np.int32]
    parent: NDArray[np.int32]
    depth: NDArray[np.int32]
    score: NDArray[np.float64]
    width: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.token)

    @property
    def budget(self) -> int:
        """N, the number of nonroot columns."""
        return int(self.token.shape[1]) - 1

    def head(self, budget: int) -> Forest:
        """The subtrees of the first `budget` nonroot columns."""
        columns = slice(budget + 1)
        return Forest(
            self.token[:, columns],
            self.parent[:, columns],
            self.depth[:, columns],
            self.score[:, columns],
            np.minimum(self.width, budget).astype(np.int32),
        )

    def cut(self, width: NDArray[np.integer[Any]]) -> Forest:
        """Each tree cut to the first `width` (B,) of its nodes; it stays a tree, since parents come first."""
        kept = np.arange(self.budget + 1) <= np.minimum(width, self.width)[:, None]
        return Forest(
            np.where(kept, self.token, PAD),
            np.where(kept, self.parent, PAD),
            np.where(kept, self.depth, 0),
            np.where(kept, self.score, -np.inf),
            np.minimum(width, self.width).astype(np.int32),
        )

    def check(self) -> Forest:
        """Return self if every tree is one: prefix-closed, parents first, siblings distinct, scores falling.

        Raises:
            ValueError: names the first tree and the rule that it breaks.
        """
        column = np.arange(self.budget + 1)
        real = (column > 0) & (column <= self.width[:, None])  # (B, 1+N)
        up = np.where(real, self.parent, 0)
        rules = {
            "a parent does not stand before its child": (up < 0) | (real & (up >= column)),
            "a depth is not the parent's plus one": real & (self.depth != _at(self.depth, up) + 1),
            "a child scores above its parent": real & ~(self.score <= _at(self.score, up)),
            "a node has no token": real & (self.token < 0),
            "two siblings carry one token": _repeated(up, self.token, real),
            "a column behind the width is not empty": ~real & (column > 0) & (self.token != PAD),
        }
        for rule, broken in rules.items():
            if broken.any():
                raise ValueError(f"tree {int(broken.any(axis=1).argmax())}: {rule}")
        return self


def _at(values: NDArray[_Value], column: NDArray[np.int32]) -> NDArray[_Value]:
    return np.take_along_axis(values, np.clip(column, 0, values.shape[1] - 1), axis=1)


def _repeated(parent: NDArray[np.int32], token: NDArray[np.int32], real: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(B, 1+N) True at a node that has an equal sibling."""
    key = np.where(real, parent.astype(np.int64) << 32 | token, -1 - np.arange(token.shape[1]))
    order = np.argsort(key, axis=1, kind="stable")
    ordered = np.take_along_axis(key, order, axis=1)
    again = np.zeros(key.shape, bool)
    np.put_along_axis(again, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return again


def gather(
    marginals: Marginals,
    parent: NDArray[np.integer[Any]],
    depth: NDArray[np.integer[Any]],
    rank: NDArray[np.integer[Any]],
) -> Forest:
    """A forest from topologies: node i hangs below column `parent`, at `depth`, with the candidate of `rank`.

    Args:
        marginals: B rounds.
        parent, depth, rank: (N,) for one tree shared by all rounds, or (B, N); nonroot nodes in entry order, rank
            counted from 0. A depth of 0 marks an empty place, which must stand behind the real ones.
    """
    rows, nodes = len(marginals), parent.shape[-1]
    up, level, place = (np.broadcast_to(a, (rows, nodes)).astype(np.int32) for a in (parent, depth, rank))
    real = level > 0
    at = (np.arange(rows)[:, None], np.maximum(level - 1, 0), np.where(real, place, 0))
    step = marginals.logq[at].astype(np.float64)  # (B, N)
    score = np.full((rows, 1 + nodes), -np.inf)
    score[:, 0] = 0.0
    for d in range(1, int(level.max(initial=0)) + 1):  # sums run in order of depth: see replay.topn
        row, node = np.nonzero(level == d)
        score[row, node + 1] = score[row, up[row, node]] + step[row, node]
    root = np.full((rows, 1), PAD, np.int32)
    return Forest(
        token=np.hstack([root, np.where(real, marginals.token[at], PAD)]).astype(np.int32),
        parent=np.hstack([root, np.where(real, up, PAD)]),
        depth=np.hstack([np.zeros_like(root), level]),
        score=score,
        width=real.sum(axis=1).astype(np.int32),
    )


def level_order(marginals: Marginals, branching: tuple[int, ...], budget: int) -> Forest:
    """One tree for all rounds: `branching[d]` children at each node of depth d, level by level, cut at the budget.

    The last factor goes on to depth L; a factor above K means K.
    """
    nodes: list[tuple[int, int, int]] = []  # parent column, depth, rank
    frontier = [0]
    for depth in range(marginals.depth_max):
        width = min(branching[min(depth, len(branching) - 1)], marginals.rank_kept)
        level = [(parent, depth + 1, rank) for parent in frontier for rank in range(width)][: budget - len(nodes)]
        frontier = list(range(len(nodes) + 1, len(nodes) + len(level) + 1))
        nodes += level
    parent, depth_of, rank = np.array(nodes).T
    return gather(marginals, parent, depth_of, rank)
