"""One contract for every policy in the folder; a new file is tested by being there."""

import dataclasses

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import marginals, rounds

from replay import Marginals, Rounds, best_first, forest_entry_budgets, load_policies, policy_entry_budgets
from replay.policies.costaware import CostAware
from replay.policies.perround import PerRound
from replay.policies.sequoia import Sequoia
from replay.width import round_budgets

EACH = pytest.mark.parametrize("kind", load_policies().values(), ids=load_policies())
LADDER = Marginals(  # L = 3, K = 2, all masses apart
    np.array([[[1, 2], [3, 4], [5, 6]]]), np.log([[[0.5, 0.25], [0.8, 0.1], [0.9, 0.05]]])
)


def tokens(forest, row=0):
    """A tree's nodes as token paths, in entry order."""
    path = {0: ()}
    for n in range(1, int(forest.width[row]) + 1):
        path[n] = (*path[int(forest.parent[row, n])], int(forest.token[row, n]))
    return [path[n] for n in range(1, len(path))]


def test_the_issue_names_are_all_there():
    wanted = {"topN", "chain", "schedule", "binary", "spine", "jetspec", "eagle2", "sequoia", "full"}
    wanted |= {"costaware", "perround"}
    assert wanted <= set(load_policies())
    assert all(kind.name == name for name, kind in load_policies().items())


@EACH
def test_a_policy_is_a_frozen_dataclass_with_defaults_and_a_docstring(kind):
    policy = kind()
    assert dataclasses.is_dataclass(kind)
    assert dataclasses.fields(kind)[0].name == "budget"
    with pytest.raises(dataclasses.FrozenInstanceError):
        policy.budget = 1
    assert "Source:" in kind.__doc__


@EACH
@pytest.mark.parametrize("budget", [0, -1])
def test_a_budget_below_one_is_refused(kind, budget):
    with pytest.raises(ValueError, match="budget must be at least 1"):
        kind(budget=budget)


@EACH
@given(found=marginals(max_depth=5), budget=st.integers(1, 40))
def test_trees_are_prefix_closed_and_within_the_budget(kind, found, budget):
    forest = kind(budget=budget)(found).check()
    assert len(forest) == len(found)
    assert (forest.width >= 1).all()
    assert (forest.width <= budget).all()
    for row in range(len(found)):
        assert len(set(tokens(forest, row))) == forest.width[row]


@EACH
@given(found=marginals(max_depth=5), small=st.integers(1, 20), large=st.integers(1, 20))
def test_a_nested_policy_has_heads_as_its_smaller_trees(kind, found, small, large):
    small, large = sorted((small, large))
    if kind.nested:
        big, little = kind(budget=large)(found), kind(budget=small)(found)
        for row in range(len(found)):
            assert tokens(big, row)[:small] == tokens(little, row)


@EACH
@given(found=rounds(max_depth=5), budget=st.integers(1, 40))
def test_entry_budgets_are_those_of_the_forest(kind, found, budget):
    """The fast path of best-first policies cannot differ from walking their trees."""
    policy = kind(budget=budget)
    entry, width = policy_entry_budgets(policy, found)
    forest = policy(found.marginals)
    walked = forest_entry_budgets(forest, found.continuation, found.known, found.marginals.depth_max)
    np.testing.assert_array_equal(entry, np.where(walked > forest.budget, budget + 1, walked))
    np.testing.assert_array_equal(width, forest.width)


def test_a_shorter_chain_reaches_no_deeper_prefix():
    rounds = Rounds(LADDER, [[1, 3, 5]], np.array([3]), np.zeros(1, int), np.zeros(1, int))
    assert policy_entry_budgets(load_policies()["chain"](budget=9, length=2), rounds)[0].tolist() == [[1, 2, 10]]


@EACH
def test_many_chunks_are_one_batch(kind, monkeypatch, sample_rounds):
    part = sample_rounds.take(slice(0, 60))
    whole = policy_entry_budgets(kind(budget=20), part)
    monkeypatch.setattr("replay.policies._NODES_AT_ONCE", 140)
    for ours, theirs in zip(policy_entry_budgets(kind(budget=20), part), whole, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_full_uses_every_logged_rank(sample_rounds):
    part = sample_rounds.take(slice(0, 200))
    full, _ = policy_entry_budgets(load_policies()["full"](budget=127), part)
    wide, _ = policy_entry_budgets(load_policies()["topN"](budget=127, rank_cap=16), part)
    np.testing.assert_array_equal(full, wide)
    assert (full != policy_entry_budgets(load_policies()["topN"](budget=127), part)[0]).any()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("topN", {"rank_cap": 8}),
        ("spine", {"rank_cap": 8}),
        ("jetspec", {"branching": 8}),
        ("eagle2", {"frontier": 8}),
        ("schedule", {"branching": (8, 4, 2, 2, 1)}),
        ("chain", {"length": 0}),
    ],
)
def test_defaults_are_the_papers(name, options):
    assert {f.name: f.default for f in dataclasses.fields(load_policies()[name])[1:]} == options


