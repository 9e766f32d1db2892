"""What a decode should take: rounds and tokens from a replay, times of a round from its parts or from a probe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from castsim.costs.curve import Cost, noisy_costs
from replay.bootstrap import prompt_weights
from replay.width import Overhead

Array = NDArray[np.float64]
DRAWS = 1000
PARTS = ("draft", "build", "pack", "target", "walk", "commit")  # of a round, in order


@dataclass(frozen=True)
class RoundCost:
    """Milliseconds of the parts of a round.

    Attributes:
        draft_ms: the drafter, and its candidates brought to the host.
        prepare_ms: building and packing the tree.
        target_ms: the target's one pass.
        finish_ms: walk and commit.
    """

    draft_ms: float
    prepare_ms: float
    target_ms: float
    finish_ms: float

    @property
    def round_ms(self) -> float:
        """A whole round."""
        return self.draft_ms + self.prepare_ms + self.target_ms + self.finish_ms

    @property
    def overhead_ms(self) -> float:
        """What the host adds to the two models."""
        return self.prepare_ms + self.finish_ms

    def ms_per_token(self, rounds: int, tokens: int, prompts: int) -> float:
        """Of some prompts decoded one after the other, in the paper's window, which leaves out each first draft.

        Args:
            rounds, tokens: of all prompts, tokens without those that prefill gave.

        Source: throughput R / round time of section 3.1, and the window of appendix D.
        """
        return (rounds * self.round_ms - prompts * (self.draft_ms + self.prepare_ms)) / tokens


class Timed(NamedTuple):
    """Forecasts of C ways to decode, the chain first; each interval (2, C) is of 95 %.

    Attributes:
        ar_ms: time of a token in autoregressive decoding, a pass of one token; NaN where none was measured.
        ar_gain: of AR over the chain, and its interval (2,).

    NaN stands where the probe does not price a round. An interval of a probe without samples and of rounds without
    prompts has no width.
    """

    round_ms: Array
    ms_per_token: Array
    ms_per_token_ci95: Array
    gain: Array
    gain_ci95: Array
    ar_ms: float
    speedup: Array
    speedup_ci95: Array
    ar_gain: float
    ar_gain_ci95: Array


def forecast(
    cost: Cost, nodes: Sequence[float], committed: Array, drawn: Array, seed: int, ar_host_ms: float = 0.0
) -> Timed:
    """Throughput R / l(N) of each column.

    Args:
        cost: draft, overhead and the target's curve.
        nodes: (C,) nonroot nodes of the trees, a mean where they differ from round to round.
        committed: (C,) R.
        drawn: (D, C) R of resampled prompts, see `committed_draws`; the probe is drawn anew beside it.
        ar_host_ms: host time of a token in autoregressive decoding, beside the target's pass at n = 1.

    Source: l(N) of section 3.3, throughput (1 + g) / l of Theorem 2 with the measured R in the place of 1 + g.
    """
    rng = np.random.default_rng(seed)
    times, ar_ms = cost.round_ms(nodes), cost.ar_ms + ar_host_ms
    noisy = noisy_costs(cost, len(drawn), rng)
    pace = np.stack([c.round_ms(nodes) for c in noisy]) / drawn  # (D, C) ms/token
    single = np.array([[c.ar_ms + ar_host_ms] for c in noisy])
    own = times / committed

    def ends(values: Array) -> Array:
        return np.quantile(values, [0.025, 0.975], axis=0)

    return Timed(
        times,
        own,
        ends(pace),
        own[0] / own - 1,
        ends(pace[:, :1] / pace - 1),
        ar_ms,
        ar_ms / own,
        ends(single / pace),
        own[0] / ar_ms - 1,
        ends(pace[:, 0] / single[:, 0] - 1),
    )


def committed_draws(committed: Array, tally: tuple[Array, Array] | None, seed: int) -> Array:
    """(D, C) R of resampled prompts, the same ones for all columns; constant where no prompts are known.

    Args:
        committed: (C,) R.
        tally: emitted tokens and rounds by prompt, each (P, C).
    """
    if tally is None or len(tally[0]) < 2:
        return np.broadcast_to(committed, (DRAWS, len(committed)))
    emitted, rounds = tally
    draws = prompt_weights(len(emitted), DRAWS, np.random.default_rng(seed))
    return np.concatenate([(weight @ emitted) / (weight @ rounds) for weight in draws])


def fitted_overhead(cost: Cost, nodes: Sequence[float], round_ms: Sequence[float]) -> Overhead:
    """h(N) from a few live rounds: the least-squares line through what draft and target leave of them, not below 0.

    One point gives a constant.

    Args:
        nodes, round_ms: of each live point, nonroot nodes and the time of a round.
    """
    at = np.asarray(nodes, np.float64)
    left = np.asarray(round_ms) - replace(cost, overhead=Overhead()).round_ms(at)
    if len(set(at.tolist())) < 2:
        return Overhead(max(float(left.mean()), 0.0))
    slope, fixed = np.polyfit(at, left, 1).tolist()
    if slope < 0 or fixed < 0:  # then the best line within bounds runs along one of them
        lines = [(max(float(left.mean()), 0.0), 0.0), (0.0, max(float(at @ left / (at @ at)), 0.0))]
        fixed, slope = min(lines, key=lambda line: float(((line[0] + line[1] * at - left) ** 2).sum()))
    return Overhead(fixed, slope)
