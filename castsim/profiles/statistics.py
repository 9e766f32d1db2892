"""Statistics of simulated or recorded rounds that published ones can be held against: R, masses, ranks, calibration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from castsim.profiles.model import Model, draw, split_tables
from replay.accept import accepted, rank_entry_budgets, ranks_of
from replay.forest import level_order
from replay.policies.schedule import Schedule
from replay.rounds import PAD, Marginals, Rounds
from replay.topn import best_first
from replay.trajectory import walk

Array = NDArray[np.float64]
RANK_CAP = 8
LARGEST = 127
MASS_ROUNDS = 1500  # as many as the published curve is a mean of
FIXED = {"schedule": Schedule().branching, "binary": (2,)}  # the fixed trees of appendix G


@dataclass(frozen=True, eq=False)
class Sample:
    """Dense rounds of whole outputs, by rank; a row is a root.

    Attributes:
        logq: (B, L, 8), descending along ranks.
        rank: (B, L) of the true token from 0; behind the end of a known output, and beyond all ranks, none of 0..7.
        prompt, position, remaining: (B,) as in `replay.Rounds`.
    """

    logq: NDArray[np.float32]
    rank: NDArray[np.int32]
    prompt: NDArray[np.int32]
    position: NDArray[np.int32]
    remaining: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.rank)

    @property
    def depth_max(self) -> int:
        """L."""
        return int(self.rank.shape[1])

    @cached_property
    def whole(self) -> NDArray[np.bool_]:
        """(B,) rows whose continuation is not cut."""
        return self.remaining >= self.depth_max

    @cached_property
    def entry(self) -> NDArray[np.int32]:
        """(B, L) entry budgets of topN under the cap."""
        return rank_entry_budgets(self.logq, self.rank, budget=LARGEST)

    def committed(self, policy: str, budget: int) -> NDArray[np.int32]:
        """(B,) tokens that a policy emits from each root, cut where the output ends."""
        if policy == "chain":
            chosen = np.logical_and.accumulate(self.rank[:, :budget] == 0, axis=1).sum(axis=1)
        elif policy == "topN":
            chosen = accepted(self.entry, [budget])[:, 0]
        else:
            chosen = self._fixed(FIXED[policy], budget)
        return np.minimum(chosen + 1, self.remaining).astype(np.int32)

    def _fixed(self, branching: tuple[int, ...], budget: int) -> NDArray[np.int64]:
        """(B,) accepted depth in one tree for all rounds, found by following ranks."""
        tree = level_order(_one_round(self.depth_max), branching, budget)
        table = np.full((tree.budget + 1, RANK_CAP + 1), -1)  # child of a node by rank; none for the last
        table[tree.parent[0, 1:], tree.token[0, 1:]] = np.arange(1, tree.budget + 1)
        at, depth = np.zeros((2, len(self)), np.int64)
        for d in range(self.depth_max):
            among = (self.rank[:, d] >= 0) & (self.rank[:, d] < RANK_CAP)
            at = np.where(at >= 0, table[at, np.where(among, self.rank[:, d], RANK_CAP)], -1)
            depth += at >= 0
        return depth

    def played(self, policy: str, budget: int) -> NDArray[np.bool_]:
        """(B,) the rounds that the policy plays when it walks."""
        return walk(self, self.committed(policy, budget)[:, None])[:, 0]  # type: ignore[arg-type]  # what a walk reads

    def walked(self, policy: str, budget: int) -> tuple[Array, Array]:
        """Emitted tokens and rounds of each prompt when the policy walks."""
        committed, own = self.committed(policy, budget), self.played(policy, budget)
        rounds = np.bincount(self.prompt[own])
        emitted = np.bincount(self.prompt[own], committed[own])
        return emitted[rounds > 0], rounds[rounds > 0].astype(np.float64)

    @cached_property
    def chain_rounds(self) -> NDArray[np.bool_]:
        """(B,) rounds that the chain plays, with a whole continuation."""
        return self.played("chain", self.depth_max) & self.whole

    @cached_property
    def masses(self) -> Array:
        """(LARGEST,) mean sorted masses of the chain's rounds."""
        row = np.flatnonzero(self.chain_rounds)
        few = np.linspace(0, len(row) - 1, min(MASS_ROUNDS, len(row))).astype(np.intp)
        return sorted_masses(self.logq[row[few]]).mean(axis=0)


def _one_round(depth_max: int) -> Marginals:
    """A round whose token ids are ranks."""
    return Marginals(
        np.broadcast_to(np.arange(RANK_CAP), (1, depth_max, RANK_CAP)),
        np.full((1, depth_max, RANK_CAP), -np.log(RANK_CAP + 1.0)),
    )


