"""Is the decoder exact on this pair? What the theorems promise, held against slow and obvious computations (torch)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        name: the claim.
        cases: how many were looked at.
        worst, limit: largest deviation and what is allowed, in the claim's own unit; None where cases are counted.
        passed: whether the claim held.
        note: where and what, for a reader who must look further.
    """

    name: str
    cases: int
    worst: float | None
    limit: float | None
    passed: bool
    note: str = ""


@dataclass(frozen=True)
class CheckOptions:
    """How much is checked.

    Attributes:
        new_tokens: length of the outputs that are compared.
        budgets: of every policy in the greedy grid.
        near_tie: largest difference of two logits that a narrow type may turn round (paper, "near-ties": .25).
        draws: walks of each verifier on each tree.
        seed: of all random streams.
    """

    new_tokens: int = 24
    budgets: tuple[int, ...] = (15, 63)
    near_tie: float = 0.25
    draws: int = 1000
    seed: int = 0
