"""Committed round length R of policies on a run: each shard is tallied by prompt, the tallies become results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from castsim.base.errors import OptionError, RunLogError
from castsim.base.workers import HERE, Workers
from castsim.runs.reading import Run, Shard
from castsim.scoring.policies import Choice
from replay import Rounds, accepted, committed, policy_entry_budgets, walk
from replay.calibrate import rank_counts, rank_table
from replay.policies import Measured, Policy
from replay.policies.chain import Chain

Mode = Literal["walked", "per_round", "chain_rounds"]


@dataclass(frozen=True)
class Plan:
    """What to score.

    Attributes:
        choices: policies; the baseline, the whole chain, is always scored besides.
        budgets: nonroot nodes, rising.
        mode: "walked" plays each policy's own rounds on a dense log. "per_round" scores every logged round whose
            continuation is whole, "chain_rounds" those of them that a dense log's chain would play.
    """

    choices: tuple[Choice, ...]
    budgets: tuple[int, ...]
    mode: Mode

    def passes(self, depth_max: int) -> list[tuple[Choice, tuple[int, ...]]]:
        """Each policy with its budgets, the baseline first."""
        return [(BASELINE, (depth_max,)), *((choice, self.budgets) for choice in self.choices)]

    def columns(self, depth_max: int) -> list[tuple[Choice, int]]:
        """(policy, budget) of each column; the baseline is column 0."""
        return [(choice, budget) for choice, budgets in self.passes(depth_max) for budget in budgets]


BASELINE = Choice(Chain)  # standard DFlash decoding: the whole chain


@dataclass(frozen=True, eq=False)
class Tally:
    """Sums by prompt (P,) and column (C,).

    Attributes:
        prompt: (P,) prompt numbers, rising.
        rounds: (P, C) rounds that count towards R.
        censored: (P, C) rounds cut by the end of the output; walked, they are among `rounds`, per round, left out.
        committed, nodes: (P, C) emitted tokens and verified nonroot nodes of `rounds`.
        histogram: (P, C, L+1) rounds by accepted draft tokens A.
    """

    prompt: NDArray[np.int32]
    rounds: NDArray[np.int64]
    censored: NDArray[np.int64]
    committed: NDArray[np.int64]
    nodes: NDArray[np.int64]
    histogram: NDArray[np.int64]


def score(
    run: Run,
    plan: Plan,
    prompts: Sequence[int] | None,
    workers: Workers = HERE,
    done: Callable[[float], None] = lambda _: None,
) -> Tally:
    """Tally a run shard by shard; memory is bounded by a shard for each worker.

    Raises:
        OptionError: a walked replay of a sparse log.
        RunLogError: from reading, or where no round is left.
    """
    if run.facts.layout == "sparse" and plan.mode != "per_round":
        raise OptionError(
            f"--mode: {run.folder} is a sparse log, which can be scored per round only; use --mode per-round"
        )
    shards = run.shards
    tables = rank_tables(shards, prompts) if any(issubclass(c.kind, Measured) for c in plan.choices) else None
    tallies = []
    for tally in workers.each(lambda shard: _tally(shard, plan, prompts, tables), shards):
        tallies.append(tally)
        done(len(tallies) / len(shards))
    if not sum(len(t.prompt) for t in tallies):
        raise RunLogError(run.folder, "has no rounds to score", "choose other prompts, or record some")
    order = np.argsort(np.concatenate([t.prompt for t in tallies]))  # whichever shard a prompt lies in
    return Tally(**{f.name: np.concatenate([getattr(t, f.name) for t in tallies])[order] for f in fields(Tally)})


def rank_tables(shards: list[Shard], prompts: Sequence[int] | None) -> NDArray[np.float64]:
    """(2, L, K) rank-acceptance tables: number h is measured on prompts of the other half and serves half h."""
    counts = 0
    for shard in shards:
        rounds = shard.read_rounds(prompts)
        counts = counts + np.stack([rank_counts(rounds.take(rounds.prompt % 2 != half)) for half in (0, 1)])
    if not np.asarray(counts).sum(axis=(1, 2)).all():
        raise OptionError(
            "--policy sequoia: its table is measured on other prompts, so the run needs an even and an odd one"
        )
    return np.stack([rank_table(half) for half in counts])


def _tally(shard: Shard, plan: Plan, prompts: Sequence[int] | None, tables: NDArray[np.float64] | None) -> Tally:
    rounds = shard.read_rounds(prompts)
    accepted_count, width = _accepted(rounds, plan, tables)  # (B, C) each
    emitted = committed(accepted_count, rounds.remaining)
    cut = np.broadcast_to(rounds.censored[:, None], emitted.shape)
    if plan.mode == "walked":
        scored = walk(rounds, emitted)
        return _sums(rounds, scored, scored & cut, accepted_count, emitted, width)
    visited = walk(rounds, emitted[:, :1]) if plan.mode == "chain_rounds" else np.True_  # column 0 is the baseline
    return _sums(rounds, visited & ~cut, visited & cut, accepted_count, emitted, width)


def _sums(
    rounds: Rounds,
    scored: NDArray[np.bool_],
    censored: NDArray[np.bool_],
    accepted_count: NDArray[np.int32],
    emitted: NDArray[np.int32],
    width: NDArray[np.int32],
) -> Tally:
    """Sums over the rows of each prompt, from columns (B, C)."""
    order = np.argsort(rounds.prompt, kind="stable")
    prompt, first, which = np.unique(rounds.prompt[order], return_index=True, return_inverse=True)

    def total(values: NDArray[Any]) -> NDArray[np.int64]:
        return np.asarray(np.add.reduceat(values[order], first, axis=0, dtype=np.int64))

    row, column = np.nonzero(scored[order])
    shape = (len(prompt), scored.shape[1], rounds.marginals.depth_max + 1)
    cell = np.ravel_multi_index((which[row], column, accepted_count[order][row, column]), shape)
    histogram = np.bincount(cell, minlength=int(np.prod(shape))).reshape(shape)
    return Tally(prompt, total(scored), total(censored), total(scored * emitted), total(scored * width), histogram)


def _accepted(
    rounds: Rounds, plan: Plan, tables: NDArray[np.float64] | None
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Accepted tokens and tree sizes (B, C) of the plan's columns."""
    passes = plan.passes(rounds.marginals.depth_max)
    counts, widths = zip(*(_columns(choice, budgets, rounds, tables) for choice, budgets in passes), strict=True)
    return np.hstack(counts), np.hstack(widths)