def drawn_sample(model: Model, prompts: int, tokens: int, depth_max: int, seed: int) -> Sample:
    """Rounds of a model."""
    splits, roots = split_tables(model, depth_max), tokens - 1
    parts = [draw(model, i, roots, depth_max, RANK_CAP, seed, splits) for i in range(prompts)]
    position = np.tile(np.arange(roots, dtype=np.int32), prompts)
    return Sample(
        np.concatenate([p.logq for p in parts]),
        np.concatenate([p.rank for p in parts]),
        np.repeat(np.arange(prompts, dtype=np.int32), roots),
        position,
        (roots - position).astype(np.int32),
    )


def recorded_sample(rounds: Rounds) -> Sample:
    """Rounds of a dense log.

    Raises:
        ValueError: fewer than eight ranks are kept.
    """
    if rounds.marginals.rank_kept < RANK_CAP:
        raise ValueError(f"keeps {rounds.marginals.rank_kept} ranks, a profile needs {RANK_CAP}")
    rank = ranks_of(rounds.marginals, rounds.continuation)
    rank = np.where(rank == PAD, rounds.marginals.rank_kept, rank).astype(np.int32)
    logq = np.ascontiguousarray(rounds.marginals.logq[:, :, :RANK_CAP], np.float32)
    return Sample(logq, rank, rounds.prompt, rounds.position, rounds.remaining)


def statistics(sample: Sample, names: Iterable[str]) -> dict[str, float]:
    """Statistics by name; what a name means is in `castsim.profiles.targets`."""
    return {name: _statistic(sample, name) for name in names}


def _statistic(sample: Sample, name: str) -> float:
    kind, _, rest = name.partition(": ")
    return {
        "R pooled": _pooled,
        "R per prompt": _per_prompt,
        "R on chain rounds": _on_chain_rounds,
        "mass": lambda s, n: float(s.masses[int(n) - 1]),
        "R at every position": _everywhere,
        "first rejection, ranks": _first_rejection,
        "true token beyond rank": _beyond,
        "hit rate at depth 1": _hit_rate,
        "topN 128 rounds": _series,
    }[kind](sample, rest)


def _policy(text: str) -> tuple[str, int]:
    policy, budget = text.split()
    return policy, int(budget)


def _pooled(sample: Sample, text: str) -> float:
    emitted, rounds = sample.walked(*_policy(text))
    return float(emitted.sum() / rounds.sum())


def _per_prompt(sample: Sample, text: str) -> float:
    emitted, rounds = sample.walked(*_policy(text))
    return float((emitted / rounds).mean())


def _on_chain_rounds(sample: Sample, text: str) -> float:
    return float(sample.committed(*_policy(text))[sample.chain_rounds].mean())


def sorted_masses(logq: NDArray[np.float32]) -> Array:
    """(B, LARGEST) sorted masses of rounds (B, L, K); compiled where numba is installed."""
    from castsim.scoring.tree import compiled

    if (fast := compiled()) is None:
        token = np.broadcast_to(np.arange(logq.shape[2]), logq.shape)
        return np.exp(best_first(Marginals(token, logq), LARGEST).score[:, 1:])
    return np.asarray(fast.sorted_masses(logq, LARGEST))


def _everywhere(sample: Sample, text: str) -> float:
    """Mean over all positions with a whole continuation."""
    return float(sample.committed(*_policy(text))[sample.whole].mean())


def _first_rejection(sample: Sample, text: str) -> float:
    """Share of the chain's first rejections whose true token has a rank in low-high, counted from 1."""
    low, _, high = text.partition("-")
    rank = sample.rank[sample.chain_rounds]  # (B, L)
    missed = rank != 0
    row = np.flatnonzero(missed.any(axis=1))
    found = rank[row, missed[row].argmax(axis=1)] + 1
    return float(((found >= int(low)) & (found <= (int(high) if high != "" else np.inf))).mean())


def _beyond(sample: Sample, text: str) -> float:
    """Share of all positions of the chain's rounds whose true token is beyond a rank."""
    return float((sample.rank[sample.chain_rounds] >= int(text)).mean())


def _hit_rate(sample: Sample, text: str) -> float:
    """How often a candidate of a probability in low-high is the true token, over the kept ranks."""
    low, _, high = (float(x) if x != "-" else x for x in text.partition("-"))
    rows = sample.chain_rounds
    probability, rank = np.exp(sample.logq[rows][:, 0]), sample.rank[rows][:, 0]
    inside = (probability >= low) & (probability < (high if high < 1 else 1.1))
    hit = np.arange(probability.shape[1]) == rank[:, None]
    return float(hit[inside].mean()) if inside.any() else float("nan")


def _series(sample: Sample, text: str) -> float:
    """Of the walked tree of 127 nodes: how R spreads, and how neighbouring rounds go together."""
    own = np.flatnonzero(sample.played("topN", LARGEST) & sample.whole)
    committed = sample.committed("topN", LARGEST)[own].astype(np.float64)
    if text == "standard deviation of R":
        return float(committed.std())
    if text == "correlation of neighbours":
        follows = sample.prompt[own][1:] == sample.prompt[own][:-1]
        return float(np.corrcoef(committed[:-1][follows], committed[1:][follows])[0, 1])
    return float((committed == int(text.removeprefix("share of R = "))).mean())
