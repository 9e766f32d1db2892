"""Slow and obvious versions of what `replay` does fast. Nothing here imports `replay`."""

import heapq
import itertools

import numpy as np


def textbook_heap(logq):
    """Appendix C as printed: pop the best node, push all its children. One round, (L, K): yields (path, score).

    A path is a tuple of ranks; ties go to the shorter, then the lexicographically earlier path (Theorem 1).
    """
    logq = np.asarray(logq, float).tolist()
    heap = [(-q, 1, (r,)) for r, q in enumerate(logq[0])]
    heapq.heapify(heap)
    while heap:
        cost, depth, path = heapq.heappop(heap)
        yield path, -cost
        if depth < len(logq):
            for r, q in enumerate(logq[depth]):
                heapq.heappush(heap, (cost - q, depth + 1, (*path, r)))


def two_push_heap(logq):
    """The same nodes in the same order with two pushes a pop: next sibling and first child."""
    logq = np.asarray(logq, float).tolist()
    depth_max, rank_kept = len(logq), len(logq[0])
    heap = [(-logq[0][0], 1, (0,), 0.0)]
    while heap:
        cost, depth, path, above = heapq.heappop(heap)
        yield path, -cost
        rank = path[-1] + 1
        if rank < rank_kept:
            heapq.heappush(heap, (above - logq[depth - 1][rank], depth, (*path[:-1], rank), above))
        if depth < depth_max:
            heapq.heappush(heap, (cost - logq[depth][0], depth + 1, (*path, 0), cost))


def entry_budgets(token, logq, continuation, known, budget, heap=textbook_heap):
    """(B, L) place of each true prefix in the heap's order, `budget + 1` where it is not among the first `budget`.

    A round's heap is left once its prefixes are found, so that timing it is fair.
    """
    out = np.full(np.shape(continuation), budget + 1)
    for b in range(len(token)):
        wanted = true_paths(token[b].tolist(), continuation[b].tolist(), known[b])
        if wanted:
            for n, (path, _) in enumerate(itertools.islice(heap(logq[b]), budget), start=1):
                if path in wanted:
                    out[b, wanted[path]] = n
                    if wanted[path] == len(wanted) - 1:
                        break
    return out


def true_paths(token, continuation, known):
    """Rank strings of the continuation's prefixes, as far as their tokens are candidates, with their depth from 0."""
    paths, path = {}, ()
    for d in range(known):
        if continuation[d] not in token[d]:
            break
        path = (*path, token[d].index(continuation[d]))
        paths[path] = d
    return paths


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


def pop_and_append(logq, branching, budget):
    """JetSpec's expansion: pop the best node, append all its children, until the budget. Paths in order of entry."""
    heap, tree = [(0.0, 0, ())], []
    while heap and len(tree) < budget:
        cost, depth, path = heapq.heappop(heap)
        if depth < len(logq):
            for r in range(min(branching, len(logq[depth]))):
                tree.append((*path, r))
                heapq.heappush(heap, (cost - float(logq[depth][r]), depth + 1, (*path, r)))
    return tree[:budget]


def expand_and_rerank(logq, frontier, budget):
    """EAGLE-2: the `frontier` best nodes of a depth get `frontier` children each; the best of all, in order."""
    level, nodes = [((), 0.0)], []
    for row in logq:
        children = [((*p, r), s + float(row[r])) for p, s in level for r in range(min(frontier, len(row)))]
        nodes += children
        level = sorted(sorted(children, key=lambda node: -node[1])[:frontier])
    return [path for path, _ in sorted(nodes, key=lambda node: -node[1])[:budget]]


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