@EACH
def test_a_single_candidate_leaves_the_chain(kind):
    """Scenario 17: K = 1."""
    found = Marginals(np.arange(4).reshape(1, 4, 1), np.full((1, 4, 1), -0.5))
    assert tokens(kind(budget=3)(found)) == [(0,), (0, 1), (0, 1, 2)]


@EACH
@given(found=marginals(max_depth=5), budget=st.integers(1, 20))
def test_a_round_does_not_depend_on_its_batch(kind, found, budget):
    policy = kind(budget=budget)
    whole = policy(found)
    for row in range(len(found)):
        assert tokens(policy(found.take(slice(row, row + 1)))) == tokens(whole, row)


@EACH
def test_an_empty_batch(kind):
    none = LADDER.take(slice(0, 0))
    rounds = Rounds(none, np.empty((0, 3), int), np.empty(0, int), np.empty(0, int), np.empty(0, int))
    assert policy_entry_budgets(kind(), rounds)[0].shape == (0, 3)


# The hand cases: LADDER in best-first order is 1, 13, 135, 2, 23, 235, 14, 146 ...


@pytest.mark.parametrize(
    ("name", "options", "strings"),
    [
        ("topN", {"budget": 4}, [(1,), (1, 3), (1, 3, 5), (2,)]),
        ("full", {"budget": 4}, [(1,), (1, 3), (1, 3, 5), (2,)]),
        ("topN", {"budget": 4, "rank_cap": 1}, [(1,), (1, 3), (1, 3, 5)]),
        ("chain", {"budget": 9}, [(1,), (1, 3), (1, 3, 5)]),
        ("chain", {"budget": 9, "length": 2}, [(1,), (1, 3)]),
        ("binary", {"budget": 4}, [(1,), (2,), (1, 3), (1, 4)]),
        ("schedule", {"budget": 9, "branching": (2, 1)}, [(1,), (2,), (1, 3), (2, 3), (1, 3, 5), (2, 3, 5)]),
        ("jetspec", {"budget": 5, "branching": 2}, [(1,), (2,), (1, 3), (1, 4), (1, 3, 5)]),
        ("eagle2", {"budget": 4, "frontier": 1}, [(1,), (1, 3), (1, 3, 5)]),
        # depth 2 has 13 (.4), 23 (.2), 14 (.05), 24 (.025); the frontier of 2 never expands 14, whose child topN takes
        ("eagle2", {"budget": 8, "frontier": 2}, [(1,), (1, 3), (1, 3, 5), (2,), (2, 3), (2, 3, 5), (1, 4), (2, 4)]),
        ("topN", {"budget": 8}, [(1,), (1, 3), (1, 3, 5), (2,), (2, 3), (2, 3, 5), (1, 4), (1, 4, 5)]),
        ("spine", {"budget": 4}, [(1,), (1, 3), (1, 3, 5), (2,)]),
    ],
)
def test_hand_trees(name, options, strings):
    assert tokens(load_policies()[name](**options)(LADDER)) == strings


def test_schedule_at_the_papers_budget_is_8_32_7():
    """Appendix G at N = 47; the cut is in level order, so R <= 4, in keeping with the printed 3.7 / 3.0 / 3.7."""
    found = Marginals(np.broadcast_to(np.arange(8), (1, 15, 8)), np.full((1, 15, 8), np.log(0.1)))
    depth = load_policies()["schedule"](budget=47)(found).depth[0]
    assert np.bincount(depth).tolist() == [1, 8, 32, 7]


@given(marginals(max_depth=5), st.integers(1, 20))
def test_eagle2_with_a_frontier_as_wide_as_the_tree_is_topn(found, budget):
    """A prefix among the N best is among the N best of its depth, so such a frontier loses nothing, ties included."""
    wide = load_policies()["eagle2"](budget=budget, frontier=1 + budget * found.rank_kept)(found)
    best = best_first(found, budget)
    for row in range(len(found)):
        assert tokens(wide, row) == tokens(best, row)


