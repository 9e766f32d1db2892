"""Sampled verification: laws by enumeration of every draw and coin, and the mistakes that such a law would show."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replay.verify import accept_sibling, law_of, outcomes

EXACT = 1e-12
CASES = [  # target, drafter, retained siblings: scenario 4
    ((0.5, 0.3, 0.2), (0.6, 0.3, 0.1), (0, 1)),
    ((0.1, 0.1, 0.2, 0.6), (0.5, 0.3, 0.15, 0.05), (0, 1, 2)),
]


def recursive(p, q, siblings, dice, accept=accept_sibling):
    """The committed token: an accepted sibling, or a draw from what is left of the target."""
    p, q, siblings = np.array(p, float), np.array(q, float), np.array(siblings)
    rest = np.delete(p, siblings)
    found = accept(p[siblings], float(rest.sum()), q[siblings], dice)
    if found is not None:
        return int(siblings[found])
    left = p.copy()
    left[siblings] = 0.0
    return dice.pick(left)


def direct(p, q, siblings, dice):
    return dice.pick(np.array(p, float))


def as_vector(law, size):
    return np.array([law.get(token, 0.0) for token in range(size)])


@pytest.mark.parametrize("verifier", [recursive, direct])
@pytest.mark.parametrize("p, q, siblings", CASES)
def test_theorem_3_the_committed_token_has_the_targets_law(verifier, p, q, siblings):
    law = as_vector(law_of(lambda dice: verifier(p, q, siblings, dice)), len(p))
    assert np.abs(law - p).max() < EXACT


@st.composite
def nodes(draw):
    """A target law with zeros, a drafter's scores in any scale, and siblings of positive proposal."""
    size = draw(st.integers(2, 6))
    weight = draw(st.lists(st.integers(0, 9), min_size=size, max_size=size).filter(any))
    scores = draw(st.lists(st.floats(1e-6, 1.0), min_size=size, max_size=size))
    siblings = draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=min(size, 4), unique=True))
    return np.array(weight) / sum(weight), np.array(scores), tuple(siblings)


@given(nodes())
def test_theorem_3_for_any_target_proposal_and_siblings(node):
    p, q, siblings = node
    law = as_vector(law_of(lambda dice: recursive(p, q, siblings, dice)), len(p))
    assert np.abs(law - p).max() < EXACT


@given(nodes())
def test_both_verifiers_accept_with_the_probability_of_the_children(node):
    """The most that any exact verifier can: hence equal E[A] on equal trees."""
    p, q, siblings = node
    accepted = []
    for verifier in (recursive, direct):
        law = law_of(lambda dice, verifier=verifier: verifier(p, q, siblings, dice) in siblings)
        accepted.append(law.get(True, 0.0))
    assert accepted == pytest.approx([p[list(siblings)].sum()] * 2, abs=EXACT)


@given(nodes())
def test_a_child_without_target_probability_is_never_committed(node):
    p, q, siblings = node
    law = law_of(lambda dice: recursive(p, q, siblings, dice))
    assert not [token for token, chance in law.items() if p[token] == 0 and chance > 0]


def rank_order(mass, outside, proposal, dice):
    """Wrong: siblings tried in order of rank, the ratio by the renormalised proposal."""
    mu, rest, left = mass.copy(), outside, list(range(len(mass)))
    while left:
        available = proposal[left] / proposal[left].sum()
        first = left[0]
        if dice.coin(min(1.0, mu[first] / available[0])):
            return first
        mu[left] = np.maximum(mu[left] - available, 0)
        scale = mu[left].sum() + rest
        mu, rest = mu / scale, rest / scale
        left.pop(0)
    return None


def raw_ratio(mass, outside, proposal, dice):
    """Wrong: drawn from the renormalised proposal, accepted by the raw one."""
    mu, rest, left = mass.copy(), outside, list(range(len(mass)))
    while left:
        drawn = dice.pick(proposal[left] / proposal[left].sum())
        token = left[drawn]
        if dice.coin(min(1.0, mu[token] / proposal[token])):
            return token
        mu[left] = np.maximum(mu[left] - proposal[left], 0)
        scale = mu[left].sum() + rest
        mu, rest = mu / scale, rest / scale
        left.pop(drawn)
    return None


