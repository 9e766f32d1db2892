"""The round loop: by hand, against queueing theory, and what must hold whatever the load."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castsim.base.errors import OptionError
from castsim.costs.batch import Surface
from castsim.scoring.allocate import NOT_HELD, Pool
from castsim.serving.arrivals import arrivals
from castsim.serving.controllers import load_controllers
from castsim.serving.controllers.chain import Chain
from castsim.serving.controllers.shared import Shared
from castsim.serving.controllers.uniform import Uniform
from castsim.serving.measures import measures, steady
from castsim.serving.requests import Outputs, Requests, drawn
from castsim.serving.server import Server, serve

DEPTH, NODES = 3, 6


@dataclass(frozen=True)
class Fixed:
    """Every round takes as long, whatever it holds; prompts are free."""

    ms: float

    def at(self, context):
        return self

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


def asked(made, which) -> Requests:
    """Requests that are these outputs."""
    which = np.asarray(which)
    return Requests(made, which, made.prompt_tokens[which], len(made.start))


def of(made, count, seed):
    """Requests that are drawn from all outputs."""
    return asked(made, drawn(made.tokens - 1, count, seed))


def test_two_requests_by_hand():
    """The second comes during the first one's first round, and waits for it to end."""
    cost = Surface(base_ms=8, share=0.25, draft_fixed_ms=1, draft_slope_ms=1)
    made = outputs([3, 3], prompt_tokens=4)
    served = serve(asked(made, [0, 1]), np.array([0.0, 20.0]), Uniform(1), cost, Server(2))
    prefill = 8 * (1 + 0.25 * 4)
    alone, both = 2 + 8 * (1 + 0.25 * 2), 3 + 8 * (1 + 0.25 * 4)
    first = [prefill, prefill + alone + prefill]
    assert served.first_ms.tolist() == first
    assert served.finish_ms.tolist() == [first[1] + both, first[1] + both + alone]
    assert served.rounds.tolist() == [2, 2]
    assert served.passes.requests.tolist() == [1, 2, 1] and served.passes.new.tolist() == [1, 1, 0]
    assert (served.passes.nodes.tolist(), served.passes.packed.tolist()) == ([1, 2, 1], [2, 4, 2])
    assert served.passes.kv_tokens.tolist() == [4 + 2, 5 + 4 + 4, 5 + 2]  # cached, the roots and the nodes
    assert busy_ms(served) == served.finish_ms[1]


def busy_ms(served):
    return (served.passes.ended_ms - served.passes.began_ms).sum()


def test_an_idle_server_waits_for_the_next_request():
    served = serve(asked(outputs([2, 2]), [0, 1]), np.array([5.0, 100.0]), Chain(), Fixed(10), Server(1))
    assert served.finish_ms.tolist() == [15, 110]
    assert busy_ms(served) == 20


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(2, 12), min_size=1, max_size=12),
    batch=st.integers(1, 5),
    room=st.integers(24, 60) | st.none(),
    seed=st.integers(0, 99),
)
def test_every_token_is_served_once_and_nobody_is_overtaken(lengths, batch, room, seed):
    made = outputs(lengths, seed)
    requests = of(made, 2 * len(lengths), seed)
    which = requests.which
    arrival = arrivals("bursty", 20, len(which), np.random.default_rng(seed))
    served = serve(requests, arrival, Shared(2), Surface(10, 0.01, 1, 0.1), Server(batch, room))
    assert (served.tokens == made.tokens[which]).all()
    assert (arrival <= served.first_ms).all() and (served.first_ms < served.finish_ms).all()
    assert (np.diff(served.first_ms) >= 0).all()
    there = (served.first_ms <= served.first_ms[:, None]) & (served.first_ms[:, None] < served.finish_ms)
    assert there.sum(axis=1).max() <= batch
    if room is not None:
        assert (there * (10 + made.tokens[which] + 2)).sum(axis=1).max() <= room
        assert served.passes.kv_tokens.max() <= room
    span = served.finish_ms.max() - arrival[0]
    assert busy_ms(served) <= span + 1e-6


@settings(max_examples=30, deadline=None)
@given(batch=st.integers(1, 6), seed=st.integers(0, 99))
def test_tokens_of_a_request_do_not_depend_on_its_neighbours(batch, seed):
    made = outputs([9, 5, 12, 7, 6, 8], seed)
    requests, arrival = of(made, 12, seed), np.zeros(12)
    alone = serve(requests, arrival, Uniform(3), Fixed(1), Server(1))
    beside = serve(requests, arrival, Uniform(3), Fixed(1), Server(batch))
    assert (alone.rounds == beside.rounds).all()


def test_a_single_server_of_constant_rounds_waits_as_in_md1_theory():
    """Mean wait rho s / 2 (1 - rho), Pollaczek and Khinchine, of one-round requests one at a time."""
    service, load, count = 10.0, 0.7, 40_000
    made = outputs([2])
    arrival = arrivals("poisson", 1000 * load / service, count, np.random.default_rng(5))
    served = serve(asked(made, np.zeros(count, np.int64)), arrival, Chain(), Fixed(service), Server(1))
    wait = (served.finish_ms - arrival).mean() - service
    assert wait == pytest.approx(load * service / (2 * (1 - load)), rel=0.06)
    assert busy_ms(served) == pytest.approx(service * count)


