"""Down the tree: who names the next token at a row, and how far the tree follows."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from castsim.live.models.sampling import Sampling, draw, first, law
from castsim.scoring.tree import Tree
from replay.verify import Dice, accept_sibling

Chooser = Callable[[int], int]  # row -> the token behind its prefix
Verifier = Callable[[Tree, Tensor, Sampling, Dice], Chooser]


class NotFiniteError(ArithmeticError):
    """The target's logits hold NaN or infinity."""


def walk(tree: Tree, choose: Chooser) -> tuple[list[int], int]:
    """Rows of the root and the accepted path, and the token behind them, which becomes the next root.

    Source: section 2 and appendix C, "The round". The row of the last accepted node chooses, not the row of its depth.
    """
    rows = [0]
    while True:
        token = choose(rows[-1])
        below = tree.child(rows[-1], token)
        if below is None:
            return rows, token
        rows.append(below)


def greedy(tree: Tree, logits: Tensor, sampling: Sampling, dice: Dice) -> Chooser:
    """The target's first choice at each row; of equal ones the smallest id."""
    if logits.is_cuda:  # one transfer; on a CPU a row is had when it is asked for
        best = torch.stack([first(logits), torch.isfinite(logits.amax(dim=-1))]).tolist()
        return lambda row: _finite(best[0][row], best[1][row])

    def choose(row: int) -> int:
        token = int(first(logits[row]))
        return _finite(token, math.isfinite(logits[row, token]))

    return choose


def direct(tree: Tree, logits: Tensor, sampling: Sampling, dice: Dice) -> Chooser:
    """A draw from the target's law: the direct sampled walk of appendix C."""
    return lambda row: dice.pick(_law(logits[row], sampling))


def recursive(tree: Tree, logits: Tensor, sampling: Sampling, dice: Dice) -> Chooser:
    """Recursive speculative sampling among the siblings below a row (Theorem 3)."""

    def choose(row: int) -> int:
        chances = _law(logits[row], sampling)
        below = tree.children(row)
        below = below[tree.proposal[below] > 0]  # Theorem 3 asks for a positive proposal
        if not len(below):
            return dice.pick(chances)
        token = torch.from_numpy(tree.token[below]).to(chances.device)
        mass = chances[token].double().cpu().numpy()
        rest = chances.index_fill(0, token, 0.0)
        found = accept_sibling(mass, float(rest.double().sum()), tree.proposal[below], dice)
        return dice.pick(rest) if found is None else int(tree.token[below[found]])

    return choose


VERIFIERS: dict[str, Verifier] = {"direct": direct, "recursive": recursive}


class RandomDice:
    """Dice from one generator: one number in [0, 1) a pick or a coin."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def pick(self, weights: Tensor | np.ndarray) -> int:
        """See `replay.verify.Dice`; weights on any device."""
        chances = torch.as_tensor(weights)
        uniform = torch.tensor([self._rng.random()], dtype=torch.float64, device=chances.device)
        return int(draw(chances[None], uniform))

    def coin(self, chance: float) -> bool:
        """See `replay.verify.Dice`."""
        return bool(self._rng.random() < chance)


def _finite(token: int, finite: bool) -> int:
    if not finite:
        raise NotFiniteError
    return token


def _law(logits: Tensor, sampling: Sampling) -> Tensor:
    chances = law(logits, sampling)
    if not torch.isfinite(chances.sum()):
        raise NotFiniteError
    return chances
