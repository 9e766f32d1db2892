"""The round: draft, build, pack, verify, walk, commit. AR, the chain and every tree go through this one loop."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import torch

from castsim.base.errors import ModelError, OptionError
from castsim.live.decode.clock import Stopwatch
from castsim.live.decode.sequence import Sequence
from castsim.live.decode.trial import require_trees
from castsim.live.decode.walk import VERIFIERS, NotFiniteError, Verifier, greedy, walk
from castsim.live.models.attention import Windows, windows_of
from castsim.live.models.drafter import Drafter
from castsim.live.models.marginals import candidates
from castsim.live.models.sampling import Sampling
from castsim.scoring.tree import Tree, build, lone, ranks_used
from replay.policies import Policy
from replay.rounds import Marginals, RowError
from replay.verify import Dice


@dataclass(frozen=True)
class Round:
    """What a round did.

    Attributes:
        position: of its root in the output.
        packed: n, the tokens that the target read.
        accepted: A, draft tokens on the accepted path, those behind an end included.
        emitted: tokens that it added to the output, A + 1 unless the output ended.
        parts_ms: see `Stopwatch`.
    """

    position: int
    packed: int
    accepted: int
    emitted: tuple[int, ...]
    parts_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class Decoder:
    """A pair and how it decodes.

    Attributes:
        verifier: "direct" or "recursive", where the temperature is above 0.
        rank_kept: candidates that a policy sees at each future position, as many as a log that is compared keeps.

    Raises:
        OptionError: an unknown verifier.
        ModelError: a target whose attention no tree mask reaches.
    """

    drafter: Drafter
    eos_ids: tuple[int, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    verifier: str = "direct"
    rank_kept: int = 16

    def __post_init__(self) -> None:
        if self.verifier not in VERIFIERS:
            raise OptionError(f"--verifier {self.verifier}: there are {', '.join(VERIFIERS)}")
        _ = self.windows  # refused before anything is decoded

    @cached_property
    def windows(self) -> Windows:
        """The kinds of attention of the target, which a small tree has tried."""
        found = windows_of(self.drafter.target.model, self.drafter.target.name)
        require_trees(self.drafter.target, found)
        return found

    @property
    def verify(self) -> Verifier:
        """Who names the tokens."""
        return greedy if self.sampling.temperature == 0 else VERIFIERS[self.verifier]

    def begin(self, prompt: list[int], new_tokens: int, policy: Policy | None, dice: Dice) -> Sequence:
        """A sequence whose first token is out. Without a policy it is decoded autoregressively.

        The prompt is read up to its last token, and a round without a draft emits the first token of the output.

        Raises:
            ModelError: numbers that are not finite.
        """
        target = self.drafter.target
        limit = min(new_tokens, target.positions_max - len(prompt))
        rows = 1 if policy is None else policy.budget + 1
        with torch.inference_mode():
            sequence = Sequence(self.drafter, self.windows, prompt, limit, self.eos_ids, rows)
            sequence.prefill()
        self.round(sequence, None, dice, Stopwatch(target.device))
        return sequence

    def rounds(
        self, sequence: Sequence, policy: Policy | None, dice: Dice, clock: Stopwatch | None = None
    ) -> Iterator[Round]:
        """The rounds of a sequence to its end."""
        clock = clock or Stopwatch(self.drafter.target.device)
        while sequence.finish is None:
            yield self.round(sequence, policy, dice, clock)
        clock.close()

    @torch.inference_mode()
    def round(self, sequence: Sequence, policy: Policy | None, dice: Dice, clock: Stopwatch) -> Round:
        """One round: see appendix C."""
        position = len(sequence.output) - 1
        clock.start()
        marginals = self.draft(sequence, policy)
        clock.lap()
        tree = self.tree(sequence, policy, marginals)
        clock.lap()
        packed = sequence.packed(tree)
        clock.lap()
        clock.open()
        logits, features = sequence.read(packed)
        clock.lap()
        rows, token = self._walk(tree, logits[0], dice)
        clock.lap()
        emitted = sequence.commit(tree, rows, token, features)
        clock.lap()
        return Round(position, len(tree), len(rows) - 1, tuple(emitted), clock.parts_ms)

    def draft(self, sequence: Sequence, policy: Policy | None) -> Marginals | None:
        """The drafter's candidates; None in AR, before the last token, and behind the end of its context."""
        if policy is None or sequence.remaining == 1 or sequence.prefix + 1 >= self.drafter.positions_max:
            return None
        try:
            return candidates(self.drafter, sequence.draft_logits(), ranks_used(policy, self.rank_kept))
        except RowError as error:
            raise _not_finite(self.drafter.name, self.drafter.target.dtype) from error

    def tree(self, sequence: Sequence, policy: Policy | None, marginals: Marginals | None) -> Tree:
        """The policy's tree, without nodes that the end of the output puts out of reach."""
        if policy is None or marginals is None:
            return lone(sequence.root)
        return build(policy, marginals, sequence.root).down_to(sequence.remaining - 1)

    def _walk(self, tree: Tree, logits: torch.Tensor, dice: Dice) -> tuple[list[int], int]:
        try:
            return walk(tree, self.verify(tree, logits, self.sampling, dice))
        except NotFiniteError as error:
            raise _not_finite(self.drafter.target.name, logits.dtype) from error


def _not_finite(name: str, dtype: torch.dtype) -> ModelError:
    kind = str(dtype).removeprefix("torch.")
    return ModelError(name, f"returns NaN or infinity in {kind}", "use --dtype float32, or bfloat16 for float16")
