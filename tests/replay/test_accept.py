"""Entry budgets without trees: equal to the heap's, on every kind of round."""

import numpy as np
import oracle
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import rounds

from replay import Marginals, Rounds, accept, accepted, best_first, committed, entry_budgets, forest_entry_budgets
from replay.accept import ranks_of

HAND = Marginals(np.array([[[1, 2], [3, 4]]]), np.log([[[0.5, 0.25], [0.8, 0.1]]]))  # order: 1, 13, 2, 23, 14, 24


@pytest.mark.parametrize(
    ("continuation", "entry"),
    [([1, 3], [1, 2]), ([2, 3], [3, 4]), ([1, 4], [1, 5]), ([2, 4], [3, 6]), ([2, 9], [3, 7]), ([9, 3], [7, 7])],
)
def test_the_hand_case(continuation, entry):
    assert entry_budgets(HAND, [continuation], [2], budget=6).tolist() == [entry]


def one(found, continuation):
    """An @example for `rounds`: one round that follows the given ranks."""
    token = np.take_along_axis(found.token, np.array(continuation)[None, :, None], axis=2)[:, :, 0]
    depth = np.array([found.depth_max])
    return Rounds(found, token, depth, np.zeros(1, int), np.zeros(1, int))


def logs(*positions):
    """One round of these log-probabilities; whole numbers, so that sums tie exactly."""
    logq = np.array([positions], float)
    return Marginals(np.broadcast_to(np.arange(logq.shape[2]), logq.shape), logq)


def flat(depth, rank, value):
    return Marginals(np.broadcast_to(np.arange(rank), (1, depth, rank)), np.full((1, depth, rank), value))


@given(rounds(max_depth=5, max_rank=4), st.integers(1, 60))
@example(one(flat(3, 2, np.log(0.5)), [1, 0, 1]), 14)  # every node of a depth ties
@example(one(flat(3, 2, -np.inf), [1, 0, 1]), 14)  # zero mass everywhere
@example(one(flat(4, 1, 0.0), [0, 0, 0, 0]), 3)  # children score as their parents do
@example(one(flat(1, 64, np.log(1 / 64)), [63]), 64)
@example(one(logs([-1, -1e30], [-1e30, -2e30], [-1, -2e38]), [1, 0, 0]), 14)  # far beyond what a bound's integers hold
@example(one(logs([-1e30, -np.inf], [-1, -2], [0, -np.inf]), [1, 0, 1]), 8)
@example(one(logs([-1, -3], [-1, -2], [-1, -2]), [1, 0, 0]), 14)  # (0,0,0) ties with (1), two levels above it
def test_equals_the_textbook_heap(found, budget):
    args = (found.marginals.token, found.marginals.logq, found.continuation, found.known)
    expected = oracle.entry_budgets(*args, budget)
    np.testing.assert_array_equal(entry_budgets(found.marginals, *args[2:], budget=budget), expected)
    forest = best_first(found.marginals, budget)
    walked = forest_entry_budgets(forest, *args[2:], found.marginals.depth_max)
    np.testing.assert_array_equal(np.where(walked > forest.budget, budget + 1, walked), expected)


@given(rounds(max_depth=5, max_rank=4), st.integers(1, 30), st.integers(1, 30))
def test_a_smaller_budget_only_clips(found, first, second):
    small, large = sorted((first, second))
    entry = entry_budgets(found.marginals, found.continuation, found.known, budget=large)
    clipped = entry_budgets(found.marginals, found.continuation, found.known, budget=small)
    np.testing.assert_array_equal(np.minimum(entry, small + 1), clipped)


@given(rounds(max_depth=5, max_rank=4), st.integers(1, 30), st.integers(1, 4))
def test_a_rank_cap_is_a_smaller_universe(found, budget, cap):
    head = found.marginals.head(rank_cap=cap)
    capped = entry_budgets(found.marginals, found.continuation, found.known, budget=budget, rank_cap=cap)
    np.testing.assert_array_equal(capped, entry_budgets(head, found.continuation, found.known, budget=budget))


@given(rounds(max_depth=5, max_rank=4), st.integers(1, 30))
def test_entry_budgets_rise_along_the_path_and_stop_with_it(found, budget):
    entry = entry_budgets(found.marginals, found.continuation, found.known, budget=budget)
    assert ((np.diff(entry, axis=1) > 0) | (entry[:, 1:] == budget + 1)).all()
    assert (entry[np.arange(entry.shape[1]) >= found.known[:, None]] == budget + 1).all()