@pytest.mark.parametrize(
    ("name", "option", "slow"),
    [("jetspec", "branching", oracle.pop_and_append), ("eagle2", "frontier", oracle.expand_and_rerank)],
)
@given(found=marginals(max_depth=5), width=st.integers(1, 5), budget=st.integers(1, 40))
def test_expanding_policies_equal_their_plain_versions(name, option, slow, found, width, budget):
    forest = load_policies()[name](budget=budget, **{option: width})(found)
    for row in range(len(found)):
        ids = found.token[row]
        expected = [tuple(int(ids[d, r]) for d, r in enumerate(p)) for p in slow(found.logq[row], width, budget)]
        assert tokens(forest, row) == expected


@given(rounds(max_depth=5), st.integers(1, 30))
def test_spine_never_accepts_less_than_the_chain_once_it_holds_it(found, extra):
    depth = found.marginals.depth_max
    spine, _ = policy_entry_budgets(load_policies()["spine"](budget=depth + extra), found)
    chain, _ = policy_entry_budgets(load_policies()["chain"](budget=depth), found)
    assert ((spine <= depth + extra).sum(axis=1) >= (chain <= depth).sum(axis=1)).all()


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_sequoia_is_worth_what_its_dynamic_programme_finds(depth, rank, budget, seed):
    """Best-first selection on the table equals the optimum over sizes and child ranks."""
    rng = np.random.default_rng(seed)
    table = -np.sort(-rng.dirichlet(np.full(rank + 1, 0.7), depth)[:, :rank], axis=1)
    ids = Marginals(np.broadcast_to(np.arange(rank), (1, depth, rank)), np.log(np.maximum(table, 1e-12))[None])
    tree = Sequoia(budget=budget).measured(table)(ids)
    value = sum(np.prod([table[d, r] for d, r in enumerate(path)]) for path in tokens(tree))
    assert value == pytest.approx(oracle.sequoia_value(table, budget), abs=1e-9)


def test_sequoia_follows_the_table_not_the_scores():
    rates = np.array([[0.1, 0.9], [0.0, 1.0], [1.0, 0.0]])  # rank 2 is right at first
    assert tokens(Sequoia(budget=3).measured(rates)(LADDER)) == [(2,), (2, 4), (2, 4, 5)]
    with pytest.raises(ValueError, match=r"shape \(3, 2\)"):
        Sequoia(table=((0.5,),))(LADDER)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("topN", {"rank_cap": 0}),
        ("schedule", {"branching": ()}),
        ("schedule", {"branching": (2, 0)}),
        ("chain", {"length": -1}),
        ("eagle2", {"frontier": 0}),
        ("jetspec", {"branching": -2}),
        ("topN", {"rank_cap": 2**16 + 1}),
    ],
)
def test_bad_options_are_named(name, options):
    with pytest.raises(ValueError, match=next(iter(options))):
        load_policies()[name](**options)


@given(
    found=rounds(max_depth=4),
    times=st.lists(st.floats(0.5, 20), min_size=21, max_size=21),
    rate=st.sampled_from([0, 0.3]),
)
def test_a_priced_round_is_cut_where_its_own_masses_say(found, times, rate):
    """And its tree is the head of the best-first tree."""
    times = np.array(times)
    policy = PerRound(budget=20, rate=rate).priced(times, np.empty(0))
    whole, cut = best_first(found.marginals.head(rank_cap=8), 20), policy(found.marginals).check()
    mass = np.exp(whole.score[:, 1:])
    wanted = np.minimum(round_budgets(mass, times, rate or None), whole.width)
    assert cut.width.tolist() == wanted.tolist()
    for row, width in enumerate(wanted):
        assert tokens(cut, row) == tokens(whole, row)[:width]
    entry, width = policy_entry_budgets(policy, found)
    assert width.tolist() == wanted.tolist()
    assert ((entry <= width[:, None]) | (entry == 21)).all()


def test_a_priced_deployment_has_the_width_of_its_rule():
    mass, times = np.array([0.5, 0.3, 0.01]), np.array([10.0, 11, 12, 13])
    assert CostAware(budget=3).priced(times, mass).budget == 2
    assert CostAware(budget=1).priced(times, mass).budget == 1
    assert tokens(CostAware(budget=3)(LADDER)) == tokens(best_first(LADDER, 3))  # unpriced: every node is free


@pytest.mark.parametrize("rate", [-1, float("nan"), float("inf")])
def test_a_rate_that_is_no_throughput_is_refused(rate):
    with pytest.raises(ValueError, match="rate must be 0 or"):
        PerRound(rate=rate)
