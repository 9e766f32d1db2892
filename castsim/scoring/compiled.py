"""Tree and mask of one round, compiled: the heap of `replay.topn` for a decoder that waits for it.

`replay.topn.best_first_nodes` is the oracle: a test holds both equal, node for node, ties included. Row 0 is the root.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


@njit(cache=True)
def best_first_rows(logq: NDArray[np.floating[Any]], budget: int) -> tuple[Ints, Ints, Ints]:
    """The first `budget` nodes of one round in the order of Theorem 1, fewer if there are no more.

    A candidate is a row that is not in the tree yet: the next sibling and the first child of each row that is.

    Args:
        logq: (L, K), descending along K.

    Returns:
        parent, depth, rank: (1+n,) each, of the root and the nodes.
    """
    depth_max, rank_kept = logq.shape
    parent, depth, rank, heap = np.zeros((4, 2 * budget + 2), np.int32)  # of candidates, and the order they wait in
    score, above = np.zeros((2, 2 * budget + 2))  # of candidates, of rows
    rows = np.zeros(budget + 1, np.int32)  # which candidate each row was
    parent[0], depth[1], score[1] = -1, 1, logq[0, 0]
    heap[0], size, made, count = 1, 1, 2, 1
    while size and count <= budget:
        node = heap[0]
        rows[count], above[count] = node, score[node]
        level, row, place = depth[node], parent[node], rank[node] + 1
        if place < rank_kept:
            parent[made], depth[made], rank[made] = row, level, place
            score[made] = above[row] + logq[level - 1, place]
            moved, made = made, made + 1
        else:
            size -= 1
            moved = heap[size]
        _sink(heap, size, moved, score, depth, parent, rank, rows)
        if level < depth_max:
            parent[made], depth[made] = count, level + 1
            score[made] = score[node] + logq[level, 0]
            _rise(heap, size, made, score, depth, parent, rank, rows)
            size, made = size + 1, made + 1
        count += 1
    kept = rows[:count]
    return parent[kept], depth[kept], rank[kept]


@njit(cache=True)
def _before(a, b, score, depth, parent, rank, rows):  # type: ignore[no-untyped-def]
    """Does candidate a come before b: higher score, then shorter, then lexicographic by rank?"""
    if score[a] != score[b]:
        return score[a] > score[b]
    if depth[a] != depth[b]:
        return depth[a] < depth[b]
    first = False
    while a != b:  # up to the common ancestor; the shallowest difference has the last word
        if rank[a] != rank[b]:
            first = rank[a] < rank[b]
        a, b = rows[parent[a]], rows[parent[b]]
    return first


@njit(cache=True)
def _sink(heap, size, node, score, depth, parent, rank, rows):  # type: ignore[no-untyped-def]
    """Put `node` in the place of the first one."""
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _before(heap[child + 1], heap[child], score, depth, parent, rank, rows):
            child += 1
        if not _before(heap[child], node, score, depth, parent, rank, rows):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = node


@njit(cache=True)
def _rise(heap, size, node, score, depth, parent, rank, rows):  # type: ignore[no-untyped-def]
    """Add `node` behind the `size` that are there."""
    place = size
    while place and _before(node, heap[(place - 1) // 2], score, depth, parent, rank, rows):
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = node


@njit(cache=True)
def best_first_tree(
    token: Ints, logq: NDArray[np.floating[Any]], budget: int, root: int
) -> tuple[NDArray[np.int64], Ints, Ints, Floats, Floats]:
    """Token, parent, depth and proposal of a `Tree`, and scores, each (1+n,), from candidates (L, K)."""
    parent, depth, rank = best_first_rows(logq, budget)
    tokens, proposal, score = np.empty(len(parent), np.int64), np.empty(len(parent)), np.zeros(len(parent))
    tokens[0], proposal[0] = root, 1.0
    for row in range(1, len(parent)):
        step = np.float64(logq[depth[row] - 1, rank[row]])
        tokens[row] = token[depth[row] - 1, rank[row]]
        score[row] = score[parent[row]] + step
        proposal[row] = np.exp(step)
    return tokens, parent, depth, proposal, score


@njit(cache=True)
def sorted_masses(logq: NDArray[np.floating[Any]], budget: int) -> Floats:
    """(B, N) masses of the first `budget` nodes of each of B rounds (B, L, K), 0 behind the universe."""
    found = np.zeros((len(logq), budget))
    for one in range(len(logq)):
        parent, depth, rank = best_first_rows(logq[one], budget)
        score = np.zeros(len(parent))
        for row in range(1, len(parent)):
            score[row] = score[parent[row]] + logq[one, depth[row] - 1, rank[row]]
            found[one, row - 1] = np.exp(score[row])
    return found


@njit(cache=True)
def sight(parent: Ints) -> NDArray[np.float32]:
    """(n, n) 0 where a row descends from a row or is it, -inf elsewhere; parents stand before their children."""
    rows = len(parent)
    found = np.full((rows, rows), np.float32(-np.inf))
    for row in range(rows):
        if parent[row] >= 0:
            found[row, :row] = found[parent[row], :row]
        found[row, row] = 0
    return found
