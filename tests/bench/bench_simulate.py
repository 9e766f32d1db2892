"""The simulation: drawn rounds a second, and what the checked run folder of them takes besides, in one run.

    pytest tests/bench/bench_simulate.py -s

One core, L = 15, K = 8 and 16, outputs of 256 tokens.
"""

import time

import pytest

from castsim.profiles.model import Model, draw, split_tables
from castsim.profiles.simulate import Shape, simulated_part

PROMPTS, TOKENS = 64, 256
ROUNDS = PROMPTS * (TOKENS - 1)


def fastest(work, times=5):
    found = []
    for _ in range(times):
        begun = time.perf_counter()
        work()
        found.append(time.perf_counter() - begun)
    return min(found)


@pytest.mark.parametrize("rank_kept", [8, 16])
def test_rounds_a_second(rank_kept):
    model, splits = Model(), split_tables(Model(), 15)
    shape = Shape(PROMPTS, TOKENS, rank_kept=rank_kept)
    drawn = fastest(lambda: [draw(model, i, TOKENS - 1, 15, rank_kept, 0, splits) for i in range(PROMPTS)])
    whole = fastest(
        lambda: [simulated_part(model, shape, first) for first in range(0, PROMPTS, shape.prompts_in_shard)]
    )
    print(
        f"\nK = {rank_kept}: {ROUNDS / drawn:,.0f} rounds a second drawn, {ROUNDS / whole:,.0f} with ids, checks and "
        f"frames, {whole / drawn:.1f} times as long"
    )
    assert len(simulated_part(model, shape, 0).rounds) == shape.prompts_in_shard * (TOKENS - 1)
