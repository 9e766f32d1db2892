"""Which prefixes of a continuation are out of a budget's reach, told without listing nodes.

A prefix that fails costs the kernel most: its low score is the floor down to which nodes are listed. So a lower bound
on the nodes ahead of it comes first. It counts plain nodes: those that stray from the spine (rank 1 throughout) at
most twice. A node's score is the spine's at its length less the gaps where it strays, so that comparisons of small
integers suffice; gaps are rounded up and the room for them down.

By hand: q1 = (.5, .25), q2 = (.8, .1). The spine scores log .5 and log .4, and the gaps are log 2 and log 8. Before a
prefix of probability .09 there is room for log 5.6 and log 4.4: both spine nodes, and those that stray at position 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_PER_NAT, _FAR = 1000, 2**15 - 1  # int16 in thousandths of a nat; what is farther than 32 nats counts as never


@np.errstate(invalid="ignore", over="ignore")  # log 0 less log 0: such nodes are not counted
def in_reach(
    by_depth: NDArray[np.float64], score: NDArray[np.float64], alive: NDArray[np.intp], budget: int
) -> NDArray[np.intp]:
    """How many of the first `alive` (B,) prefixes do not stand behind `budget` plain nodes, by bisection over length.

    Args:
        by_depth: (L, K, B) log q, descending along K.
        score: (L, B) of the prefixes, by length.
        alive: (B,) how many prefixes are asked about.
        budget: nodes that put a prefix out of reach.
    """
    depth_max = len(by_depth)
    ranks = min(by_depth.shape[1], 16, 1 + 255 // depth_max)  # so that `plain_nodes` counts in bytes
    gap = np.ceil((by_depth[:, :1] - by_depth[:, 1:ranks]) * _PER_NAT)
    gap = np.fmin(gap, _FAR).astype(np.int16)  # (L, K - 1, B)
    spine = np.cumsum(by_depth[:, 0], axis=0)  # (L, B)
    low, high, column = np.zeros_like(alive), alive, np.arange(len(alive))
    while (low < high).any():
        middle = (low + high + 1) // 2
        bar = score[middle - 1, column]
        room = np.floor((spine - bar + bar / _PER_NAT**2) * _PER_NAT)  # less what float64 can have rounded
        over = plain_nodes(gap, np.fmin(np.fmax(room, 0), _FAR).astype(np.int16)) >= budget
        over &= low < high  # what is settled stays
        low, high = np.where(over, low, middle), np.where(over, middle - 1, high)
    return high


def plain_nodes(gap: NDArray[np.int16], room: NDArray[np.int16]) -> NDArray[np.intp]:
    """(B,) at least so many nodes outscore a prefix that the spine (rank 1 throughout) outscores by `room` (L, B).

    A node of length l is `gap` (L, K - 1, B) short of the spine's for each position where it leaves it. Counted are
    the spine's own nodes, those that leave it once, and those that leave it twice by less than half the room each.
    """
    count = np.zeros(room.shape[1], np.intp)
    for depth, most in enumerate(room, start=1):
        once = (gap[:depth] < most).view(np.uint8).reshape(-1, len(most))
        count += once.sum(axis=0, dtype=np.uint8)
        count += most > 0
        near = (gap[:depth] < most // 2).view(np.uint8).sum(axis=1, dtype=np.uint8)  # (l, B)
        total = near.sum(axis=0, dtype=np.uint16)
        count += (total * total - (near * near).sum(axis=0, dtype=np.uint16)) // 2
    return count