def test_littles_law_holds_within_noise():
    """Requests in the system, counted at random moments, against arrival rate times mean time there."""
    rate_per_s, count = 30.0, 4000
    made = outputs([5, 9, 17, 12], seed=3)
    rng = np.random.default_rng(8)
    arrival = arrivals("poisson", rate_per_s, count, rng)
    served = serve(of(made, count, 0), arrival, Shared(2), Surface(10, 0.002, 1, 0.1), Server(8))
    moments = rng.uniform(arrival[count // 10], arrival[-count // 10], 4000)
    inside = ((arrival <= moments[:, None]) & (moments[:, None] < served.finish_ms)).sum(axis=1).mean()
    assert inside == pytest.approx(rate_per_s / 1000 * (served.finish_ms - arrival).mean(), rel=0.08)
    assert measures(served, 20)["requests_in_system"] == pytest.approx(inside, rel=0.08)


def test_measures_by_hand():
    served = serve(asked(outputs([3, 3]), [0, 1]), np.array([0.0, 0.0]), Chain(), Fixed(10), Server(2))
    found = measures(served, within_ms=9)
    assert found["goodput_tok_per_s"] == 1000 * 6 / 20
    assert found["round_length"] == 1 and found["requests_in_pass"] == 2 and found["nodes_a_request"] == DEPTH
    assert found["output_token_ms"] == {"p50": 10, "p95": 10, "p99": 10}
    assert found["first_token_ms"]["p99"] == 0 and found["within_share"] == 0 and found["busy_share"] == 1


def test_outputs_are_all_drawn_before_one_comes_again():
    rounds = np.ones(7, np.int64)
    which = drawn(rounds, 17, seed=1)
    assert sorted(which[:7]) == sorted(which[7:14]) == list(range(7))
    assert (drawn(rounds, 9, seed=1) == which[:9]).all()


def test_a_request_that_never_fits_is_refused():
    with pytest.raises(OptionError, match="--kv-tokens 12"):
        serve(asked(outputs([5]), [0]), np.zeros(1), Chain(), Fixed(1), Server(1, kv_tokens=12))


def test_the_nodes_of_a_round_need_room_too():
    """Prompt 10 and output 5 fit into 15, but a round of the chain holds three more."""
    made = outputs([5])
    with pytest.raises(OptionError, match="needs 18"):
        serve(asked(made, [0]), np.zeros(1), Chain(), Fixed(1), Server(1, kv_tokens=17))
    assert serve(asked(made, [0]), np.zeros(1), Chain(), Fixed(1), Server(1, kv_tokens=18)).tokens.tolist() == [5]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 99), batch=st.integers(1, 6))
def test_no_controller_plans_more_than_it_reserved(seed, batch):
    made = outputs([9, 5, 12, 7, 6, 8], seed)
    for kind in load_controllers().values():
        controller = kind()
        served = serve(of(made, 12, seed), np.zeros(12), controller, Surface(10, 0.01, 1, 0.1), Server(batch))
        assert (served.passes.nodes <= controller.reserved(DEPTH) * served.passes.requests).all(), controller


def test_the_steady_part_leaves_ramp_and_drain_out():
    """Two at a time, four requests of two rounds each: the last two end alone."""
    served = serve(asked(outputs([3, 3, 3, 5]), [0, 1, 2, 3]), np.zeros(4), Chain(), Fixed(10), Server(2))
    assert served.finish_ms.tolist() == [20, 20, 40, 60]
    assert steady(served) is None  # nobody is admitted behind the first end
    served = serve(asked(outputs([2, 4, 3, 3, 5]), [0, 1, 2, 3, 4]), np.zeros(5), Chain(), Fixed(10), Server(2))
    assert steady(served) == (10.0, 30.0)
    found, whole = measures(served, 20, steady(served)), measures(served, 20)
    assert found["requests_in_pass"] == 2 and whole["requests_in_pass"] < 2
    assert found["goodput_tok_per_s"] == 1000 * (2 * 2 + 1) / 20  # two passes, and a prefill within them
    assert (found["window_ms"], whole["window_ms"]) == ([10, 30], [0, 70])


@dataclass(frozen=True)
class ByContext(Fixed):
    """A pass takes as many ms as its requests have cached tokens, on average."""

    def at(self, context):
        return Fixed(float(np.mean(context)))


def test_each_pass_is_priced_at_its_requests_own_contexts():
    served = serve(asked(outputs([3, 3], prompt_tokens=100), [0, 1]), np.zeros(2), Chain(), ByContext(0), Server(2))
    assert served.finish_ms.tolist() == [201, 201]  # passes at 100 and 101 cached tokens
    longer = replace(asked(outputs([3, 3]), [0, 1]), prompt_tokens=np.array([100, 4000]))
    assert serve(longer, np.zeros(2), Chain(), ByContext(0), Server(2)).finish_ms[0] == 2050 + 2051
