"""What a decode should take: rounds and tokens from a replay, times of a round's parts from measurements."""

from __future__ import annotations

from dataclasses import dataclass

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