@pytest.mark.parametrize(
    ("depth", "rank", "budget"), [(15, 8, 127), (15, 64, 127), (15, 16, 1024), (7, 3, 1024), (1, 64, 9), (300, 2, 127)]
)
def test_large_universes_and_budgets(depth, rank, budget):
    rng = np.random.default_rng(depth * rank)
    mass = -np.sort(-rng.dirichlet(np.full(rank + 1, 0.2), (12, depth))[:, :, :rank], axis=2)
    found = Marginals(np.broadcast_to(np.arange(rank), mass.shape), np.log(np.maximum(mass, 1e-300)))
    follow = np.where(rng.random((12, depth)) < 0.7, 0, rng.integers(0, rank, (12, depth)))
    known = np.full(12, depth)
    expected = oracle.entry_budgets(found.token, found.logq, follow, known, budget, oracle.two_push_heap)
    np.testing.assert_array_equal(entry_budgets(found, follow, known, budget=budget), expected)


@pytest.mark.parametrize("step", [0.25, 1.0])
def test_ties_everywhere(step):
    """Log-probabilities on a grid, as coarse logits give them: nodes of every length and shape score the same."""
    rng = np.random.default_rng(5)
    mass = -np.sort(-rng.dirichlet(np.full(5, 0.4), (40, 7))[:, :, :4], axis=2)
    grid = np.floor(np.log(np.maximum(mass, 1e-9)) / step) * step
    found = Marginals(np.broadcast_to(np.arange(4), mass.shape), grid)
    follow, known = rng.integers(0, 2, (40, 7)), np.full(40, 7)
    expected = oracle.entry_budgets(found.token, found.logq, follow, known, 200)
    np.testing.assert_array_equal(entry_budgets(found, follow, known, budget=200), expected)


@pytest.mark.parametrize("budget", [15, 127])
def test_few_nodes_are_listed_besides_those_that_count(monkeypatch, sample_rounds, budget):
    """A prefix that is out of reach must not lower the floor of its round: it did, and 4 in 5 nodes were in vain."""
    listed = []
    monkeypatch.setattr(accept, "_expand", lambda *a, expand=accept._expand: listed.append(expand(*a)) or listed[-1])
    args = (sample_rounds.continuation, sample_rounds.known)
    entry = entry_budgets(sample_rounds.marginals, *args, budget=budget, rank_cap=8)
    needed = np.where(entry <= budget, entry, 0).max(axis=1).sum()
    assert needed <= sum(len(level.round) for level in listed) < 2 * needed


@pytest.mark.parametrize("rank", [2, 8, 16])
@pytest.mark.parametrize("budget", [20, 127, 1000])
def test_scenario_17_log_0_does_not_let_the_list_explode(rank, budget):
    """One candidate with probability 1 and the rest with 0: zero-mass nodes tie in their thousands of billions."""
    logq = np.where(np.arange(rank) == 0, 0.0, -np.inf) + np.zeros((4, 15, 1))
    found = Marginals(np.broadcast_to(np.arange(rank), logq.shape), logq)
    follow = np.zeros((4, 15), int)
    follow[[1, 2, 3], [0, 3, 14]] = 1  # the truth leaves the spine at once, later, at the end
    known = np.full(4, 15)
    expected = oracle.entry_budgets(found.token, found.logq, follow, known, budget, oracle.two_push_heap)
    np.testing.assert_array_equal(entry_budgets(found, follow, known, budget=budget), expected)


def test_the_sample_run_equals_the_heap(sample_rounds):
    part = sample_rounds.take(np.arange(0, len(sample_rounds), 13))
    capped = part.marginals.head(rank_cap=8)
    args = (part.continuation, part.known)
    expected = oracle.entry_budgets(capped.token, capped.logq, *args, 127, oracle.two_push_heap)
    np.testing.assert_array_equal(entry_budgets(part.marginals, *args, budget=127, rank_cap=8), expected)


def test_the_sample_run_is_pinned(sample_rounds):
    """The past of this kernel on the sample run: any change of these sums changes published figures."""
    entry = entry_budgets(
        sample_rounds.marginals, sample_rounds.continuation, sample_rounds.known, budget=127, rank_cap=8
    )
    assert accepted(entry, [15, 31, 47, 63, 95, 127]).sum(axis=0).tolist() == PINNED


