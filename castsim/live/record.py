"""Recording: the target's answers, then the drafter's marginals at every position of them, as a run folder."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import torch
from pydantic import ValidationError

from castsim.base.errors import OptionError, PromptError
from castsim.live.models.chat import Chat, end_ids
from castsim.live.models.continuations import continuations
from castsim.live.models.drafter import Drafter
from castsim.live.models.marginals import DenseRows, dense_rows
from castsim.live.models.sampling import Sampling
from castsim.runs.foreign import sequences_frame
from castsim.runs.manifest import Facts
from castsim.runs.parts import is_whole, join_parts, part_folder
from castsim.runs.prompts import Conversation, turn_id
from castsim.runs.reading import assembled
from castsim.runs.reading import continuations as known_after
from castsim.runs.writing import RunWriter, rounds_frame
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
    batch: int = 32
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

    def facts(self, conversations: Sequence[Conversation], licence: str | None) -> Facts:
        """What the manifest says of such a run.

        Raises:
            OptionError: a name or the licence holds control codes.
        """
        drafter, options, target = self.drafter, self.options, self.drafter.target
        told = {
            "layout": "dense" if options.sparse is None else "sparse",
            "depth_max": drafter.depth_max,
            "rank_kept": options.rank_kept,
            "logged_by": None if options.sparse is None else f"{options.sparse.name} at budget {options.sparse.budget}",
            "vocab_size": target.vocab_size,
            "draft_vocab_size": drafter.vocab_size,
            "eos_ids": self.eos_ids,
            "target": target.name,
            "target_revision": target.revision,
            "drafter": drafter.name,
            "drafter_kind": drafter.kind,
            "drafter_revision": drafter.revision,
            "dtype": str(target.dtype).removeprefix("torch."),
            "device": device_name(target.device),
            "attention": target.attention,
            "versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers")},
            "temperature": options.sampling.temperature,
            "top_k": options.sampling.top_k,
            "top_p": options.sampling.top_p,
            "new_tokens": options.new_tokens,
            "template": "raw" if self.chat.raw else "chat",
            "thinking": self.chat.thinking,
            "seed": options.seed,
            "target_logp": options.with_target,
            "source": f"{len(conversations)} conversations (SHA-256 {digest_of(conversations)})",
            "licence": licence,
        }
        try:
            return Facts(**told)
        except ValidationError as error:
            first = error.errors()[0]
            raise OptionError(f"{first['loc'][0]}: {first['msg'].lower()}; give plain text") from error

    @property
    def sequence_max(self) -> int:
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
        ids, place = self.chat.ids(messages, conversation.place), conversation.place
        if len(ids) >= self.sequence_max:
            long = f"is {len(ids)} tokens long, the models take {self.sequence_max} with the answer"
            raise PromptError(place, long, "shorten it or leave it out")
        if max(ids) >= (rows := self.drafter.target.embedding_rows):
            raise PromptError(
                place, f"has token {max(ids)}, the target embeds {rows}", "use the target's own tokenizer"
            )
        return ids

    def _turns(self, conversations: Sequence[Conversation]) -> Iterator[list[Answer]]:
        """The answers to the first turns, then to the second ones, and so on; a turn that does not fit ends its own."""
        said: dict[int, list[dict[str, str]]] = {c.number: [] for c in conversations}
        going = list(conversations)
        for turn in range(max(len(c.turns) for c in conversations)):
            asked = []
            for c in (c for c in going if turn < len(c.turns)):
                said[c.number].append({"role": "user", "content": c.turns[turn]})
                try:
                    asked.append((c, self._fitting(c, said[c.number])))
                except PromptError:
                    if turn == 0:
                        raise
            found = self._answers(turn, asked) if asked else []
            for answer in found:
                words = {"role": "assistant", "content": self.chat.said(answer.output)}
                said[answer.conversation.number].append(words)
            going = [c for c, _ in asked]
            yield found

    def _answers(self, turn: int, asked: list[tuple[Conversation, list[int]]]) -> list[Answer]:
        options, prompts = self.options, [prompt for _, prompt in asked]
        seeds = [(options.seed, c.number + turn) for c, _ in asked]
        limits = [min(options.new_tokens, self.sequence_max - len(prompt)) for prompt in prompts]
        found = continuations(self.drafter.target, prompts, limits, self.eos_ids, options.sampling, seeds)
        return [Answer(c, turn, prompt, output) for (c, prompt), output in zip(asked, found, strict=True)]

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
        vocab_size = self.drafter.target.vocab_size
        rounds = assembled(vocab_size, Marginals(rows.token, rows.logq), found, prompt, position)
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
        return turn_id(self.conversation.prompt_id, self.turn)


class Recorded(NamedTuple):
    """What one call did: whether the run is whole now, and how many rounds it wrote itself."""

    whole: bool
    rounds: int


def record(
    recorder: Recorder,
    conversations: Sequence[Conversation],
    out: Path,
    shard: tuple[int, int] = (1, 1),
    licence: str | None = None,
    done: Callable[[float], None] = lambda _: None,
) -> Recorded:
    """Record this shard's conversations, number `shard[0]` of `shard[1]`, in a part beside `out`.

    What an earlier, broken recording of the same shard completed is kept. The last shard to end joins all.

    Raises:
        PromptError: a prompt is empty or too long; nothing is run then.
        RunLogError: see `RunWriter` and `join_parts`.
    """
    own = conversations[shard[0] - 1 :: shard[1]]
    for conversation in own:
        recorder.first_prompt(conversation)
    facts, part = recorder.facts(conversations, licence), part_folder(out, shard)
    written = 0 if is_whole(part) else _record_part(recorder, own, part, facts, done)
    turns = sum(len(c.turns) for c in conversations)
    return Recorded(join_parts(out, shard[1], facts, turns), written)


def _record_part(
    recorder: Recorder, own: Sequence[Conversation], part: Path, facts: Facts, done: Callable[[float], None]
) -> int:
    """Record what is left of a part; returns the rounds written."""
    written, size = 0, recorder.options.batch
    with RunWriter(part, facts) as writer:
        left = [c for c in own if c.prompt_id not in writer.prompts_done]
        for i in range(0, len(left), size):
            done((len(own) - len(left) + i) / len(own))
            sequences, rounds = recorder.batch(left[i : i + size])
            writer.add(sequences, rounds)
            written += len(rounds)
    return written


def digest_of(conversations: Sequence[Conversation]) -> str:
    """SHA-256 of what is asked, so that a recording goes on with the same questions only."""
    asked = [(c.number, c.prompt_id, c.domain, c.turns) for c in conversations]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()


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
