"""The round loop: by hand, against queueing theory, and what must hold whatever the load."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castsim.allocation import NOT_HELD, Pool
from castsim.errors import OptionError
from castsim.serving.arrivals import arrivals
from castsim.serving.batchcost import Surface
from castsim.serving.controllers.chain import Chain
from castsim.serving.controllers.shared import Shared
from castsim.serving.controllers.uniform import Uniform
from castsim.serving.loop import Server, serve
from castsim.serving.measures import measures
from castsim.serving.requests import Outputs, drawn

DEPTH, NODES = 3, 6


@dataclass(frozen=True)
class Fixed:
    """Every round takes as long, whatever it holds; prompts are free."""

    ms: float

    def target_ms(self, batch: int, packed: float) -> float:
        return self.ms

    def draft_ms(self, batch: int) -> float:
        return 0.0

    def prefill_ms(self, tokens: int) -> float:
        return 0.0


def outputs(lengths, seed=None, prompt_tokens=10) -> Outputs:
    """Outputs of so many tokens. Without a seed no draft token is ever right; with one, some are."""
    remaining = np.concatenate([np.arange(n - 1, 0, -1) for n in lengths]).astype(np.int64)
    rounds = len(remaining)
    rng = np.random.default_rng(seed)
    mass = np.sort(rng.random((rounds, NODES)), axis=1)[:, ::-1]
    entry = np.full((rounds, DEPTH), NOT_HELD)
    if seed is not None:
        right = rng.integers(0, DEPTH + 1, rounds)
        entry = np.where(
            np.arange(DEPTH) < right[:, None], np.cumsum(rng.integers(1, 3, (rounds, DEPTH)), axis=1), NOT_HELD
        )
    probability = rng.random((rounds, DEPTH))
    pool = Pool(mass, entry, np.cumprod(probability, axis=1), entry, probability)
    start = np.cumsum([0, *(n - 1 for n in lengths[:-1])])
    return Outputs(pool, remaining, start, np.full(len(lengths), prompt_tokens))


def test_two_requests_by_hand():
    """The second comes during the first one's first round, and waits for it to end."""
    cost = Surface(base_ms=8, share=0.25, draft_fixed_ms=1, draft_slope_ms=1)
    served = serve(
        outputs([3, 3], prompt_tokens=4), np.array([0, 1]), np.array([0.0, 20.0]), Uniform(1), cost, Server(2)
    )
    prefill = 8 * (1 + 0.25 * 4)
    alone, both = 2 + 8 * (1 + 0.25 * 2), 3 + 8 * (1 + 0.25 * 4)
    first = [prefill, prefill + alone + prefill]
    assert served.first_ms.tolist() == first
    assert served.finish_ms.tolist() == [first[1] + both, first[1] + both + alone]
    assert served.rounds.tolist() == [2, 2] and served.passes == 3
    assert (served.nodes, served.packed) == (4, 8)
    assert served.busy_ms == served.finish_ms[1]


def test_an_idle_server_waits_for_the_next_request():
    served = serve(outputs([2, 2]), np.array([0, 1]), np.array([5.0, 100.0]), Chain(), Fixed(10), Server(1))
    assert served.finish_ms.tolist() == [15, 110]
    assert served.busy_ms == 20


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 12), min_size=1, max_size=12),
    batch=st.integers(1, 5),
    room=st.integers(22, 60) | st.none(),
    seed=st.integers(0, 99),
)
def test_every_token_is_served_once_and_nobody_is_overtaken(lengths, batch, room, seed):
    made = outputs(lengths, seed)
    which = drawn(made, 2 * len(lengths), seed)
    arrival = arrivals("bursty", 20, len(which), np.random.default_rng(seed))
    served = serve(made, which, arrival, Shared(2), Surface(10, 0.01, 1, 0.1), Server(batch, room))
    assert (served.tokens == made.tokens[which]).all()
    assert (arrival <= served.first_ms).all() and (served.first_ms < served.finish_ms).all()
    assert (np.diff(served.first_ms) >= 0).all()
    there = (served.first_ms <= served.first_ms[:, None]) & (served.first_ms[:, None] < served.finish_ms)
    assert there.sum(axis=1).max() <= batch
    if room is not None:
        assert (there * (10 + made.tokens[which])).sum(axis=1).max() <= room
    span = served.finish_ms.max() - arrival[0]
    assert served.busy_ms <= span + 1e-6


