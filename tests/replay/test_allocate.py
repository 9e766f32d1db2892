"""Shared budgets: Proposition 2 against brute force, the hindsight bound against every split, and scenario 28."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.allocate import accepted_at, confident_widths, hindsight_total, shared_widths, uniform_widths


def splits(requests, nodes, total):
    """Every way to give at most `total` nodes to requests of at most `nodes` each."""
    return [s for s in itertools.product(range(nodes + 1), repeat=requests) if sum(s) <= total]


forests = st.integers(1, 4).flatmap(
    lambda nodes: st.lists(
        st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]), min_size=nodes, max_size=nodes),
        min_size=1,
        max_size=3,
    ).map(lambda rows: -np.sort(-np.array(rows), axis=1)[None])
)
totals = st.integers(0, 9)


@given(forests, totals)
def test_proposition_2_global_best_first_is_the_best_split(mass, total):
    widths = shared_widths(mass, total)[0]
    best = max(sum(row[:n].sum() for row, n in zip(mass[0], s, strict=True)) for s in splits(*mass.shape[1:], total))
    assert sum(row[:n].sum() for row, n in zip(mass[0], widths, strict=True)) == pytest.approx(best)
    assert widths.sum() <= total


@given(forests, totals, st.randoms(use_true_random=False))
def test_the_order_of_requests_changes_no_expected_total(mass, total, random):
    order = list(range(mass.shape[1]))
    random.shuffle(order)
    for rule in (shared_widths, uniform_widths):
        sums = [
            sum(row[:n].sum() for row, n in zip(m[0], rule(m, total)[0], strict=True)) for m in (mass, mass[:, order])
        ]
        assert sums[0] == pytest.approx(sums[1])


entries = st.lists(st.lists(st.integers(1, 4), min_size=3, max_size=3).map(np.cumsum), min_size=1, max_size=3).map(
    lambda rows: np.array(rows)[None]
)


@given(entries, totals)
def test_the_hindsight_bound_is_the_best_of_every_split(entry, total):
    every = [accepted_at(entry, np.array([s])).sum() for s in splits(entry.shape[1], total, total)]
    assert hindsight_total(entry, total)[0] == max(every)


@given(entries, totals, st.integers(0, 100))
def test_no_allocation_beats_hindsight(entry, total, seed):
    mass = -np.sort(-np.random.default_rng(seed).random((1, entry.shape[1], 6)), axis=2)
    for rule in (shared_widths, uniform_widths):
        widths = rule(mass, total)
        assert accepted_at(entry, widths).sum() <= hindsight_total(entry, total)[0]


@given(entries)
def test_many_batches_are_each_their_own(entry):
    both = np.concatenate([entry, entry + 1])
    assert hindsight_total(both, 7).tolist() == [hindsight_total(e[None], 7)[0] for e in both]


A, B = [0.9, 0.8, 0.7, 0.1], [0.5, 0.4, 0.3, 0.0]


@pytest.mark.parametrize(("total", "widths"), [(3, [3, 0]), (4, [3, 1]), (5, [3, 2]), (0, [0, 0]), (99, [4, 3])])
def test_scenario_28_the_shared_budget_by_hand(total, widths):
    assert shared_widths([[A, B]], total).tolist() == [widths]


def test_scenario_28_the_even_split_spends_all_of_the_budget():
    assert uniform_widths([[A, B]], 5).tolist() == [[3, 2]]
    assert uniform_widths([[B, A]], 5).tolist() == [[2, 3]]  # whoever comes first


def test_scenario_28_a_finished_request_gets_nothing_and_twins_share_alike():
    assert shared_widths([[[0.0] * 4, B]], 3).tolist() == [[0, 3]]
    assert uniform_widths([[[0.0] * 4, B]], 2).tolist() == [[0, 1]]
    assert sorted(shared_widths([[A, A]], 3)[0].tolist()) == [1, 2]


def test_chains_are_cut_at_one_confidence():
    """.9 .5 .8 and .7 .6 .1: with three tokens the threshold is .6, so .8 behind .5 stays out."""
    chains = [[[0.9, 0.5, 0.8], [0.7, 0.6, 0.1]]]
    assert confident_widths(chains, 3).tolist() == [[1, 2]]
    assert confident_widths(chains, 5).tolist() == [[3, 2]]


@pytest.mark.parametrize(
    ("mass", "total", "said"),
    [
        ([[[0.1, 0.5]]], 1, "falling rows"),
        ([[[1.5]]], 1, "falling rows"),
        ([[0.5]], 1, "falling rows"),
        ([[[0.5]]], -1, "negative"),
    ],
)
def test_bad_masses_and_budgets_are_refused(mass, total, said):
    with pytest.raises(ValueError, match=said):
        shared_widths(mass, total)


def test_accepted_tokens_at_widths():
    entry = np.array([[[1, 3, 9], [2, 4, 5]]])
    assert accepted_at(entry, [[3, 1]]).tolist() == [[2, 0]]
