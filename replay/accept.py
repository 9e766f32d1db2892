"""What a tree accepts: entry budgets, accepted A and committed R at every budget, without building the tree.

A node's *entry budget* is its place in the policy's order, so round b at budget n accepts #{d : entry(Y_1:d) <= n}.
For best-first policies the entry budget of Y_1:d is the number of nodes that Theorem 1 ranks no later. That number is
counted here for a whole batch at once: the nodes that score at least as high as some prefix of the continuation are
listed depth by depth, and each is entered at the first prefix that it stands before; a running sum over prefixes is
then the count. A prefix whose count passes the budget is dropped, which raises the round's floor and prunes the list.
Most such prefixes are dropped before anything is listed: see `replay.bound`.

By hand: L = 2, q1 = (.5, .25), q2 = (.8, .1), and Y has ranks 2, 1. Its prefixes score .25 and .2. Depth 1 lists .5,
entered at the first prefix, and .25, the first prefix itself. Depth 2 lists .4, entered at the first, and .2, the
second itself; .05 and .025 are below the floor of .2. The running sum is 3, 4: the entry budgets.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from replay.bound import in_reach
from replay.forest import Forest
from replay.rounds import ID_LIMIT, PAD, Marginals, padded_continuation

IndexArray = NDArray[np.intp]
_ROUNDS_AT_ONCE = 2048  # the listed nodes of so many rounds stay in a core's cache at budget 127
_CHILDREN_AT_ONCE = 2**21  # a level can list K children for each of `budget` nodes of a round: some 150 MB
_WORTH_A_SUM = 32  # so many new nodes a round, before the running sums are looked at


def entry_budgets(
    marginals: Marginals,
    continuation: ArrayLike,
    known: ArrayLike,
    *,
    budget: int,
    rank_cap: int | None = None,
) -> NDArray[np.int32]:
    """Entry budget of each prefix Y_1:d of the continuation in best-first order, for B rounds.

    Args:
        marginals: B rounds, L positions, K ranks.
        continuation: (B, L) target ids; what stands from `known` on is not read.
        known: (B,) how many ids are real.
        budget: largest budget of interest, at least 1.
        rank_cap: retain this many ranks at a position (the paper's K = 8); None keeps all that are logged.

    Returns:
        (B, L) int32: 1..budget, or budget + 1 where the prefix is not in the budget's tree.

    Raises:
        ValueError: a budget or rank cap below 1, or shapes that disagree.
        RowError: see `padded_continuation`.

    Source: the order of Theorem 1, in the universe of Corollary 1.
    """
    if not 1 <= budget < ID_LIMIT - 1 or (rank_cap is not None and rank_cap < 1):
        raise ValueError(
            f"budget and rank_cap must be at least 1, and budget + 1 an int32, not {budget} and {rank_cap}"
        )
    target = padded_continuation(continuation, known, marginals.depth_max)
    if len(target) != len(marginals):
        raise ValueError(f"continuation has {len(target)} rounds, marginals have {len(marginals)}")
    universe = marginals.head(rank_cap=rank_cap)
    parts = _slices(len(target), universe.rank_kept, budget)
    chunks = [_count(universe.logq[p], ranks_of(universe.take(p), target[p]), budget) for p in parts]
    return np.concatenate([np.empty((0, marginals.depth_max), np.int32), *chunks])


def rank_entry_budgets(logq: NDArray[np.floating], rank: NDArray[np.int32], *, budget: int) -> NDArray[np.int32]:
    """`entry_budgets` where the true tokens are known by rank alone, as in a simulation.

    Args:
        logq: (B, L, K), descending along K.
        rank: (B, L) rank of the true token from 0; what is not in 0..K-1 is beyond the candidates.
    """
    kept = np.where((rank >= 0) & (rank < logq.shape[2]), rank, PAD).astype(np.int32)
    parts = _slices(len(rank), logq.shape[2], budget)
    chunks = [_count(logq[p], kept[p], budget) for p in parts]
    return np.concatenate([np.empty((0, logq.shape[1]), np.int32), *chunks])


def _slices(rounds: int, rank_kept: int, budget: int) -> list[slice]:
    """Chunks of rounds whose listed nodes fit in memory."""
    step = max(1, min(_ROUNDS_AT_ONCE, _CHILDREN_AT_ONCE // (budget * rank_kept)))
    return [slice(i, i + step) for i in range(0, rounds, step)]


def ranks_of(marginals: Marginals, continuation: NDArray[np.int32]) -> NDArray[np.int32]:
    """(B, L) rank of the true token among the kept candidates, counted from 0; `PAD` where it is not among them."""
    found = np.full(continuation.shape, PAD, np.int32)
    for rank in range(marginals.rank_kept):
        np.copyto(found, rank, where=marginals.token[:, :, rank] == continuation)
    return found


class _Level(NamedTuple):
    """The listed nodes of one depth, those of rank 0 first, then of rank 1, ...: m nodes of all rounds together."""

    round: IndexArray  # (m,)
    score: NDArray[np.float64]  # (m,)
    first: IndexArray  # (m,) flat place in the (L+1, B) prefix scores of the first that does not outscore the node
    parent: IndexArray  # (m,) place in the previous level
    bound: IndexArray  # (K,) where each rank begins


def _count(logq: NDArray[np.floating], rank: NDArray[np.int32], budget: int) -> NDArray[np.int32]:
    """Entry budgets (B, L) of one chunk, from log q (B, L, K) and the ranks (B, L) of the continuation.

    Depth comes first in the arrays here, so that an operation runs along the rounds.
    """
    rounds, depth_max, _ = logq.shape
    by_depth = np.ascontiguousarray(np.moveaxis(logq, 0, 2), dtype=np.float64)  # (L, K, B)
    rank, column, length = np.ascontiguousarray(rank.T), np.arange(rounds), np.arange(depth_max)[:, None]
    alive, score = _prefixes(by_depth, rank, budget)
    alive = in_reach(by_depth, score, alive, budget)
    prefix_score = np.full((depth_max + 1, rounds), np.nan)  # a NaN neither outscores nor equals a node
    prefix_score[:-1] = np.where(length < alive, score, np.nan)
    floor = np.vstack([np.full(rounds, np.inf), prefix_score[:-1]])  # (L+1, B) by number of prefixes in play
    bar, root = floor[alive, column], np.flatnonzero(alive)
    level = _Level(root, np.zeros(len(root)), root, root, np.zeros(1, np.intp))
    levels: list[_Level] = []
    fresh: list[IndexArray] = []
    entered = np.zeros(prefix_score.size, np.intp)  # nodes by the first prefix that they stand before
    for depth in range(depth_max):
        level = _expand(level, by_depth[depth], bar, prefix_score.ravel())
        levels.append(level)
        fresh.append(_entered_at(levels, rank, prefix_score.ravel(), int((alive > depth).sum())))
        ties = fresh[-1] is not level.first  # what ties is not pruned by the floor, and multiplies
        if ties or sum(map(len, fresh)) > _WORTH_A_SUM * rounds or depth == depth_max - 1:
            entered += np.bincount(np.concatenate(fresh), minlength=entered.size)
            entry = np.cumsum(entered.reshape(prefix_score.shape)[:-1], axis=0)  # (L, B) so far
            alive = np.minimum(alive, (entry <= budget).sum(axis=0))
            bar = floor[alive, column]
            level = levels[-1] = _filtered(level, np.flatnonzero(fresh[-1] < (alive * rounds).take(level.round)))
            fresh = []
    return np.where(length < alive, entry, budget + 1).T.astype(np.int32)


def _prefixes(
    by_depth: NDArray[np.float64], rank: NDArray[np.int32], budget: int
) -> tuple[IndexArray, NDArray[np.float64]]:
    """How many prefixes of the continuation can be within the budget (B,), and their scores (L, B).

    Y_1:d, of ranks r_1..r_d when counted from 1, stands behind all shorter or equal-length strings whose ranks are no
    worse than its own, position by position: at least sum_i r_1 * ... * r_i of them, itself included.
    """
    reached = np.logical_and.accumulate(rank != PAD, axis=0)  # (L, B)
    place = np.where(reached, rank, 0)
    score = np.cumsum(np.take_along_axis(by_depth, place[:, None], axis=1)[:, 0], axis=0)
    ahead = np.cumsum(np.cumprod(place + 1.0, axis=0), axis=0)
    return (reached & (ahead <= budget)).sum(axis=0), score


def _expand(
    level: _Level, logq: NDArray[np.float64], floor: NDArray[np.float64], prefix_score: NDArray[np.float64]
) -> _Level:
    """The children (log q (K, B) of their depth) that reach their round's `floor` (B,).

    Ranks are tried in turn: a node whose child of one rank falls short has none of a later rank, since log q descends.
    """
    node, within = np.arange(len(level.round)), level.round
    score, bar = level.score, floor.take(within)
    parents, rounds, scores = [node[:0]], [within[:0]], [score[:0]]
    for row in logq:
        child = row.take(within) + score
        kept = np.flatnonzero(child >= bar)
        if not len(kept):
            break
        node, within, score, bar = node.take(kept), within.take(kept), score.take(kept), bar.take(kept)
        parents.append(node)
        rounds.append(within)
        scores.append(child.take(kept))
    bound = np.cumsum([len(part) for part in parents])[:-1]
    parent, within, score = np.concatenate(parents), np.concatenate(rounds), np.concatenate(scores)
    first = level.first.take(parent)  # no child outscores its parent, so the search goes on from there
    first = _advance(first, len(floor), score, prefix_score, np.greater)
    return _Level(within, score, first, parent, bound)


def _filtered(level: _Level, kept: IndexArray) -> _Level:
    """The nodes `kept`: what stands behind a prefix has its descendants there too. Equal scores, as of log 0, are
    not pruned by the floor."""
    if len(kept) == len(level.round):
        return level
    bound = np.searchsorted(kept, level.bound)
    return _Level(
        level.round.take(kept), level.score.take(kept), level.first.take(kept), level.parent.take(kept), bound
    )


def _advance(
    first: IndexArray, step: int, score: NDArray[np.float64], prefix_score: NDArray[np.float64], stands_ahead: np.ufunc
) -> IndexArray:
    """Move `first` (in place) past the prefixes whose score `stands_ahead` of the node's. `step` leads to the next."""
    behind = np.flatnonzero(stands_ahead(prefix_score.take(first), score))
    while len(behind):
        ahead = first.take(behind) + step
        first[behind] = ahead
        behind = behind.compress(stands_ahead(prefix_score.take(ahead), score.take(behind)))
    return first


def _entered_at(
    levels: list[_Level], rank: NDArray[np.int32], prefix_score: NDArray[np.float64], own: int
) -> IndexArray:
    """Flat place of the first prefix that each node of the last level stands before (or is).

    That is `first`, but for nodes that *equal* its score: they stand before longer prefixes, behind shorter ones, and
    beside one of their own length in order of rank. `own` of them are the prefixes of this length themselves.
    """
    level, depth, rounds = levels[-1], len(levels) - 1, rank.shape[1]
    equal = np.flatnonzero(prefix_score.take(level.first) == level.score)
    start, row = level.first.take(equal), level.round.take(equal)
    if len(equal) == own and np.array_equal(start, row + depth * rounds):
        return level.first  # nothing ties
    score = level.score.take(equal)
    end = _advance(start + rounds, rounds, score, prefix_score, np.greater_equal)  # past those that score the same
    own_length = row + (depth + _later(levels, equal, rank[:, row])) * rounds
    place = level.first.copy()
    place[equal] = np.clip(own_length, start, end)
    return place


def _later(levels: list[_Level], node: IndexArray, rank: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Does the node stand behind the continuation's prefix of its length, by rank? `rank` is (L, m).

    Read from the node up to the root, so that the shallowest difference has the last word.
    """
    later = np.zeros(len(node), bool)
    for depth in range(len(levels) - 1, -1, -1):
        own = np.searchsorted(levels[depth].bound, node, side="right") - 1
        true = rank[depth]
        later = np.where(own == true, later, own > true)
        node = levels[depth].parent.take(node)
    return later


def forest_entry_budgets(
    forest: Forest, continuation: ArrayLike, known: ArrayLike, depth_max: int
) -> NDArray[np.int32]:
    """(B, L) entry budget of each prefix of the continuation in any policy's forest: its column, or N + 1.

    Args:
        forest: B trees.
        continuation, known: as in `entry_budgets`.
        depth_max: L, the length of the continuation.

    Source: the greedy verification of section 2: from the root, descend to the child that carries the target's token
    while there is one.
    """
    target = padded_continuation(continuation, known, depth_max)
    node = np.zeros(len(forest), np.intp)
    entry = np.full(target.shape, forest.budget + 1, np.int32)
    for depth in range(depth_max):
        child = (forest.parent == node[:, None]) & (forest.token == target[:, depth, None])
        node = np.where(child.any(axis=1), child.argmax(axis=1), -2)  # -2 is nobody's parent
        np.copyto(entry[:, depth], node, where=node > 0, casting="same_kind")
    return entry


def accepted(entry: NDArray[np.int32], budgets: ArrayLike) -> NDArray[np.int32]:
    """(B, C) accepted draft tokens A at each of C budgets, from entry budgets (B, L). Source: A(S) of section 3.2."""
    return np.asarray((entry[:, :, None] <= np.asarray(budgets)).sum(axis=1, dtype=np.int32))


def committed(accepted_count: NDArray[np.int32], remaining: NDArray[np.int32]) -> NDArray[np.int32]:
    """(B, C) emitted tokens R = A + 1 of A (B, C), but never more than the output has left (B,).

    Exclusion: an end of sequence or a token limit inside the accepted path ends the round there, without a bonus token.

    Source: R = A + 1 of section 2.
    """
    return np.minimum(accepted_count + 1, remaining[:, None]).astype(np.int32)
