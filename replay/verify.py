"""Sampled verification (Theorem 3): which sibling is accepted, and the exact law of anything that draws.

Two exact verifiers walk a tree. The *direct* one draws from the target's law and goes down while a child carries the
token. The *recursive* one draws siblings from the drafter's proposal and accepts or rejects them. Both accept at a node
with probability p(its children): a sibling is rejected only where its residual mass is below its proposal, and then
keeps none, so nothing of the children's mass is left over for the final draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Outcome = TypeVar("Outcome")


class Dice(Protocol):
    """The random stream of one request."""

    def pick(self, weights: Any) -> int:
        """An index, with probability in proportion to its weight; none of weight 0."""
        ...

    def coin(self, chance: float) -> bool:
        """True with probability `chance`; never at 0, always at 1."""
        ...


def accept_sibling(mass: Floats, outside: float, proposal: Floats, dice: Dice) -> int | None:
    """The sibling that recursive speculative sampling without replacement accepts, or None.

    After None, a draw from the target's law without the siblings completes the round: it is the final residual.

    Args:
        mass: (m,) target probabilities of the siblings.
        outside: the target's probability of all other tokens. Together they need not sum to 1: rounding is made good.
        proposal: (m,) positive; its scale is of no account. Siblings of no proposal are not for this verifier.
        dice: draws the candidates and tosses the coins.

    Raises:
        ValueError: a proposal that is not positive, or no mass at all.

    Source: the rule of Theorem 3. `mu` is kept on the siblings alone, since a proposal takes mass from nothing else.
    """
    total = float(mass.sum() + outside)
    if not (proposal > 0).all() or not total > 0:
        raise ValueError("proposals must be positive, and the target must have mass")
    left = np.arange(len(mass))
    mu, rest = mass / total, outside / total
    while len(left):
        available = proposal[left] / proposal[left].sum()
        drawn = dice.pick(available)
        candidate = int(left[drawn])
        if dice.coin(min(1.0, float(mu[candidate] / available[drawn]))):
            return candidate
        mu[left] = np.maximum(mu[left] - available, 0.0)
        scale = float(mu[left].sum() + rest)
        if scale <= 0:  # only rounding can reject where proposal and residual are one
            return candidate
        mu, rest = mu / scale, rest / scale
        left = np.delete(left, drawn)
    return None


def outcomes(run: Callable[[Dice], Outcome]) -> Iterator[tuple[float, Outcome]]:
    """Everything that a procedure can come to, each with its exact probability.

    `run` is called once for each path through its draws, so it must depend on nothing but its dice.
    """
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        dice = _Scripted(waiting.pop())
        outcome = run(dice)
        waiting += dice.others
        yield dice.probability, outcome


def law_of(run: Callable[[Dice], Outcome]) -> dict[Outcome, float]:
    """The exact law of what a procedure comes to."""
    law: dict[Outcome, float] = {}
    for probability, outcome in outcomes(run):
        law[outcome] = law.get(outcome, 0.0) + probability
    return law


class _Scripted:
    """Dice that follow a script and then take what comes first, noting what else could have come."""

    def __init__(self, script: tuple[int, ...]) -> None:
        self.probability = 1.0
        self.others: list[tuple[int, ...]] = []
        self._script = script
        self._taken: tuple[int, ...] = ()

    def pick(self, weights: Any) -> int:
        chances = np.asarray(weights, np.float64)
        chances = chances / chances.sum()
        possible = np.flatnonzero(chances > 0).tolist()
        depth = len(self._taken)
        if depth < len(self._script):
            chosen = self._script[depth]
        else:
            chosen = possible[0]
            self.others += [(*self._taken, other) for other in possible[1:]]
        self._taken += (chosen,)
        self.probability *= float(chances[chosen])
        return int(chosen)

    def coin(self, chance: float) -> bool:
        return self.pick(np.array([chance, 1.0 - chance])) == 0
