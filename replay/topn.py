"""The best-first kernel (Theorem 1): the N prefixes of largest product score, in their order.

The only heap of the package. The order, here and in `replay.accept`: higher score first, then shorter, then
lexicographic by rank. A score is the float64 sum of log q in order of depth, so the order is exact for log 0 and for
probability 1.
"""

from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from replay.forest import Forest, gather
from replay.rounds import Marginals

_ROUNDS_AT_ONCE = 64  # a depth of so many rounds stays in a core's cache


def best_first(marginals: Marginals, budget: int, *, spine_first: bool = False) -> Forest:
    """The budget-N tree of Theorem 1 inside the universe of `marginals`; every smaller budget is its head.

    Holds fewer than `budget` nodes (see `Forest.width`) where the universe does. With `spine_first` the top-1 path
    comes before everything else.

    Raises:
        ValueError: a budget below 1.

    Source: Theorem 1 and Corollary 1.
    """
    return gather(marginals, *best_first_nodes(marginals, budget, spine_first=spine_first))


def best_first_nodes(
    marginals: Marginals, budget: int, *, spine_first: bool = False
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """The tree of `best_first` as parent column, depth and rank, each (B, N); depth 0 behind the universe."""
    if budget < 1:
        raise ValueError(f"budget must be at least 1, not {budget}")
    parent, depth, rank = (np.zeros((len(marginals), budget), np.int32) for _ in range(3))
    for row, logq in enumerate(marginals.logq):
        nodes = _pop(logq.tolist(), budget, spine_first)  # Python floats are float64, whatever logq is
        parent[row, : len(nodes)], depth[row, : len(nodes)], rank[row, : len(nodes)] = zip(*nodes, strict=True)
    return parent, depth, rank


def _pop(logq: list[list[float]], budget: int, spine_first: bool) -> list[tuple[int, int, int]]:
    """The first `budget` nodes of one round as (parent column, depth, rank); `logq` is (L, K).

    A heap entry is (waits for the spine, -score, depth, path, -parent score, parent column, rank). `path` reads the
    ranks of a node as the digits of a number, so that among nodes of one depth the smaller number is the
    lexicographically earlier string, and 0 is the spine.

    The paper's appendix C pushes all K children of a popped node, K + NK pushes. Here a pop pushes its next sibling and
    its first child, which are all that can come next: 2N pushes.
    """
    depth_max, rank_kept = len(logq), len(logq[0])
    nodes: list[tuple[int, int, int]] = []
    heap = [(False, -logq[0][0], 1, 0, 0.0, 0, 0)]
    while heap and len(nodes) < budget:
        waits, cost, depth, path, above, parent, rank = heappop(heap)
        nodes.append((parent, depth, rank))
        if rank + 1 < rank_kept:
            sibling = above - logq[depth - 1][rank + 1]
            heappush(heap, (spine_first, sibling, depth, path + 1, above, parent, rank + 1))
        if depth < depth_max:
            heappush(heap, (waits, cost - logq[depth][0], depth + 1, path * rank_kept, cost, len(nodes), 0))
    return nodes


def sorted_masses(marginals: Marginals, budget: int) -> NDArray[np.float64]:
    """(B, N) the N largest prefix masses of each round, rho_(1) >= rho_(2) >= ..., 0 behind the universe.

    Masses alone need no tree, and no heap: see `_largest`, which takes a third of its time.

    Raises:
        ValueError: a budget below 1.

    Source: rho_(N) of Theorem 2; Figure 4c shows its mean over rounds.
    """
    if budget < 1:
        raise ValueError(f"budget must be at least 1, not {budget}")
    rounds = range(0, len(marginals), _ROUNDS_AT_ONCE)
    parts = [_largest(marginals.logq[i : i + _ROUNDS_AT_ONCE].astype(np.float64), budget) for i in rounds]
    return np.asarray(np.exp(np.concatenate([np.empty((0, budget)), *parts])))


def _largest(logq: NDArray[np.float64], budget: int) -> NDArray[np.float64]:
    """(B, N) scores of the N best nodes, -inf behind the universe, from log q (B, L, K), depth by depth.

    Of one depth, child k of the i-th best parent (both from 1) stands behind at least i * k - 1 others, so i * k <= N
    pairs are tried. Parents below the N-th best node so far have no child among the best.
    """
    parent, rank = (axis.ravel() for axis in np.indices((budget, logq.shape[2])))
    near = (parent + 1) * (rank + 1) <= budget
    parent, rank = parent[near], rank[near]
    best, level = np.full((len(logq), budget), -np.inf), np.zeros((len(logq), 1))
    for depth in range(logq.shape[1]):
        used = parent < level.shape[1]
        child = _falling(level[:, parent[used]] + logq[:, depth, rank[used]])[:, :budget]
        best = _falling(np.hstack([best, child]))[:, :budget]
        level = child[:, : (child >= best[:, -1:]).sum(axis=1).max(initial=1)]
    return best


def _falling(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return -np.sort(-values, axis=1)
