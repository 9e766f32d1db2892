"""The best-first kernel against the paper: Lemma 2, Theorem 1, Corollary 1, Proposition 1, and the heap as printed."""

import itertools

import numpy as np
import oracle
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies import marginals

from replay import Marginals, accepted, best_first, entry_budgets
from replay.topn import best_first_nodes, sorted_masses


def paths(found, row, budget):
    """A round's nodes as tuples of ranks, in entry order."""
    nodes = [()]
    for parent, depth, rank in zip(*(a[row] for a in best_first_nodes(found, budget)), strict=True):
        if depth:
            nodes.append((*nodes[parent], int(rank)))
    return nodes[1:]


def masses_of(law, nodes):
    """Prefix masses rho(v) of a law over full-length strings."""
    return {v: sum(p for y, p in law.items() if y[: len(v)] == v) for v in nodes}


@st.composite
def laws(draw, depth=3, rank=2):
    """A law over all strings of length `depth`: any dependence between positions, round weights so that masses tie."""
    strings = list(itertools.product(range(rank), repeat=depth))
    weight = draw(st.lists(st.integers(0, 4), min_size=len(strings), max_size=len(strings)).filter(any))
    return {y: w / sum(weight) for y, w in zip(strings, weight, strict=True)}


def top(mass, size):
    """The `size` strings of largest mass, ties to the shorter, then to the lexicographically earlier."""
    return set(sorted(mass, key=lambda v: (-mass[v], len(v), v))[:size])


@given(laws(), st.integers(1, 6))
def test_lemma_2_node_sum_decomposition(law, size):
    """E[A(S)] = sum of the masses in S, for every prefix-closed S of the universe (equation by enumeration)."""
    nodes = oracle.universe(3, 2)
    mass = masses_of(law, nodes)
    for tree in itertools.islice(oracle.prefix_closed_sets(nodes, size), 40):
        expected = sum(p * oracle.accepted(tree, y) for y, p in law.items())
        assert expected == pytest.approx(sum(mass[v] for v in tree), abs=1e-12)


@given(marginals(max_rounds=1, max_depth=3, max_rank=2), st.integers(1, 14))
def test_lemma_2_in_the_kernel(found, budget):
    """Under the drafter's own law, E[A] by enumeration of continuations is the sum of the tree's masses."""
    misses = 9_999  # a token that is no candidate
    depth, expected = found.depth_max, 0.0
    for ranks in itertools.product(range(found.rank_kept + 1), repeat=depth):
        mass = np.exp(np.pad(found.logq[0], ((0, 0), (0, 1)), constant_values=-np.inf))  # (L, K+1)
        mass[:, -1] = np.maximum(1 - mass.sum(axis=1), 0)
        token = np.pad(found.token[0], ((0, 0), (0, 1)), constant_values=misses)
        truth = [token[d, r] for d, r in enumerate(ranks)]
        entry = entry_budgets(found, [truth], [depth], budget=budget)
        expected += np.prod([mass[d, r] for d, r in enumerate(ranks)]) * accepted(entry, [budget]).item()
    assert expected == pytest.approx(np.exp(best_first(found, budget).score[0, 1:]).sum(), abs=1e-9)


@given(marginals(max_rounds=1, max_depth=3, max_rank=2), st.integers(1, 9))
def test_theorem_1_in_the_kernel(found, budget):
    """The kernel's nodes are the theorem's: the N largest masses, ties to the shorter, then by rank."""
    nodes = oracle.universe(found.depth_max, found.rank_kept)
    score = {v: sum(found.logq[0, d, r] for d, r in enumerate(v)) for v in nodes}
    assert set(paths(found, 0, budget)) == top(score, budget)


@given(laws(), st.integers(1, 8))
def test_theorem_1_top_prefix_optimality(law, size):
    """Of all prefix-closed sets of N strings, the N of largest mass are one, and none accepts more."""
    nodes = oracle.universe(3, 2)
    mass = masses_of(law, nodes)
    best = max(sum(mass[v] for v in tree) for tree in oracle.prefix_closed_sets(nodes, size))
    chosen = top(mass, size)
    assert all(len(v) == 1 or v[:-1] in chosen for v in chosen)
    assert sum(mass[v] for v in chosen) == pytest.approx(best, abs=1e-12)


@given(marginals(max_rounds=1, max_depth=3, max_rank=2), st.integers(1, 9))
def test_corollary_1_plug_in_tree(found, budget):
    """With rho = the product score, the kernel's tree has the largest plug-in sum of its size, by brute force."""
    nodes = oracle.universe(found.depth_max, found.rank_kept)
    score = {v: sum(found.logq[0, d, r] for d, r in enumerate(v)) for v in nodes}
    chosen = paths(found, 0, budget)
    assert len(set(chosen)) == len(chosen) == min(budget, len(nodes))
    assert all(len(v) == 1 or v[:-1] in chosen[:i] for i, v in enumerate(chosen))
    values = [sum(np.exp(score[v]) for v in tree) for tree in oracle.prefix_closed_sets(nodes, len(chosen))]
    assert sum(np.exp(score[v]) for v in chosen) == pytest.approx(max(values), abs=1e-12)


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(laws(), marginals(max_rounds=1, max_depth=3, max_rank=2), st.integers(1, 6))
def test_proposition_1_plug_in_regret(truth, belief, size):
    """sum pi*(S*) - sum pi*(S^) <= sum of |pi* - pi^| over the symmetric difference, with the kernel's tree as S^."""
    assume(belief.depth_max == 3 and belief.rank_kept == 2)
    nodes = oracle.universe(3, 2)
    pi = masses_of(truth, nodes)
    plug_in = {v: np.exp(sum(belief.logq[0, d, r] for d, r in enumerate(v))) for v in nodes}
    best, built = top(pi, size), set(paths(belief, 0, size))
    regret = sum(pi[v] for v in best) - sum(pi[v] for v in built)
    assert regret <= sum(abs(pi[v] - plug_in[v]) for v in best ^ built) + 1e-12


