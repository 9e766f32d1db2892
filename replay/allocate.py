"""One verifier budget shared by a batch of requests: who gets how many nodes, and what that accepts.

Budgets count nonroot nodes everywhere: the roots are always verified, so a pass packs B + M tokens. A request's nodes
come in its policy's order, so a width says which ones it gets. T batches are handled at once; masses are (T, B, N),
falling along N, 0 where a request has no node.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
Widths = NDArray[np.int64]


def shared_widths(mass: FloatArray, total_budget: int) -> Widths:
    """(T, B) widths of global best-first allocation: the M nodes of largest mass of each batch.

    Nodes without mass are left out, so a batch may spend less. Of equal masses the earlier node of a request goes
    first; the expected total does not depend on the order of requests.

    Raises:
        ValueError: masses that are not falling rows of numbers in 0..1, or a negative budget.

    Source: Proposition 2.
    """
    rho = _checked(mass, total_budget)
    batches, requests, nodes = rho.shape
    flat = rho.reshape(batches, -1)
    first = np.broadcast_to(np.arange(nodes), rho.shape).reshape(batches, -1)
    order = np.lexsort((first, -flat), axis=1)[:, :total_budget]
    request, there = order // nodes, np.take_along_axis(flat, order, axis=1) > 0
    key = (np.arange(batches)[:, None] * requests + request)[there]
    return np.asarray(np.bincount(key, minlength=batches * requests).reshape(batches, requests), np.int64)


def uniform_widths(mass: FloatArray, total_budget: int) -> Widths:
    """(T, B) widths of an even split that spends M exactly: what M leaves over goes to the largest next nodes.

    A request never gets more nodes than it has; those are then lost.

    Raises:
        ValueError: see `shared_widths`.
    """
    rho = _checked(mass, total_budget)
    _, requests, nodes = rho.shape
    each, rest = divmod(total_budget, requests)
    following = rho[:, :, each] if each < nodes else np.zeros(rho.shape[:2])
    place = np.argsort(np.argsort(-following, axis=1, kind="stable"), axis=1, kind="stable")
    return np.asarray(np.minimum(each + (place < rest), (rho > 0).sum(axis=2)), np.int64)


def confident_widths(probability: FloatArray, total_budget: int) -> Widths:
    """(T, B) depths of chains that are each cut at the first token less sure than a threshold, common to the batch and
    as low as the budget allows.

    Args:
        probability: (T, B, L) of each chain token itself, not of its prefix.

    Raises:
        ValueError: numbers outside 0..1, or a negative budget.

    Source: verification pruned by confidence, as D-cut (arXiv 2607.14647) and adaptive verification in vLLM have it.
    """
    return shared_widths(np.minimum.accumulate(np.asarray(probability, np.float64), axis=2), total_budget)


def hindsight_total(entry: NDArray[np.integer], total_budget: int) -> NDArray[np.int64]:
    """(T,) most draft tokens that any split of M nodes could have accepted, with the target's answer known beforehand.

    No allocator can reach it but by luck: it sees the future. Accepted counts are not concave in the width, so this is
    a dynamic programme over requests, not a greedy choice.

    Args:
        entry: (T, B, L) entry budget of each true prefix in its request's order, rising along L; larger than M where
            the prefix is out of reach.
    """
    batches = len(entry)
    best = np.zeros((batches, total_budget + 1), np.int64)
    for request in range(entry.shape[1]):
        without, best = best, best.copy()
        for depth in range(entry.shape[2]):
            cost = entry[:, request, depth]
            for nodes in np.unique(cost[cost <= total_budget]).tolist():
                rows = np.flatnonzero(cost == nodes)
                gained = without[rows, : total_budget + 1 - nodes] + depth + 1
                best[rows, nodes:] = np.maximum(best[rows, nodes:], gained)
    return best[:, -1]


def accepted_at(entry: NDArray[np.integer], widths: ArrayLike) -> NDArray[np.int64]:
    """(..., B) draft tokens that requests accept at their widths (..., B), from entry budgets (..., B, L)."""
    return np.asarray((entry <= np.asarray(widths)[..., None]).sum(axis=-1), np.int64)


def _checked(mass: FloatArray, total_budget: int) -> FloatArray:
    rho = np.asarray(mass, np.float64)
    if rho.ndim != 3 or not ((rho >= 0) & (rho <= 1)).all() or (np.diff(rho, axis=2) > 0).any():
        raise ValueError("masses must be falling rows (T, B, N) of numbers in 0..1")
    if total_budget < 0:
        raise ValueError(f"a total budget must not be negative, not {total_budget}")
    return rho
