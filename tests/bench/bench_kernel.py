"""The counting kernel against the heaps, in one run. Microseconds a round are in `extra_info`; ratios are printed last.

    pytest tests/bench/bench_kernel.py

Entry budgets at every budget to 127, rank cap 8, one core. The heaps stop at the same budget; they are timed on a
part of the rounds, since they need seconds for all. To compare with another state of the kernel in the same run:

    git show REVISION:replay/accept.py > /tmp/before.py
    KERNEL_BEFORE=/tmp/before.py pytest tests/bench/bench_kernel.py -s

What was tried, in microseconds of CPU time a round (sample, simulated; the least of nine, one core of a busy two-core
machine with AVX-512). The lines come from several runs, which differ by a tenth:

    nodes listed depth by depth down to the longest prefix that the product of ranks allows    10.4  13.8
    paths walked to the root only where scores tie; nodes that stray once counted first         7.6   6.0
    nodes that stray twice counted as well, all in int16 rather than float32                    6.7   6.5
    running sums only after 32 new nodes a round or a tie, not at every depth                   5.4   5.4
    ranks found one at a time; a child's round carried along rather than looked up              5.5   5.1
    not kept: bisection on those rounds only that are undecided                                 5.2   5.3
    not kept: nodes that stray once, in the first 5 ranks only                                  8.2   5.9
    not kept: the same in the first 3 ranks only                                                9.5   7.0
    not kept: nodes listed by how often they stray, not by depth: 147 and 460 a round stray once, no gain
    not kept: chunks of 512 or 1024 rounds are slower by 40 to 60 % and by 10 to 20 %; 4096 is as fast as 2048

All in one run, with a load of 8 on the machine: first line 12.5 and 15.4, now 5.8 and 5.6, a two-push heap in C++
(g++ -O3) 5.7 and 8.0. On rounds full of log 0 nothing is gained, and at a budget of 1 the bound costs 1 us.
"""

import importlib.util
import os

import numpy as np
import oracle
import pytest
from simulated import simulated

from castsim.runs.reading import open_run
from castsim.runs.sample import sample_run
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


def kernel_of(file):
    """The kernel of another `accept.py`."""
    spec = importlib.util.spec_from_file_location("before", file)
    before = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(before)
    return lambda rounds: before.entry_budgets(
        rounds.marginals, rounds.continuation, rounds.known, budget=BUDGET, rank_cap=8
    )


METHODS = {"kernel": kernel, "two-push heap": heap(oracle.two_push_heap), "textbook heap": heap(oracle.textbook_heap)}
if "KERNEL_BEFORE" in os.environ:
    METHODS["kernel before"] = kernel_of(os.environ["KERNEL_BEFORE"])


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("method", METHODS)
def test_entry_budgets(benchmark, sets, name, method):
    rounds = sets[name]
    if method.endswith("heap"):
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
