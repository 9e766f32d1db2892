"""Recording: the target's answers, then the drafter's marginals at every position of them, as a run folder."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from castsim.errors import OptionError, PromptError
from castsim.foreign import sequences_frame
from castsim.manifest import Facts
from castsim.models.answers import continuations
from castsim.models.chat import Chat, end_ids
from castsim.models.drafter import Drafter
from castsim.models.marginals import DenseRows, dense_rows
from castsim.models.sampling import Sampling
from castsim.prompts import Conversation
from castsim.runlog import assembled
from castsim.runlog import continuations as known_after
from castsim.runparts import join_parts, part_folder
from castsim.runwriter import RunWriter, rounds_frame
from replay import Marginals, Rounds, accepted, committed
from replay.policies import Policy, policy_entry_budgets
from replay.trajectory import walk


@dataclass(frozen=True)
class RecordOptions:
    """How a run is recorded.

    Attributes:
        new_tokens: limit of an output.
        rank_kept: K, candidates kept at each future position.
        batch: conversations that the target answers at once, which is also what a crash can cost.
        with_target: keep the target's log-probabilities at the candidates.
        sparse: policy whose rounds alone are kept; None keeps every position.
    """

    new_tokens: int = 128
    rank_kept: int = 16
    batch: int = 16
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    with_target: bool = False
    sparse: Policy | None = None


@dataclass(frozen=True)
class Recorder:
    """A pair that records conversations; the target is the drafter's own.

    Raises:
        OptionError: more candidates are to be kept than the drafter has.
    """

    drafter: Drafter
    chat: Chat
    options: RecordOptions

    def __post_init__(self) -> None:
        if self.options.rank_kept > self.drafter.vocab_size:
            raise OptionError(
                f"--rank-kept {self.options.rank_kept}: the drafter knows {self.drafter.vocab_size} tokens"
            )

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Every id that ends an output."""
        return end_ids(self.drafter.target.model, self.chat.tokenizer)

    def facts(self, licence: str | None) -> Facts:
        """What the manifest says of such a run."""
        drafter, options, target = self.drafter, self.options, self.drafter.target
        return Facts(
            layout="dense" if options.sparse is None else "sparse",
            depth_max=drafter.depth_max,
            rank_kept=options.rank_kept,
            logged_by=None if options.sparse is None else f"{options.sparse.name} at budget {options.sparse.budget}",
            vocab_size=target.vocab_size,
            draft_vocab_size=drafter.vocab_size,
            eos_ids=self.eos_ids,
            target=target.name,
            target_revision=target.revision,
            drafter=drafter.name,
            drafter_revision=drafter.revision,
            dtype=str(target.dtype).removeprefix("torch."),
            device=device_name(target.device),
            attention="sdpa",
            versions={name: importlib.metadata.version(name) for name in ("torch", "transformers")},
            temperature=options.sampling.temperature,
            top_k=options.sampling.top_k,
            top_p=options.sampling.top_p,
            new_tokens=options.new_tokens,
            template="raw" if self.chat.raw else "chat",
            thinking=self.chat.thinking,
            seed=options.seed,
            licence=licence,
        )

    def sequences_max(self) -> int:
        """Longest sequence that both models take."""
        return min(self.drafter.target.positions_max, self.drafter.positions_max)

    def first_prompt(self, conversation: Conversation) -> list[int]:
        """Ids of a conversation's first turn.

        Raises:
            PromptError: it is empty, or leaves no room for an answer.
        """
        return self._fitting(conversation, [{"role": "user", "content": conversation.turns[0]}])

    def batch(self, conversations: Sequence[Conversation]) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Sequences and rounds of some conversations, all turns of each."""
        answers = [answer for turn in self._turns(conversations) for answer in turn]
        answers.sort(key=lambda answer: answer.number)
        numbers = pl.Series("prompt", [answer.number for answer in answers], dtype=pl.Int32)
        sequences = sequences_frame(self._row(answer) for answer in answers).with_columns(numbers)
        return sequences, pl.concat(self._rounds(a, sequences.filter(pl.col("prompt") == a.number)) for a in answers)

    def _fitting(self, conversation: Conversation, messages: list[dict[str, str]]) -> list[int]:
        ids = self.chat.ids(messages, conversation.place)
        if len(ids) >= self.sequences_max():
            raise PromptError(
                conversation.place,
                f"is {len(ids)} tokens long, the models take {self.sequences_max()} with the answer",
                "shorten it or leave it out",
            )
        return ids

    def _turns(self, conversations: Sequence[Conversation]) -> Iterator[list[Answer]]:
        """The answers to the first turns, then to the second ones, and so on."""
        said: dict[int, list[dict[str, str]]] = {c.number: [] for c in conversations}
        for turn in range(max(len(c.turns) for c in conversations)):
            asked = [c for c in conversations if turn < len(c.turns)]
            for c in asked:
                said[c.number].append({"role": "user", "content": c.turns[turn]})
            found = self._answers(asked, turn, [self._fitting(c, said[c.number]) for c in asked])
            for c, answer in zip(asked, found, strict=True):
                said[c.number].append({"role": "assistant", "content": self.chat.said(answer.output)})
            yield found

    def _answers(self, asked: list[Conversation], turn: int, prompts: list[list[int]]) -> list[Answer]:
        options = self.options
        seeds = [(options.seed, c.number + turn) for c in asked]
        target = self.drafter.target
        found = continuations(target, prompts, options.new_tokens, self.eos_ids, options.sampling, seeds)
        room = [self.sequences_max() - len(prompt) for prompt in prompts]
        return [
            Answer(c, turn, prompt, output[:most])
            for c, prompt, output, most in zip(asked, prompts, found, room, strict=True)
        ]

    def _row(self, answer: Answer) -> dict[str, Any]:
        ended = answer.output[-1] in self.eos_ids
        return {
            "prompt_id": answer.prompt_id,
            "domain": answer.conversation.domain,
            "prompt_tokens": answer.prompt,
            "output_tokens": answer.output,
            "finish": "stop" if ended else "length",
        }

    def _rounds(self, answer: Answer, sequences: pl.DataFrame) -> pl.DataFrame:
        """Rows of one answer; of a sparse log, those that the policy plays."""
        options = self.options
        rows = dense_rows(self.drafter, answer.prompt, answer.output, options.rank_kept, options.with_target)
        position = np.arange(len(answer.output) - 1)
        prompt = np.full(len(position), answer.number)
        found = known_after(sequences, prompt, position, self.drafter.depth_max)
        rounds = assembled(self.facts(None), Marginals(rows.token, rows.logq), found, prompt, position)
        frame = rounds_frame(rounds, sequences).with_columns(**_extra(rows, options.sampling.temperature == 0))
        return frame if options.sparse is None else frame.filter(_played(options.sparse, rounds))


@dataclass(frozen=True)
class Answer:
    """What the target said in one turn: ids of the whole prompt, and of the output."""

    conversation: Conversation
    turn: int
    prompt: list[int]
    output: list[int]

    @property
    def number(self) -> int:
        """Of the sequence in the run."""
        return self.conversation.number + self.turn

    @property
    def prompt_id(self) -> str:
        """The conversation's, and from the second turn on its turn."""
        return self.conversation.prompt_id + (f"#{self.turn + 1}" if self.turn else "")