def _columns(
    choice: Choice, budgets: tuple[int, ...], rounds: Rounds, tables: NDArray[np.float64] | None
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Accepted tokens and tree sizes (B, len(budgets)); one pass serves all budgets of a nested policy."""
    if choice.kind.nested:
        entry, width = policy_entries(choice.at(budgets[-1]), rounds, tables)
        return accepted(entry, budgets), np.minimum(width[:, None], budgets).astype(np.int32)
    counts, widths = [], []
    for budget in budgets:
        policy = choice.at(budget)
        entry, width = policy_entries(policy, rounds, tables)
        counts.append(accepted(entry, [policy.budget]))  # a priced policy's own may be smaller
        widths.append(width[:, None])
    return np.hstack(counts), np.hstack(widths)


def policy_entries(
    policy: Policy, rounds: Rounds, tables: NDArray[np.float64] | None
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """`policy_entry_budgets`, each half of the prompts with the table of the other half where the policy wants one."""
    if tables is None or not isinstance(policy, Measured):
        return policy_entry_budgets(policy, rounds)
    entry = np.empty((len(rounds), rounds.marginals.depth_max), np.int32)
    width = np.empty(len(rounds), np.int32)
    for half in (0, 1):
        rows = rounds.prompt % 2 == half
        entry[rows], width[rows] = policy_entry_budgets(policy.measured(tables[half]), rounds.take(rows))
    return entry, width


def domains_of(run: Run, domains: Sequence[str]) -> dict[int, str]:
    """Domain of each of the run's prompts, or of those in some domains; tokens are left to whoever reads rounds.

    Raises:
        OptionError: a domain that the run does not have.
    """
    for domain in domains:
        if domain not in run.manifest.domains:
            raise OptionError(
                f"--domain {domain}: the run has no such domain; it has {', '.join(run.manifest.domains)}"
            )
    names = run.sequences(("prompt", "prompt_id", "domain")).iter_rows()
    return {prompt: domain for prompt, _, domain in names if not domains or domain in domains}


def parts(tally: Tally, domain_of: dict[int, str]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """The prompts (P,) of each domain in order of name, and last of "all"."""
    domain = np.array([domain_of[prompt] for prompt in tally.prompt.tolist()])
    for name in sorted(set(domain.tolist())):
        yield name, domain == name
    yield "all", np.ones(len(domain), bool)
