"""Hypothesis strategies for valid inputs, rich in ties, zeros and ones."""

import numpy as np
from hypothesis import strategies as st

from replay import Marginals, Rounds

# A few round values, so that products tie exactly in floating point (their logs are sums of equal numbers).
WEIGHTS = st.sampled_from([0.0, 0.0625, 0.125, 0.25, 0.5, 1.0])


@st.composite
def marginals(draw, max_rounds=4, max_depth=4, max_rank=4):
    """Marginals of any small shape: coarse probabilities (ties, zeros, ones) or free ones."""
    rounds, depth, rank = (draw(st.integers(1, n)) for n in (max_rounds, max_depth, max_rank))
    shape = (rounds, depth, rank)
    if draw(st.booleans()):
        weight = np.array(draw(st.lists(WEIGHTS, min_size=rounds * depth * rank, max_size=rounds * depth * rank)))
    else:
        weight = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).gamma(0.4, size=rounds * depth * rank)
    weight = weight.reshape(shape)
    mass = weight / np.maximum(weight.sum(axis=2, keepdims=True), 1)
    with np.errstate(divide="ignore"):
        logq = np.minimum(np.log(mass), 0.0)
    start = np.array(draw(st.lists(st.integers(0, 50), min_size=depth, max_size=depth)))
    token = np.broadcast_to(start[:, None] + 7 * np.arange(rank), shape)  # shared ids, in an order of their own
    return Marginals.ranked(token[:, :, ::-1] if draw(st.booleans()) else token, logq)


@st.composite
def rounds(draw, **sizes):
    """Rounds whose continuations follow candidates most of the time."""
    found = draw(marginals(**sizes))
    shape = found.token.shape
    pick = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rank = np.where(pick.random(shape[:2]) < 0.5, 0, pick.integers(0, shape[2], shape[:2]))
    token = np.take_along_axis(found.token, rank[:, :, None], axis=2)[:, :, 0]
    token = np.where(pick.random(shape[:2]) < 0.1, 2**31 - 1, token)  # now and then no candidate
    known = pick.integers(0, shape[1] + 1, shape[0])
    return Rounds(found, token, known, np.zeros(shape[0], int), np.arange(shape[0]))