@given(marginals(max_depth=5, max_rank=4), st.integers(1, 40))
def test_the_kernel_is_the_textbook_heap_node_for_node(found, budget):
    tree = best_first(found, budget).check()
    for row in range(len(found)):
        nodes = list(itertools.islice(oracle.textbook_heap(found.logq[row]), budget))
        assert paths(found, row, budget) == [path for path, _ in nodes]
        assert nodes == list(itertools.islice(oracle.two_push_heap(found.logq[row]), budget))
        assert tree.width[row] == len(nodes)
        assert tree.score[row, 1 : 1 + len(nodes)].tolist() == [score for _, score in nodes]  # exactly


@given(marginals(), st.integers(1, 20))
def test_scores_fall_in_entry_order_and_smaller_budgets_are_heads(found, budget):
    tree, smaller = best_first(found, budget + 5), best_first(found, budget)
    assert (tree.score[:, 1:] >= tree.score[:, 2:].min(axis=1, initial=0, keepdims=True)).all()
    assert all(a >= b for row in tree.score for a, b in itertools.pairwise(row))
    for name in ("token", "parent", "depth", "score"):
        np.testing.assert_array_equal(getattr(tree.head(budget), name), getattr(smaller, name))


@pytest.mark.parametrize(
    ("budget", "strings"),
    [(1, [[4]]), (2, [[4], [7]]), (3, [[4], [7], [4, 9]]), (4, [[4], [7], [4, 9], [7, 9]])],
)
def test_scenario_16_exact_ties(budget, strings):
    """q1 = {7: .5, 4: .5}, q2 = {9: 1}: the tie goes to the shorter string, then to the lower id.

    The scenario's universe has 4 nodes; here every position has K = 2, so 2 is a candidate of q2 too, with no mass.
    """
    found = Marginals(np.array([[[7, 4], [9, 2]]]), np.log(np.array([[[0.5, 0.5], [1.0, 1e-300]]])))
    tree = best_first(found, budget)
    column = {0: []}
    for n in range(1, budget + 1):
        column[n] = [*column[int(tree.parent[0, n])], int(tree.token[0, n])]
    assert [column[n] for n in range(1, budget + 1)] == strings


def test_scenario_16_uniform_marginals_enter_by_depth_then_by_rank():
    found = Marginals(np.broadcast_to(np.arange(8), (1, 15, 8)), np.full((1, 15, 8), np.log(1 / 8)))
    assert paths(found, 0, 10) == [(r,) for r in range(8)] + [(0, 0), (0, 1)]


@pytest.mark.parametrize(
    ("logq", "width"),
    [
        (np.log([[[0.6, 0.4], [0.6, 0.4]]]), 6),  # L = 2, K = 2: the universe has 6
        (np.array([[[0.0, -np.inf], [0.0, -np.inf]]]), 6),  # q = (1, 0): zero-mass nodes are nodes, in their order
        (np.log([[[0.6, 0.4]]]), 2),  # L = 1
        (np.full((1, 15, 1), np.log(0.5)), 15),  # K = 1: the chain
    ],
)
def test_scenario_17_a_budget_above_the_universe(logq, width):
    token = np.broadcast_to(np.arange(logq.shape[2]), logq.shape)
    tree = best_first(Marginals(token, logq), 63).check()
    assert tree.width.tolist() == [width]
    assert not np.isnan(tree.score).any()


def test_scenario_17_products_that_underflow_keep_their_order():
    """1e-25 at each of 15 depths: the product is 0 in float64, the sum of logs -863.5."""
    logq = np.log(np.full((1, 15, 1), 1e-25))
    tree = best_first(Marginals(np.zeros((1, 15, 1), int), logq), 20)
    assert tree.score[0, 15] == pytest.approx(-863.5, abs=0.1)
    assert (np.diff(tree.score[0, :16]) < 0).all()


def test_spine_first_puts_the_chain_before_the_order():
    found = Marginals(np.array([[[1, 2], [3, 4], [5, 6]]]), np.log([[[0.5, 0.4], [0.4, 0.3], [0.3, 0.2]]]))
    tree = best_first(found, 5, spine_first=True).check()
    assert tree.token[0, 1:].tolist() == [1, 3, 5, 2, 3]
    assert tree.score[0, 4] == best_first(found, 5).score[0, 2]


@given(marginals(max_depth=5), st.integers(1, 40))
def test_spine_first_is_the_order_with_the_chain_moved_ahead(found, budget):
    """The oracle's order, sorted stably by "is not all top-1"."""
    forest = best_first(found, budget, spine_first=True).check()
    for row in range(len(found)):
        nodes = list(oracle.textbook_heap(found.logq[row]) if found.depth_max < 4 else ())
        if nodes:
            moved = sorted(nodes, key=lambda node: any(node[0]))[:budget]
            assert forest.score[row, 1 : 1 + forest.width[row]].tolist() == [score for _, score in moved]
            assert forest.depth[row, 1 : 1 + forest.width[row]].tolist() == [len(path) for path, _ in moved]


def test_sorted_masses_fall_to_zero_behind_the_universe():
    found = Marginals(np.array([[[1, 2]]]), np.log([[[0.5, 0.25]]]))
    np.testing.assert_allclose(sorted_masses(found, 4), [[0.5, 0.25, 0, 0]])
