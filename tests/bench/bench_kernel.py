"""The counting kernel against the heaps, in one run. Microseconds a round are in `extra_info`; ratios are printed last.

    pytest tests/bench/bench_kernel.py

Entry budgets at every budget to 127, rank cap 8, one core. The heaps stop at the same budget; they are timed on a
part of the rounds, since they need seconds for all.
"""

import numpy as np
import oracle
import pytest
from simulated import simulated

from castsim.runlog import open_run
from castsim.sample import sample_run
from replay import entry_budgets

BUDGET = 127
HEAP_ROUNDS = 300
SETS = ("sample", "simulated")
FOUND: dict[tuple[str, str], float] = {}


@pytest.fixture(scope="module")
def sets():
    (sample,) = open_run(sample_run()).rounds()
    return {"sample": sample, "simulated": simulated(20_000, seed=7)}


def kernel(rounds):
    return entry_budgets(rounds.marginals, rounds.continuation, rounds.known, budget=BUDGET, rank_cap=8)


def heap(pop):
    def run(rounds):
        universe = rounds.marginals.head(rank_cap=8)
        return oracle.entry_budgets(universe.token, universe.logq, rounds.continuation, rounds.known, BUDGET, pop)

    return run


METHODS = {"kernel": kernel, "two-push heap": heap(oracle.two_push_heap), "textbook heap": heap(oracle.textbook_heap)}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("method", METHODS)
def test_entry_budgets(benchmark, sets, name, method):
    rounds = sets[name]
    if method != "kernel":
        rounds = rounds.take(np.linspace(0, len(rounds) - 1, HEAP_ROUNDS).astype(int))
    benchmark.group = name
    result = benchmark.pedantic(METHODS[method], args=(rounds,), rounds=7, warmup_rounds=1)
    if method != "kernel":
        np.testing.assert_array_equal(result, kernel(rounds))
    FOUND[name, method] = benchmark.extra_info["us_per_round"] = benchmark.stats.stats.median / len(rounds) * 1e6


@pytest.fixture(scope="module", autouse=True)
def ratios():
    """Print microseconds a round and what the kernel gains on each heap."""
    yield
    print()
    for name in SETS:
        fast = FOUND.get((name, "kernel"))
        for method in METHODS:
            if fast and (name, method) in FOUND:
                slow = FOUND[name, method]
                print(f"{name:10} {method:14} {slow:7.1f} us a round, {slow / fast:5.1f} times the kernel's")
