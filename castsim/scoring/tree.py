"""From a policy to the one tree of a round."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from replay.forest import Forest
from replay.policies import BestFirst, Policy
from replay.rounds import Marginals


@dataclass(frozen=True, eq=False)
class Tree:
    """n = N + 1 rows of a packed input, the pending root in row 0 and parents before their children.

    Attributes:
        token: (n,) int64 target ids.
        parent: (n,) int32 rows, -1 at the root.
        depth: (n,) int32, 0 at the root.
        proposal: (n,) float64, the drafter's q of the token at its position; 1 at the root.
    """

    token: NDArray[np.int64]
    parent: NDArray[np.int32]
    depth: NDArray[np.int32]
    proposal: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.token)

    def children(self, row: int) -> NDArray[np.intp]:
        """Rows below `row`."""
        return np.flatnonzero(self.parent == row)

    def child(self, row: int, token: int) -> int | None:
        """The row below `row` that carries `token`, if there is one."""
        found = np.flatnonzero((self.parent == row) & (self.token == token))
        return int(found[0]) if len(found) else None

    def down_to(self, depth: int) -> Tree:
        """The nodes no deeper than `depth`, as a tree of its own."""
        kept = self.depth <= depth
        if kept.all():
            return self
        row = np.cumsum(kept, dtype=np.int32) - 1
        parent = np.where(self.parent[kept] < 0, -1, row[self.parent[kept]]).astype(np.int32)
        return Tree(self.token[kept], parent, self.depth[kept], self.proposal[kept])

    @property
    def sight(self) -> NDArray[np.float32]:
        """(n, n) additive mask: 0 where a row descends from a row or is it, -inf elsewhere."""
        if (fast := compiled()) is not None:
            return fast.sight(self.parent)
        found = np.full((len(self), len(self)), np.float32(-np.inf))
        for row, parent in enumerate(self.parent.tolist()):
            if parent >= 0:
                found[row] = found[parent]
            found[row, row] = 0
        return found


def lone(root: int) -> Tree:
    """The pending root and nothing below it: what autoregressive decoding verifies."""
    return Tree(np.array([root]), np.array([-1], np.int32), np.zeros(1, np.int32), np.ones(1))


def build(policy: Policy, marginals: Marginals, root: int) -> Tree:
    """What the policy chooses for the one round of `marginals`; compiled where it is best-first inside a universe."""
    fast = compiled()
    if fast is None or not hasattr(policy, "universe"):  # `isinstance(policy, BestFirst)`, without its price
        return tree_of(policy(marginals), marginals, root)
    universe = policy.universe(marginals)
    *columns, score = fast.best_first_tree(universe.token[0], universe.logq[0], policy.budget, root)
    if hasattr(policy, "widths"):  # `isinstance(policy, Adaptive)`
        every = np.full((1, policy.budget), -np.inf)
        every[0, : len(score) - 1] = score[1:]
        kept = 1 + int(policy.widths(every)[0])
        columns = [column[:kept] for column in columns]
    return Tree(*columns)


def tree_of(forest: Forest, marginals: Marginals, root: int) -> Tree:
    """The one tree of a forest, with its root's token."""
    rows = slice(1, int(forest.width[0]) + 1)
    token, depth = forest.token[0, rows], forest.depth[0, rows]
    place = (marginals.token[0, depth - 1] == token[:, None]).argmax(axis=1)
    proposal = np.exp(marginals.logq[0, depth - 1, place].astype(np.float64))
    return Tree(
        np.append(root, token),
        np.append(np.int32(-1), forest.parent[0, rows]),
        np.append(np.int32(0), depth),
        np.append(1.0, proposal),
    )


@cache
def ranks_used(policy: Policy, rank_kept: int) -> int:
    """How many of the candidates of a position a policy looks at: all, or as many as its universe has."""
    if not isinstance(policy, BestFirst):
        return rank_kept
    token = np.arange(rank_kept)[None, None]
    return policy.universe(Marginals(token, np.full(token.shape, -np.log(rank_kept)))).rank_kept


@cache
def compiled() -> ModuleType | None:
    """The compiled helpers, or None where numba is not installed."""
    try:
        from castsim.scoring import compiled as found
    except ModuleNotFoundError:
        return None
    return found
