"""Slow and obvious versions of what `replay` does fast. Nothing here imports `replay`."""

import heapq
import itertools

import numpy as np


def textbook_heap(logq, budget):
    """Appendix C as printed: pop the best node, push all its children. One round, (L, K) -> [(path, score), ...].

    A path is a tuple of ranks; ties go to the shorter, then the lexicographically earlier path (Theorem 1).
    """
    depth_max, rank_kept = len(logq), len(logq[0])
    heap = [(-float(logq[0][r]), 1, (r,)) for r in range(rank_kept)]
    heapq.heapify(heap)
    nodes = []
    while heap and len(nodes) < budget:
        cost, depth, path = heapq.heappop(heap)
        nodes.append((path, -cost))
        if depth < depth_max:
            for r in range(rank_kept):
                heapq.heappush(heap, (cost - float(logq[depth][r]), depth + 1, (*path, r)))
    return nodes


def two_push_heap(logq, budget):
    """The same nodes with two pushes a pop: next sibling and first child."""
    depth_max, rank_kept = len(logq), len(logq[0])
    heap = [(-float(logq[0][0]), 1, (0,), 0.0)]
    nodes = []
    while heap and len(nodes) < budget:
        cost, depth, path, above = heapq.heappop(heap)
        nodes.append((path, -cost))
        rank = path[-1] + 1
        if rank < rank_kept:
            heapq.heappush(heap, (above - float(logq[depth - 1][rank]), depth, (*path[:-1], rank), above))
        if depth < depth_max:
            heapq.heappush(heap, (cost - float(logq[depth][0]), depth + 1, (*path, 0), cost))
    return nodes


def entry_budgets(token, logq, continuation, known, budget, heap=textbook_heap):
    """(B, L) place of each true prefix in the heap's order, `budget + 1` where it is not among its nodes."""
    out = np.full(np.shape(continuation), budget + 1)
    for b in range(len(token)):
        place = {path: n for n, (path, _) in enumerate(heap(logq[b], budget), start=1)}
        path = ()
        for d in range(known[b]):
            ranks = [r for r in range(token.shape[2]) if token[b, d, r] == continuation[b, d]]
            if not ranks:
                break
            path = (*path, ranks[0])
            out[b, d] = place.get(path, budget + 1)
    return out


def universe(depth_max, rank_kept):
    """All nonempty rank strings of length at most L."""
    return [p for d in range(1, depth_max + 1) for p in itertools.product(range(rank_kept), repeat=d)]


def prefix_closed_sets(nodes, size):
    """All subsets of `size` strings that hold every prefix of their members."""
    for subset in itertools.combinations(nodes, size):
        chosen = set(subset)
        if all(len(p) == 1 or p[:-1] in chosen for p in subset):
            yield chosen


def accepted(tree, continuation):
    """A(S): length of the longest prefix of the continuation (rank string) in the tree."""
    return max((d for d in range(len(continuation) + 1) if d == 0 or continuation[:d] in tree), default=0)


def walk(committed, length):
    """Rows that one policy plays on one prompt of `length` rows, from what it commits at each."""
    row, rows = 0, []
    while row < length:
        rows.append(row)
        row += committed[row]
    return rows


def sequoia_value(table, budget):
    """Most expected accepted tokens of a static tree of `budget` nodes by the dynamic programme of Sequoia.

    `best[d](n)`: value of n nodes below a node of depth d; children take ranks in turn and share the nodes.
    """
    depth_max, rank_kept = table.shape
    below = np.zeros(budget + 1)
    for d in range(depth_max - 1, -1, -1):
        best = np.zeros(budget + 1)
        for r in range(rank_kept):
            step = best.copy()
            for n in range(1, budget + 1):
                for m in range(1, n + 1):  # the child of rank r and m - 1 nodes below it
                    step[n] = max(step[n], best[n - m] + table[d, r] * (1 + below[m - 1]))
            best = step
        below = best
    return below[budget]
