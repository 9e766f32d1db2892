"""What sharing one verifier budget among requests is worth: the offline experiment of appendix F on a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from castsim.base.errors import OptionError, RunLogError
from castsim.base.numbers import ends_or_none, or_none
from castsim.base.workers import HERE, Workers
from castsim.runs.reading import Run, Shard
from replay import Rounds, accepted, committed, entry_budgets, walk
from replay.accept import ranks_of
from replay.allocate import accepted_at, confident_widths, hindsight_total, shared_widths, uniform_widths
from replay.topn import sorted_masses

Array = NDArray[np.float64]
NODES = 127  # of a request at most
RANK_CAP = 8
NOT_HELD = 10**6  # entry budget of what no width reaches
ALLOCATORS = ("uniform", "shared", "uniform chain", "shared chain", "confident chain", "hindsight")


@dataclass(frozen=True)
class Experiment:
    """What is drawn.

    Attributes:
        batch: requests B of a batch.
        per_request: mean nodes a request; the total budget is M = B times that.
        batches, requests: batches drawn, and the pool of each domain that they are drawn from.
    """

    batch: int = 32
    per_request: tuple[int, ...] = (4, 8, 16)
    batches: int = 400
    requests: int = 900
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Pool:
    """Requests: rounds with a whole continuation.

    Attributes:
        mass, entry: (R, NODES) of the best-first tree, and (R, L) entry budgets of the true prefixes in it.
        spine, chain_entry: (R, L) prefix masses of the chain, and entry budgets in it.
        probability: (R, L) of the chain's tokens themselves.
    """

    mass: Array
    entry: NDArray[np.int64]
    spine: Array
    chain_entry: NDArray[np.int64]
    probability: Array

    def take(self, rows: NDArray[np.intp]) -> Pool:
        """Requests by index, of any shape, which leads."""
        return Pool(self.mass[rows], self.entry[rows], self.spine[rows], self.chain_entry[rows], self.probability[rows])


def allocation(
    run: Run,
    domain_of: dict[int, str],
    asked: Experiment,
    workers: Workers = HERE,
    done: Callable[[float], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Accepted draft tokens of every allocator over random batches, by domain and budget.

    Raises:
        OptionError: a domain that cannot fill a batch.
        RunLogError: from reading, or where no round has a whole continuation.
    """
    pools = _pools(run, domain_of, asked, workers, lambda share: done(share / 2))
    if not pools:
        raise RunLogError(run.folder, "has no round with a whole continuation", "choose other prompts, or record some")
    for domain, pool in pools.items():
        if len(pool.mass) < asked.batch:
            raise OptionError(
                f"--batch {asked.batch}: domain {domain} has {len(pool.mass)} requests; give a smaller batch"
            )
    rows = []
    for found in workers.each(lambda item: _rows(*item[1], asked, item[0]), list(enumerate(pools.items()))):
        rows += found
        done(0.5 + len(rows) / len(pools) / len(asked.per_request) / 2)
    return rows


