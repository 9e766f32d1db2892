"""Run folders of simulated rounds, in the schema of recorded ones."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from castsim import __version__
from castsim.base.errors import OptionError, RunLogError, WorkerError
from castsim.base.workers import Workers
from castsim.profiles.model import RANKS, Model, Splits, draw, split_tables
from castsim.runs.manifest import Facts
from castsim.runs.parts import delete_parts, is_whole, parts_folder
from castsim.runs.schema import SEQUENCES
from castsim.runs.writing import ROWS_IN_SHARD, RunWriter, put_in_place, refuse_taken, rounds_frame
from replay import Marginals, Rounds, accepted, committed, policy_entry_budgets, walk
from replay.policies import Policy

EOS = 0  # id of the end of sequence; no other token has it
PROMPT_TOKENS = 16  # of every prompt, so that contexts have a length
TOKEN_STREAM = 2  # beside those of `castsim.profiles.model`


@dataclass(frozen=True)
class Shape:
    """What is simulated.

    Attributes:
        prompts, tokens: outputs, and the longest of them.
        depth_max, rank_kept: L and K of the log.
        eos_rate: chance of each token behind the first to be the output's last.
        sparse: policy whose rounds alone are kept; None keeps every position.

    Raises:
        OptionError: a number outside its range.
    """

    prompts: int
    tokens: int = 256
    depth_max: int = 15
    rank_kept: int = 16
    vocab_size: int = 32_000
    eos_rate: float = 0.0
    seed: int = 0
    domain: str = "simulated"
    sparse: Policy | None = None

    def __post_init__(self) -> None:
        if min(self.prompts, self.depth_max, self.rank_kept) < 1 or self.tokens < 2:
            raise OptionError("prompts, --depth-max and --rank-kept must be at least 1, --tokens at least 2")
        if self.rank_kept > RANKS:
            raise OptionError(
                f"--rank-kept {self.rank_kept}: the model tells {RANKS} ranks apart; give at most so many"
            )
        if self.vocab_size < 2 * RANKS:
            raise OptionError(f"--vocab-size {self.vocab_size}: give at least {2 * RANKS}")
        if not 0 <= self.eos_rate < 1:
            raise OptionError(f"--eos-rate {self.eos_rate}: give a chance in 0 to below 1")

    @property
    def prompts_in_shard(self) -> int:
        """Whole prompts whose rows fill a shard."""
        return max(1, ROWS_IN_SHARD // (self.tokens - 1))


class Part(NamedTuple):
    """Some prompts: frames of the schema."""

    sequences: pl.DataFrame
    rounds: pl.DataFrame


def simulate_run(
    model: Model, shape: Shape, folder: Path, source: str, jobs: int = 1, done: Callable[[float], None] = lambda _: None
) -> None:
    """Write a run folder, which appears when it is whole. Every prompt has streams of its own, so shards may be made
    by any number of processes, and what a broken simulation of the same kind completed is kept.

    Raises:
        RunLogError: the folder exists, cannot be written, or was begun with other settings.
        WorkerError: a process was killed; it says how many shards are whole, and where they wait.
    """
    part = _part_folder(model, shape, folder)
    if not is_whole(part):
        _simulate_parts(model, shape, part, _facts(shape, source), jobs, done)
    put_in_place(part, folder)
    delete_parts(folder)


def _part_folder(model: Model, shape: Shape, folder: Path) -> Path:
    """Where shards wait until all are whole; its name is a digest of what is simulated, as facts do not tell it all.

    Raises:
        RunLogError: the run is there already, or shards of something else wait.
    """
    refuse_taken(folder)
    asked = repr((__version__, model, shape))
    own = parts_folder(folder) / hashlib.sha256(asked.encode()).hexdigest()[:16]
    if any(begun != own for begun in parts_folder(folder).glob("*")):
        remedy = f"repeat those, delete {parts_folder(folder)}, or name another folder"
        raise RunLogError(folder, "was begun with other settings", remedy)
    return own


def _simulate_parts(
    model: Model, shape: Shape, part: Path, facts: Facts, jobs: int, done: Callable[[float], None]
) -> None:
    """Simulate the shards of a run that are not there yet."""
    starts = range(0, shape.prompts, shape.prompts_in_shard)
    with RunWriter(part, facts) as writer:
        kept = len(writer.files) // 2  # shards come in order
        try:
            for made in Workers(jobs).each(lambda first: simulated_part(model, shape, first), starts[kept:]):
                writer.add(made.sequences, made.rounds)
                kept += 1
                done(kept / len(starts))
        except WorkerError as error:
            stay = f"{kept} of {len(starts)} parts are kept in {part.parent}" if kept else "no part is kept"
            raise WorkerError(f"{error}: {stay}") from error
        finally:
            if not kept:  # there is nothing to go on from
                shutil.rmtree(part.parent, ignore_errors=True)


def simulated_part(model: Model, shape: Shape, first: int) -> Part:
    """The prompts of one shard, from number `first` on."""
    numbers = range(first, min(first + shape.prompts_in_shard, shape.prompts))
    splits = split_tables(model, shape.depth_max)
    made = [_prompt(model, shape, number, splits) for number in numbers]
    sequences = pl.DataFrame([p.row for p in made], schema=SEQUENCES)
    rounds = _rounds(made, shape.depth_max)
    frame = rounds_frame(rounds, sequences)
    if shape.sparse is not None:
        entry, _ = policy_entry_budgets(shape.sparse, rounds)
        emitted = committed(accepted(entry, [shape.sparse.budget]), rounds.remaining)
        frame = frame.filter(walk(rounds, emitted)[:, 0])
    return Part(sequences, frame)


class Prompt(NamedTuple):
    """One simulated prompt: its row of the sequences; candidates (T-1, L, K), and what followed each root (T-1, L)."""

    row: dict[str, Any]
    token: NDArray[np.int32]
    logq: NDArray[np.float32]
    true: NDArray[np.int32]


def _prompt(model: Model, shape: Shape, number: int, splits: Splits) -> Prompt:
    rng = np.random.default_rng([shape.seed, number, TOKEN_STREAM])
    tokens, ended = _length(shape, rng)
    output = rng.integers(1, shape.vocab_size, size=tokens + shape.depth_max, dtype=np.int32)
    if ended:
        output[tokens - 1] = EOS
    row = {
        "prompt": number,
        "prompt_id": f"{shape.domain}-{number}",
        "domain": shape.domain,
        "prompt_tokens": rng.integers(1, shape.vocab_size, size=PROMPT_TOKENS).tolist(),
        "output_tokens": output[:tokens].tolist(),
        "finish": "stop" if ended else "length",
    }
    drawn = draw(model, number, tokens - 1, shape.depth_max, shape.rank_kept, shape.seed, splits)
    true = output[np.arange(tokens - 1)[:, None] + np.arange(1, shape.depth_max + 1)]  # going on behind the end
    token = candidates(true, drawn.rank, shape.rank_kept, shape.vocab_size, rng)
    return Prompt(row, token, drawn.logq, true)


def _rounds(made: list[Prompt], depth_max: int) -> Rounds:
    """The dense rounds of whole prompts."""
    count = [len(p.true) for p in made]
    position = np.concatenate([np.arange(n) for n in count])
    remaining = np.repeat(count, count) - position
    return Rounds(
        Marginals(np.concatenate([p.token for p in made]), np.concatenate([p.logq for p in made])),
        np.concatenate([p.true for p in made]),
        np.minimum(remaining, depth_max),
        np.repeat([p.row["prompt"] for p in made], count),
        position,
        remaining,
    )


def _length(shape: Shape, rng: np.random.Generator) -> tuple[int, bool]:
    """Tokens of an output, and whether an end of sequence is its last."""
    if not shape.eos_rate:
        return shape.tokens, False
    drawn = 1 + int(rng.geometric(shape.eos_rate))
    return (drawn, True) if drawn <= shape.tokens else (shape.tokens, False)


def candidates(
    true: NDArray[np.int32], rank: NDArray[np.int32], rank_kept: int, vocab_size: int, rng: np.random.Generator
) -> NDArray[np.int32]:
    """(B, L, K) distinct ids with the true one at its rank, if that is among the K; the others are a run of ids."""
    begin = true + 1 + rng.integers(vocab_size - rank_kept, size=true.shape, dtype=np.int32)
    token = (begin[..., None] + np.arange(rank_kept, dtype=np.int32)) % vocab_size
    held = rank < rank_kept
    token[(*np.nonzero(held), rank[held])] = true[held]
    return token.astype(np.int32)


def _facts(shape: Shape, source: str) -> Facts:
    sparse = shape.sparse
    return Facts(
        layout="dense" if sparse is None else "sparse",
        depth_max=shape.depth_max,
        rank_kept=shape.rank_kept,
        logged_by=None if sparse is None else f"{sparse.name} at budget {sparse.budget}",
        vocab_size=shape.vocab_size,
        eos_ids=(EOS,),
        new_tokens=shape.tokens,
        temperature=0.0,
        source=source,
        simulated=True,
        seed=shape.seed,
    )
