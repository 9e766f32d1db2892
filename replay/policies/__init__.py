"""Tree policies, one file each. A new policy is one file here: `load_policies` finds it, and so do the command line,
its help and the contract tests.

A policy is a frozen dataclass. Its class says its name and whether it is nested; its fields are `budget` and its
options, all with defaults. It sees the marginals of a batch and never the continuation.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from replay.accept import entry_budgets, forest_entry_budgets
from replay.forest import Forest
from replay.rounds import Marginals, Rounds

LARGEST = 2**16  # a budget or width beyond this is a slip of the hand
_NODES_AT_ONCE = 2**18  # bounds the memory of a forest


class Policy(Protocol):
    """Chooses candidate trees of at most `budget` nonroot nodes."""

    name: ClassVar[str]  # what --policy says
    nested: ClassVar[bool]  # is the budget-n tree a head of every larger budget's tree?

    @property
    def budget(self) -> int: ...

    def __call__(self, marginals: Marginals) -> Forest:
        """Trees for B rounds of marginals (B, L, K), with at most `budget` nonroot columns."""
        ...


@runtime_checkable
class BestFirst(Protocol):
    """A policy whose tree is best-first inside a universe: its entry budgets need no tree."""

    def universe(self, marginals: Marginals) -> Marginals: ...


@runtime_checkable
class Adaptive(BestFirst, Protocol):
    """A best-first policy that cuts each round's tree where the round's own scores say."""

    def widths(self, score: NDArray[np.float64]) -> NDArray[np.int64]:
        """Nodes to keep (B,), or more than there are, of trees whose N = budget nodes score (B, N) in entry order, -inf
        where there is none."""
        ...


@runtime_checkable
class Measured(Protocol):
    """A policy that wants a rank-acceptance table (L, K) measured on other prompts than those it decodes."""

    def measured(self, table: NDArray[np.float64]) -> Policy: ...


@runtime_checkable
class Priced(Protocol):
    """A policy that weighs nodes against what a round costs; without a price every node is free to it."""

    def priced(self, round_ms: NDArray[np.float64], mass: NDArray[np.float64]) -> Policy:
        """This policy with the time of a round at each budget (N+1,) and the deployment's mean masses (N,), for N up
        to its own budget or more.
        """
        ...


def load_policies() -> dict[str, type[Policy]]:
    """All policies of this folder by name."""
    found: dict[str, type[Policy]] = {}
    for module in pkgutil.iter_modules(__path__):
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, type) and "nested" in vars(value) and value.__module__ == f"{__name__}.{module.name}":
                found[vars(value)["name"]] = value
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def policy_entry_budgets(policy: Policy, rounds: Rounds) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """What a policy's trees hold of the continuation, and how large they are.

    Returns:
        entry: (B, L) entry budget of each prefix Y_1:d, `budget + 1` where the tree lacks it. For a policy that is not
            nested this is membership only: it counts at the policy's own budget.
        width: (B,) nonroot nodes of each tree, fewer than the budget where the universe is smaller.
    """
    if isinstance(policy, BestFirst) and not isinstance(policy, Adaptive):
        return _by_count(policy, policy.universe(rounds.marginals), rounds)
    step = max(1, _NODES_AT_ONCE // policy.budget)
    parts = [rounds.take(slice(i, i + step)) for i in range(0, max(len(rounds), 1), step)]
    entry, width = zip(*(_by_forest(policy, part) for part in parts), strict=True)
    return np.concatenate(entry), np.concatenate(width)


def _by_count(policy: Policy, universe: Marginals, rounds: Rounds) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """A best-first policy needs no trees: see `replay.accept`."""
    depth, rank_kept = universe.depth_max, universe.rank_kept
    target, known = rounds.continuation[:, :depth], np.minimum(rounds.known, depth)
    entry = entry_budgets(universe, target, known, budget=policy.budget)
    missing = np.full((len(rounds), rounds.marginals.depth_max - depth), policy.budget + 1, np.int32)
    size = min(policy.budget, sum(rank_kept**d for d in range(1, depth + 1)))
    return np.hstack([entry, missing]), np.full(len(rounds), size, np.int32)


def _by_forest(policy: Policy, rounds: Rounds) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    forest = policy(rounds.marginals)
    entry = forest_entry_budgets(forest, rounds.continuation, rounds.known, rounds.marginals.depth_max)
    return np.where(entry > forest.budget, policy.budget + 1, entry).astype(np.int32), forest.width


def require_counts(**options: int | tuple[int, ...]) -> None:
    """Refuse options that must be whole numbers in 1..LARGEST, or sequences of such.

    Raises:
        ValueError: names the option and its value.
    """
    for name, value in options.items():
        numbers = value if isinstance(value, tuple) else (value,)
        if not numbers or not all(isinstance(n, (int, np.integer)) and 1 <= n <= LARGEST for n in numbers):
            raise ValueError(f"{name} must be at least 1 and at most {LARGEST}, not {value}")