def _rows(domain: str, pool: Pool, asked: Experiment, number: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng([asked.seed, number])
    picked = np.stack([rng.choice(len(pool.mass), asked.batch, replace=False) for _ in range(asked.batches)])
    batches = pool.take(picked)
    return [
        _row(domain, len(pool.mass), mean, asked, totals(batches, asked.batch * mean, mean), rng)
        for mean in asked.per_request
    ]


def totals(batch: Pool, total_budget: int, mean: int) -> dict[str, NDArray[np.int64]]:
    """(T,) accepted draft tokens of each allocator, from batches whose arrays lead with (T, B)."""
    depth = batch.spine.shape[2]
    widths = {
        "uniform": (batch.entry, uniform_widths(batch.mass, total_budget)),
        "shared": (batch.entry, shared_widths(batch.mass, total_budget)),
        "uniform chain": (batch.chain_entry, np.full(batch.mass.shape[:2], min(mean, depth))),
        "shared chain": (batch.chain_entry, shared_widths(batch.spine, total_budget)),
        "confident chain": (batch.chain_entry, confident_widths(batch.probability, total_budget)),
    }
    found = {name: accepted_at(entry, width).sum(axis=1) for name, (entry, width) in widths.items()}
    return {**found, "hindsight": hindsight_total(batch.entry, total_budget)}


def _row(
    domain: str,
    requests: int,
    mean: int,
    asked: Experiment,
    found: dict[str, NDArray[np.int64]],
    rng: np.random.Generator,
) -> dict[str, Any]:
    drawn = rng.integers(asked.batches, size=(1000, asked.batches))
    return {
        "domain": domain,
        "requests": requests,
        "batch": asked.batch,
        "per_request": mean,
        "total_budget": asked.batch * mean,
        "allocators": {name: _gains(total, found["uniform"], drawn, asked.batch) for name, total in found.items()},
    }


def _gains(
    total: NDArray[np.int64], even: NDArray[np.int64], drawn: NDArray[np.int64], batch: int
) -> dict[str, float | list[float] | None]:
    """What an allocator accepts, and its gain on the even split: null where that accepts nothing, in all batches or in
    those of a draw.
    """
    mean, base = total.mean(), even.mean()
    with np.errstate(divide="ignore", invalid="ignore"):
        gain, gains = mean / base - 1, total[drawn].mean(axis=1) / even[drawn].mean(axis=1) - 1
        ends = np.quantile(gains, [0.025, 0.975])
    return {
        "accepted_per_request": float(mean / batch),
        "gain_over_uniform": or_none(gain),
        "committed_gain_over_uniform": float((mean + batch) / (base + batch) - 1),
        "gain_over_uniform_ci95": ends_or_none(ends, bool(np.isfinite(gains).all())),
    }


def _pools(
    run: Run, domain_of: dict[int, str], asked: Experiment, workers: Workers, done: Callable[[float], None]
) -> dict[str, Pool]:
    """Requests of each domain, evenly spaced among the rounds that a tree of the smallest mean budget plays."""
    dense, shards, parts = run.facts.layout == "dense", run.shards, dict[str, list[Rounds]]()
    read = workers.each(lambda shard: _whole(shard, list(domain_of), min(asked.per_request), dense), shards)
    for number, own in enumerate(read, start=1):
        names = np.array([domain_of[p] for p in own.prompt.tolist()])
        for name in sorted(set(names.tolist())):
            parts.setdefault(name, []).append(own.take(names == name))
        done(number / len(shards))
    return {name: pool_of(_few(parts[name], asked.requests)) for name in sorted(parts)}


def _whole(shard: Shard, prompts: list[int], budget: int, dense: bool) -> Rounds:
    rounds = shard.read_rounds(prompts)
    played = _played(rounds, budget) if dense else rounds
    return played.take(~played.censored)


def _played(rounds: Rounds, budget: int) -> Rounds:
    entry = entry_budgets(rounds.marginals, rounds.continuation, rounds.known, budget=budget, rank_cap=RANK_CAP)
    return rounds.take(walk(rounds, committed(accepted(entry, [budget]), rounds.remaining))[:, 0])


def _few(parts: Sequence[Rounds], count: int) -> list[Rounds]:
    """About `count` rounds of a domain, the same share of each shard."""
    share = min(1.0, count / max(sum(map(len, parts)), 1))
    return [
        part.take(np.linspace(0, len(part) - 1, max(1, round(share * len(part)))).astype(np.intp))
        for part in parts
        if len(part)
    ]


def pool_of(parts: Sequence[Rounds]) -> Pool:
    """The arrays of some rounds."""
    made = [_arrays(part) for part in parts]
    return Pool(*(np.concatenate(columns) for columns in zip(*made, strict=True)))


def _arrays(rounds: Rounds) -> tuple[Array, NDArray[np.int64], Array, NDArray[np.int64], Array]:
    universe = rounds.marginals.head(rank_cap=RANK_CAP)
    entry = entry_budgets(universe, rounds.continuation, rounds.known, budget=NODES).astype(np.int64)
    probability = np.exp(universe.logq[:, :, 0].astype(np.float64))
    on_spine = np.logical_and.accumulate(ranks_of(universe, rounds.continuation) == 0, axis=1)
    depth = np.arange(1, universe.depth_max + 1)
    return (
        sorted_masses(universe, NODES),
        np.where(entry > NODES, NOT_HELD, entry),
        np.cumprod(probability, axis=1),
        np.where(on_spine, depth, NOT_HELD),
        probability,
    )
