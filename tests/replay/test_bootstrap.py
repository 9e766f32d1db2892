"""Means with a name and their intervals."""

import numpy as np
import pytest
from scipy import stats

from replay.bootstrap import paired_bootstrap, pooled_mean, prompt_mean

ONES = np.ones((1, 2))


def test_scenario_10_pooled_and_per_prompt_are_two_numbers():
    """Prompt A: one round of 10. Prompt B: five rounds of 2. Pooled 20/6, per prompt 6."""
    emitted, rounds = np.array([[10.0], [10.0]]), np.array([[1.0], [5.0]])
    assert pooled_mean(ONES, emitted, rounds).item() == pytest.approx(20 / 6)
    assert prompt_mean(ONES, emitted, rounds).item() == pytest.approx(6.0)


def test_a_prompt_without_rounds_has_no_mean():
    emitted, rounds = np.array([[4.0], [0.0]]), np.array([[2.0], [0.0]])
    assert prompt_mean(ONES, emitted, rounds).item() == 2.0
    assert np.isnan(prompt_mean(ONES, emitted * 0, rounds * 0)).all()
    assert np.isnan(pooled_mean(ONES, emitted * 0, rounds * 0)).all()


def test_interval_agrees_with_scipy():
    rng = np.random.default_rng(5)
    rounds = rng.integers(5, 40, (50, 1)).astype(float)
    emitted = rounds * rng.uniform(1, 6, (50, 1))
    ours = paired_bootstrap(lambda w: prompt_mean(w, emitted, rounds), 50, rng=rng, draws=8000)
    theirs = stats.bootstrap(
        ((emitted / rounds)[:, 0],), np.mean, n_resamples=8000, method="percentile", rng=np.random.default_rng(6)
    ).confidence_interval
    assert ours[:, 0] == pytest.approx(np.array(theirs), rel=0.01)


def test_pairing_takes_the_spread_of_prompts_out_of_a_ratio():
    """Column 1 is 1.2 times column 0 on every prompt: each alone is uncertain, their ratio is not."""
    rng = np.random.default_rng(1)
    rounds = np.full((40, 2), 10.0)
    emitted = rng.uniform(10, 80, (40, 1)) * [1.0, 1.2]
    means = paired_bootstrap(lambda w: pooled_mean(w, emitted, rounds), 40, rng=rng)
    ratio = paired_bootstrap(
        lambda w: pooled_mean(w, emitted, rounds)[:, 1:] / pooled_mean(w, emitted, rounds)[:, :1], 40, rng=rng
    )
    assert (means[1] - means[0] > 0.5).all()
    assert ratio == pytest.approx(np.full((2, 1), 1.2))


def test_one_prompt_has_no_interval():
    assert np.isnan(paired_bootstrap(lambda w: w, 1, rng=np.random.default_rng(0), draws=10)).all()


def test_the_stream_is_the_callers():
    table = np.arange(12.0).reshape(6, 2) + 1
    runs = [paired_bootstrap(lambda w: pooled_mean(w, table, table), 6, rng=np.random.default_rng(3)) for _ in range(2)]
    np.testing.assert_array_equal(*runs)