def record(
    recorder: Recorder,
    conversations: Sequence[Conversation],
    out: Path,
    shard: tuple[int, int] = (1, 1),
    licence: str | None = None,
    done: Callable[[float], None] = lambda _: None,
) -> bool:
    """Record this shard's conversations, number `shard[0]` of `shard[1]`; returns whether the run is whole now.

    What an earlier, broken recording of the same shard completed is kept. The last shard to end joins all.

    Raises:
        PromptError: a prompt is empty or too long; nothing is run then.
        RunLogError: see `RunWriter`.
    """
    own = conversations[shard[0] - 1 :: shard[1]]
    for conversation in own:
        recorder.first_prompt(conversation)
    facts = recorder.facts(licence)
    with RunWriter(part_folder(out, shard), facts) as writer:
        left = [c for c in own if c.prompt_id not in writer.prompts_done]
        size = recorder.options.batch
        for i in range(0, len(left), size):
            done((len(own) - len(left) + i) / len(own))
            writer.add(*recorder.batch(left[i : i + size]))
    return join_parts(out, shard[1], facts)


def _extra(rows: DenseRows, greedy: bool) -> dict[str, pl.Series]:
    """The optional columns of the schema."""
    columns = {"true_rank": rows.true_rank, "true_logq": rows.true_logq, "damaged": rows.damaged}
    if greedy:
        columns["disagreed"] = rows.disagreed
    if rows.target_logp is not None:
        columns["target_logp"] = rows.target_logp
    return {name: pl.Series(name, values) for name, values in columns.items()}


def _played(policy: Policy, rounds: Rounds) -> np.ndarray:
    """(B,) the rounds of one prompt that a decoder under this policy would have had."""
    entry, _ = policy_entry_budgets(policy, rounds)
    return walk(rounds, committed(accepted(entry, [policy.budget]), rounds.remaining))[:, 0]


def device_name(device: torch.device) -> str:
    """What a device is called."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
