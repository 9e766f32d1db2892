"""One round's tree: the compiled helper is the policy, node for node, and its mask is the path of each row."""

import numpy as np
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")
pytest.importorskip("numba")

from castsim.scoring import tree as room
from castsim.scoring.tree import Tree, build, lone, ranks_used, tree_of
from replay import Marginals, load_policies
from replay.policies.perround import PerRound
from replay.policies.topn import TopN

POLICIES = load_policies()
ROUND = strategies.marginals(max_rounds=1, max_depth=5, max_rank=5)


def assert_same(one, other):
    for name in ("token", "parent", "depth"):
        assert getattr(one, name).tolist() == getattr(other, name).tolist()
        assert getattr(one, name).dtype == getattr(other, name).dtype
    assert np.allclose(one.proposal, other.proposal, rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", POLICIES)
@given(ROUND, st.sampled_from([1, 7, 63]))
def test_the_tree_of_a_round_is_the_policys(name, marginals, budget):
    policy = POLICIES[name](budget)
    assert_same(build(policy, marginals, 9), tree_of(policy(marginals), marginals, 9))


@given(ROUND, st.sampled_from([1, 7, 63]))
def test_without_the_compiled_helper_nothing_changes(marginals, budget):
    quick = build(TopN(budget), marginals, 9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "compiled", lambda: None)
        slow = build(TopN(budget), marginals, 9)
        sight = slow.sight
    assert_same(quick, slow)
    assert np.array_equal(quick.sight, sight)


def test_paths_that_no_integer_could_number():
    """16 ranks at 20 positions, all equal: ties go by length, then by ranks, without a number for each path."""
    token = np.tile(np.arange(16), (1, 20, 1))
    marginals = Marginals(token, np.full(token.shape, -np.log(16.0)))
    assert_same(build(TopN(300, rank_cap=16), marginals, 1), tree_of(TopN(300, rank_cap=16)(marginals), marginals, 1))


def test_sight_by_hand():
    """Scenario 8's tree: b, its children a and a', and a child of each."""
    tree = Tree(np.arange(5), np.array([-1, 0, 0, 1, 2], np.int32), np.array([0, 1, 1, 2, 2]), np.ones(5))
    rows = [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [1, 0, 1, 0, 0], [1, 1, 0, 1, 0], [1, 0, 1, 0, 1]]
    assert np.array_equal(tree.sight == 0, np.array(rows, bool)) and (tree.sight[tree.sight != 0] == -np.inf).all()
    assert tree.children(0).tolist() == [1, 2] and tree.child(2, 4) == 4 and tree.child(1, 4) is None


@given(ROUND, st.integers(0, 6))
def test_a_tree_cut_at_a_depth_is_a_tree(marginals, depth):
    whole = build(TopN(40), marginals, 9)
    cut = whole.down_to(depth)
    assert cut.token.tolist() == whole.token[whole.depth <= depth].tolist()
    assert cut.parent[0] == -1 and all(0 <= cut.parent[row] < row for row in range(1, len(cut)))
    assert all(cut.depth[row] == cut.depth[cut.parent[row]] + 1 for row in range(1, len(cut)))


def test_a_lone_root_sees_itself():
    assert lone(7).sight.tolist() == [[0.0]] and lone(7).down_to(0) is not None


def test_a_policy_says_how_many_ranks_it_looks_at():
    assert ranks_used(POLICIES["chain"](15), 16) == 1
    assert ranks_used(TopN(63, rank_cap=4), 16) == 4 and ranks_used(TopN(63, rank_cap=99), 16) == 16
    assert ranks_used(POLICIES["full"](63), 16) == 16 and ranks_used(POLICIES["jetspec"](63), 16) == 16


def paths(tree):
    """Tokens from the root to each row; a parent that is another node of the same depth would show."""
    found = [(int(tree.token[0]),)]
    for row in range(1, len(tree)):
        found.append((*found[tree.parent[row]], int(tree.token[row])))
    return found


@given(ROUND, st.integers(0, 6))
def test_a_cut_keeps_the_path_of_every_node_it_keeps(marginals, depth):
    whole = build(TopN(40), marginals, 9)
    cut = whole.down_to(depth)
    assert paths(cut) == [path for path in paths(whole) if len(path) <= depth + 1]
    assert cut.proposal.tolist() == whole.proposal[whole.depth <= depth].tolist()


@st.composite
def parents(draw):
    """Parents of any tree, the root's -1 first."""
    return [-1, *(draw(st.integers(0, row - 1)) for row in range(1, draw(st.integers(1, 30))))]


@given(parents())
def test_the_mask_of_any_tree_is_the_same_without_the_compiled_helper(parent):
    """Trees of no policy: best-first order is one order among many."""
    rows = np.zeros(len(parent))
    tree = Tree(rows.astype(int), np.array(parent, np.int32), rows.astype(np.int32), rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "compiled", lambda: None)
        slow = tree.sight
    assert np.array_equal(tree.sight, slow) and tree.sight.dtype == slow.dtype == np.float32


def flat(depth, rank):
    token = np.tile(10 + np.arange(rank), (1, depth, 1))
    return Marginals(token, np.full(token.shape, -np.log(rank)))


@pytest.mark.parametrize("depth, rank, nodes", [(1, 1, 1), (1, 3, 3), (4, 1, 4), (2, 2, 6)])
def test_a_budget_beyond_the_universe_gives_all_there_is_and_once(depth, rank, nodes):
    """Scenario 17: no padding, so that a cost model sees the real width."""
    tree = build(TopN(63), flat(depth, rank), 9)
    assert len(tree) == 1 + nodes == len(set(paths(tree)))


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("depth, rank", [(1, 1), (1, 3), (4, 1), (2, 2)])
def test_every_policy_fits_a_universe_smaller_than_its_budget(name, depth, rank):
    policy, marginals = POLICIES[name](63), flat(depth, rank)
    tree = build(policy, marginals, 9)
    assert_same(tree, tree_of(policy(marginals), marginals, 9))
    assert len(set(paths(tree))) == len(tree)


def test_one_rank_makes_the_chain():
    marginals = flat(4, 1)
    assert_same(build(TopN(63), marginals, 9), build(POLICIES["chain"](63), marginals, 9))


@given(ROUND, st.lists(st.floats(0.5, 20), min_size=41, max_size=41), st.sampled_from([0.0, 0.2]))
def test_a_tree_that_weighs_its_own_nodes_is_cut_alike_by_both_builders(marginals, times, rate):
    policy = PerRound(40, rate=rate).priced(np.array(times), np.empty(0))
    assert_same(build(policy, marginals, 9), tree_of(policy(marginals), marginals, 9))
