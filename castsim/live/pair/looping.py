"""Where an output begins to repeat itself, as small models do under greedy decoding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

GRAM, TIMES = 8, 3


def loop_start(output: Sequence[int]) -> int | None:
    """Index of the token that completes some `GRAM` tokens in a row for the `TIMES`-th time; None if none does."""
    seen: Counter[tuple[int, ...]] = Counter()
    for end in range(GRAM, len(output) + 1):
        gram = tuple(output[end - GRAM : end])
        seen[gram] += 1
        if seen[gram] == TIMES:
            return end - 1
    return None