def renormalised_once(mass, outside, proposal, dice):
    """Wrong: the proposal is not renormalised again after a rejection."""
    mu, rest, left = mass.copy(), outside, list(range(len(mass)))
    once = proposal / proposal.sum()
    while left:
        drawn = dice.pick(once[left])
        token = left[drawn]
        if dice.coin(min(1.0, mu[token] / once[token])):
            return token
        mu[left] = np.maximum(mu[left] - once[left], 0)
        scale = mu[left].sum() + rest
        mu, rest = mu / scale, rest / scale
        left.pop(drawn)
    return None


@pytest.mark.parametrize("wrong", [rank_order, raw_ratio])
@pytest.mark.parametrize("p, q, siblings", CASES)
def test_the_enumeration_shows_usual_mistakes(wrong, p, q, siblings):
    """Scenario 4: fixed order, or another proposal in the ratio than in the draw."""
    law = as_vector(law_of(lambda dice: recursive(p, q, siblings, dice, wrong)), len(p))
    assert np.abs(law - p).sum() / 2 > 0.01


def test_a_proposal_renormalised_once_passes_the_first_case_and_fails_the_second():
    """Scenario 4: why two cases are needed."""
    near, far = (
        np.abs(as_vector(law_of(lambda dice, c=case: recursive(*c, dice, renormalised_once)), len(case[0])) - case[0])
        for case in CASES
    )
    near, far = near.sum(), far.sum()
    assert near < EXACT and far / 2 == pytest.approx(0.038, abs=5e-4)


class Fixed:
    """Dice of which every uniform number is the same."""

    def __init__(self, uniform):
        self.uniform = uniform

    def pick(self, weights):
        return int(np.searchsorted(np.cumsum(weights), self.uniform * np.sum(weights), side="right"))

    def coin(self, chance):
        return self.uniform < chance


def test_a_uniform_of_zero_accepts_no_sibling_that_the_target_excludes():
    """Scenario 6a, and c: with no mass on any sibling the target's own law is left."""
    assert accept_sibling(np.array([0.0]), 1.0, np.array([1.0]), Fixed(0.0)) is None
    assert accept_sibling(np.zeros(3), 1.0, np.array([0.5, 0.3, 0.2]), Fixed(0.0)) is None


def test_a_rejection_by_rounding_where_proposal_and_target_agree_leaves_no_nan():
    """Scenario 6b."""
    p = np.array([0.7, 0.3], np.float32).astype(np.float64)
    found = accept_sibling(p, 0.0, np.array([0.7, 0.3]), Fixed(1 - 2.0**-24))
    assert found in (0, 1)


def test_a_sibling_without_a_proposal_is_refused():
    """Scenario 6d: Theorem 3 asks for a positive one."""
    with pytest.raises(ValueError, match="positive"):
        accept_sibling(np.array([0.5, 0.5]), 0.0, np.array([1.0, 0.0]), Fixed(0.5))
    with pytest.raises(ValueError, match="mass"):
        accept_sibling(np.zeros(2), 0.0, np.ones(2), Fixed(0.5))


@given(nodes())
def test_enumerated_probabilities_sum_to_one(node):
    p, q, siblings = node
    assert sum(chance for chance, _ in outcomes(lambda dice: recursive(p, q, siblings, dice))) == pytest.approx(1.0)


def test_a_walk_of_two_levels_has_the_law_of_two_draws():
    """The tower property: the second token's law depends on the first, and the tree holds one child of each kind."""
    first, second = np.array([0.6, 0.3, 0.1]), np.array([[0.2, 0.8, 0.0], [0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    q = np.array([0.5, 0.4, 0.1])

    def walk(dice):
        token = recursive(first, q, (0, 1), dice)
        return token, recursive(second[token], q, (1, 2), dice)

    law = law_of(walk)
    for a in range(3):
        for b in range(3):
            assert law.get((a, b), 0.0) == pytest.approx(first[a] * second[a, b], abs=EXACT)