PINNED = [13059, 14851, 15808, 16406, 17203, 17718]  # accepted tokens over all 4,738 rows


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"budget": 0}, "at least 1"),
        ({"budget": -3}, "at least 1"),
        ({"budget": 3, "rank_cap": 0}, "at least 1"),
        ({"budget": 2**31 - 1}, "int32"),
        ({"budget": 2**40}, "int32"),
    ],
)
def test_bad_budgets(arguments, words):
    with pytest.raises(ValueError, match=words):
        entry_budgets(HAND, [[1, 3]], [2], **arguments)


def test_batches_that_disagree_in_length():
    with pytest.raises(ValueError, match="2 rounds, marginals have 1"):
        entry_budgets(HAND, [[1, 3], [1, 3]], [2, 2], budget=4)


def test_an_empty_batch():
    none = HAND.take(slice(0, 0))
    assert entry_budgets(none, np.empty((0, 2), int), np.empty(0, int), budget=4).shape == (0, 2)


def test_the_whole_batch_is_the_sum_of_its_parts(sample_rounds):
    """Chunking is invisible: a round's entry budgets do not depend on its neighbours."""
    part = sample_rounds.take(slice(0, 40))
    whole = entry_budgets(part.marginals, part.continuation, part.known, budget=63)
    alone = [
        entry_budgets(r.marginals, r.continuation, r.known, budget=63) for r in map(part.take, np.arange(40)[:, None])
    ]
    np.testing.assert_array_equal(whole, np.concatenate(alone))


def test_scenario_3_accepted_and_committed_count_the_bonus_once():
    """A = 0, 2, 15 at L = 15 is R = 1, 3, 16 and a mean of 20/3."""
    entry = np.full((3, 15), 16, np.int32)
    entry[1, :2] = [1, 2]
    entry[2] = np.arange(1, 16)
    played = accepted(entry, [15])
    assert played[:, 0].tolist() == [0, 2, 15]
    emitted = committed(played, np.full(3, 99, np.int32))
    assert emitted[:, 0].tolist() == [1, 3, 16]
    assert emitted.mean() == pytest.approx(20 / 3)


def test_scenario_1_an_end_of_sequence_inside_the_accepted_path_ends_the_round():
    """The chain is d1 d2 EOS d4 d5, all accepted by the drafter's guess; the output ends with EOS: R = 3, not 6."""
    chain = np.array([[[11], [12], [0], [14], [15]]])
    rounds = Rounds(
        Marginals(chain, np.full((1, 5, 1), -0.1)),
        [[11, 12, 0, 14, 15]],
        np.array([3]),
        np.zeros(1, int),
        np.zeros(1, int),
    )
    played = accepted(entry_budgets(rounds.marginals, rounds.continuation, rounds.known, budget=5), [5])
    assert played.tolist() == [[3]]
    assert committed(played, rounds.remaining).tolist() == [[3]]


def test_scenario_1_an_end_of_sequence_as_the_bonus_token():
    """d1 d2 accepted, then the end as the target's own token: R = 3, and no round follows."""
    found = Marginals(np.array([[[11], [12], [13]]]), np.full((1, 3, 1), -0.1))
    rounds = Rounds(found, [[11, 12, 0]], np.array([3]), np.zeros(1, int), np.zeros(1, int), np.array([3]))
    played = accepted(entry_budgets(found, rounds.continuation, rounds.known, budget=3), [3])
    assert played.tolist() == [[2]]
    assert committed(played, rounds.remaining).tolist() == [[3]]


@pytest.mark.parametrize(("depth", "most"), [(15, 16), (9, 10), (8, 9)])
def test_scenario_3_r_never_exceeds_the_block(depth, most):
    """Block 16, block 10, and DART's L = 8: a continuation that equals the whole chain gives R = L + 1."""
    found = Marginals(np.arange(depth).reshape(1, depth, 1), np.full((1, depth, 1), -0.1))
    rounds = Rounds(found, [np.arange(depth)], np.array([depth]), np.zeros(1, int), np.zeros(1, int))
    entry = entry_budgets(found, rounds.continuation, rounds.known, budget=63)
    assert committed(accepted(entry, [63]), rounds.remaining).tolist() == [[most]]


def test_many_chunks_are_one_batch(monkeypatch, sample_rounds):
    part = sample_rounds.take(slice(0, 500))
    args = (part.marginals, part.continuation, part.known)
    whole = entry_budgets(*args, budget=63)
    monkeypatch.setattr("replay.accept._ROUNDS_AT_ONCE", 7)
    np.testing.assert_array_equal(entry_budgets(*args, budget=63), whole)


def test_ranks_count_from_zero_and_miss_what_is_not_kept():
    assert ranks_of(HAND, np.array([[2, 9]], np.int32)).tolist() == [[1, -1]]