@settings(max_examples=30, deadline=None)
@given(batch=st.integers(1, 6), seed=st.integers(0, 99))
def test_tokens_of_a_request_do_not_depend_on_its_neighbours(batch, seed):
    made = outputs([9, 5, 12, 7, 6, 8], seed)
    which, arrival = drawn(made, 12, seed), np.zeros(12)
    alone = serve(made, which, arrival, Uniform(3), Fixed(1), Server(1))
    beside = serve(made, which, arrival, Uniform(3), Fixed(1), Server(batch))
    assert (alone.rounds == beside.rounds).all()


def test_a_single_server_of_constant_rounds_waits_as_in_md1_theory():
    """Mean wait rho s / 2 (1 - rho), Pollaczek and Khinchine, of one-round requests one at a time."""
    service, load, count = 10.0, 0.7, 40_000
    made = outputs([2])
    arrival = arrivals("poisson", 1000 * load / service, count, np.random.default_rng(5))
    served = serve(made, np.zeros(count, np.int64), arrival, Chain(), Fixed(service), Server(1))
    wait = (served.finish_ms - arrival).mean() - service
    assert wait == pytest.approx(load * service / (2 * (1 - load)), rel=0.06)
    assert served.busy_ms == pytest.approx(service * count)


def test_littles_law_holds_within_noise():
    """Requests in the system, counted at random moments, against arrival rate times mean time there."""
    rate_per_s, count = 30.0, 4000
    made = outputs([5, 9, 17, 12], seed=3)
    rng = np.random.default_rng(8)
    arrival = arrivals("poisson", rate_per_s, count, rng)
    served = serve(made, drawn(made, count, 0), arrival, Shared(2), Surface(10, 0.002, 1, 0.1), Server(8))
    moments = rng.uniform(arrival[count // 10], arrival[-count // 10], 4000)
    inside = ((arrival <= moments[:, None]) & (moments[:, None] < served.finish_ms)).sum(axis=1).mean()
    assert inside == pytest.approx(rate_per_s / 1000 * (served.finish_ms - arrival).mean(), rel=0.08)
    assert measures(served, 20)["requests_in_system"] == pytest.approx(inside, rel=0.08)


def test_measures_by_hand():
    served = serve(outputs([3, 3]), np.array([0, 1]), np.array([0.0, 0.0]), Chain(), Fixed(10), Server(2))
    found = measures(served, within_ms=9)
    assert found["goodput_tok_per_s"] == 1000 * 6 / 20
    assert found["round_length"] == 1 and found["requests_in_pass"] == 2 and found["nodes_a_request"] == DEPTH
    assert found["output_token_ms"] == {"p50": 10, "p95": 10, "p99": 10}
    assert found["first_token_ms"]["p99"] == 0 and found["within_share"] == 0 and found["busy_share"] == 1


def test_outputs_are_all_drawn_before_one_comes_again():
    which = drawn(outputs([2] * 7), 17, seed=1)
    assert sorted(which[:7]) == sorted(which[7:14]) == list(range(7))
    assert (drawn(outputs([2] * 7), 9, seed=1) == which[:9]).all()


def test_a_request_that_never_fits_is_refused():
    with pytest.raises(OptionError, match="--kv-tokens 12"):
        serve(outputs([5]), np.array([0]), np.zeros(1), Chain(), Fixed(1), Server(1, kv_tokens=12))
