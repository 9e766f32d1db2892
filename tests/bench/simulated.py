"""Rounds of the published kind for benchmarks: L = 15, K = 8, sorted masses near those of Qwen3-8B on GSM8K.

A stand-in with four numbers, not a fitted profile: easiness of a round, noise of a position, decay over depth, and a
random split of the rest over ranks 2 to 8. The truth follows the drafter's own probabilities.
"""

import numpy as np

from replay import Marginals, Rounds

DEPTH, RANK = 15, 8


def simulated(rounds: int, seed: int) -> Rounds:
    """Independent rounds with whole continuations."""
    rng = np.random.default_rng(seed)
    ease = 2.2 + 1.2 * rng.standard_normal((rounds, 1)) + 0.8 * rng.standard_normal((rounds, DEPTH))
    top = np.maximum(1 / (1 + np.exp(0.12 * np.arange(DEPTH) - ease)), 1 / RANK)  # (B, L)
    rest = 0.97 * (1 - top)[:, :, None] * rng.dirichlet(np.full(RANK - 1, 0.5), (rounds, DEPTH))
    mass = -np.sort(-np.concatenate([top[:, :, None], rest], axis=2), axis=2)
    rank = (rng.random((rounds, DEPTH, 1)) > np.cumsum(mass, axis=2)).sum(axis=2)
    token = rng.integers(0, 100_000, (rounds, DEPTH, 1)) + np.arange(RANK)
    true = np.where(
        rank < RANK, np.take_along_axis(token, np.minimum(rank, RANK - 1)[:, :, None], axis=2)[:, :, 0], 200_000
    )
    marginals = Marginals(token, np.log(np.maximum(mass, 1e-30)).astype(np.float32))
    return Rounds(marginals, true, np.full(rounds, DEPTH), np.zeros(rounds, int), np.zeros(rounds, int))
