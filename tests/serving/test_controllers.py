"""Controllers: what each spends, and that the batched rule finds the best total."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from castsim.costs.batch import Measured, Surface
from castsim.serving.controllers import Plan, View, load_controllers
from castsim.serving.controllers.batched import Batched
from castsim.serving.controllers.dense import Dense
from castsim.serving.controllers.shared import Shared
from replay.latency import LatencyCurve

COST = Surface(10, 0.01, 1, 0.1)


def view(requests=4, nodes=30, seed=0, cost=COST) -> View:
    rng = np.random.default_rng(seed)
    mass = np.sort(rng.random((requests, nodes)), axis=1)[:, ::-1]
    probability = rng.random((requests, 15))
    return View(mass, np.cumprod(probability, axis=1), probability, cost)


def test_each_file_is_a_controller_that_plans():
    known = load_controllers()
    assert list(known) == ["batched", "chain", "confident", "dense", "shared", "uniform", "wide"]
    for name, kind in known.items():
        plan = kind()(view())
        assert plan.widths.shape == (4,) and (plan.widths >= 0).all(), name
        assert plan.packed >= plan.widths.sum() + 4


@pytest.mark.parametrize("name", ["confident", "dense", "shared"])
def test_shared_budgets_are_spent_and_not_more(name):
    assert load_controllers()[name]()(view()).widths.sum() == 4 * load_controllers()[name].per_request


def test_padding_packs_the_widest_for_all():
    assert Plan(np.array([1, 5]), ragged=False).packed == 12
    assert Plan(np.array([1, 5])).packed == 8
    assert (Dense()(view()).widths == Shared()(view()).widths).all()


@settings(max_examples=60, deadline=None)
@given(requests=st.integers(1, 4), seed=st.integers(0, 999), share=st.floats(1e-4, 0.5))
def test_batched_is_the_best_of_all_totals_where_its_grid_holds_them(requests, seed, share):
    """Proposition 3 by trying every total: no split and no total has more tokens a ms."""
    seen = view(requests, 8, seed, Surface(10, share, 1, 0.1))
    falling = np.sort(seen.mass, axis=None)[::-1]
    gained = np.concatenate([[0.0], np.cumsum(falling)])
    time = [seen.cost.draft_ms(requests) + seen.cost.target_ms(requests, requests + m) for m in range(len(gained))]
    best = ((requests + gained) / time).max()
    total = int(Batched(steps=2000, most=8)(seen).widths.sum())
    assert (requests + gained[total]) / time[total] == pytest.approx(best)


def test_between_two_looks_at_the_cost_requests_keep_their_mean():
    seen = view(4, 30, 1)
    first = Batched(every=3)(seen)
    dear = View(seen.mass, seen.spine, seen.probability, Surface(10, 1.0, 1, 0.1), passes=1, last=first)
    assert Batched(every=3)(dear).widths.sum() == first.widths.sum()
    fewer = View(seen.mass[:2], seen.spine[:2], seen.probability[:2], COST, passes=2, last=first)
    assert Batched(every=3)(fewer).widths.sum() == round(first.widths.mean() * 2)
    assert Batched(every=1)(dear).widths.sum() < first.widths.sum()


def test_batched_spends_what_the_cost_reaches_and_no_more():
    """A measured cost of 10 packed tokens a request, on which every node pays."""
    curve = LatencyCurve([1, 10], [[[10, 10.001], [10, 10.001]]], batch=[1, 4], draft_ms=[[1, 1]])
    for requests in (1, 2, 4):
        assert Batched()(view(requests, cost=Measured(curve, np.ones(1)))).packed == 10 * requests
