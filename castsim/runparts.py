"""A run that several processes record: each writes a part of its own, the last to end joins them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import filelock
import polars as pl

from castsim.errors import OptionError, RunLogError
from castsim.manifest import NAME, Facts
from castsim.runlog import open_run
from castsim.runwriter import ROWS_IN_SHARD, RunWriter

Frames = tuple[pl.DataFrame, pl.DataFrame]  # sequences, rounds


def shard_of(text: str) -> tuple[int, int]:
    """`i/n` as numbers, i from 1 to n.

    Raises:
        OptionError: it is something else.
    """
    first, slash, count = text.partition("/")
    if slash and first.isdecimal() and count.isdecimal() and 1 <= int(first) <= int(count) <= 999:
        return int(first), int(count)
    raise OptionError(f"--shard {text}: give i/n, the number of this process and how many there are, as in 1/4")


def part_folder(out: Path, shard: tuple[int, int]) -> Path:
    """Where shard i of n is written until all are whole.

    Raises:
        RunLogError: the run is finished, or its parts were begun with another n.
    """
    if (out / NAME).exists():
        raise RunLogError(out, "holds a finished run", "name another folder, or delete this one")
    own = out / f".part-{shard[0]:03d}-of-{shard[1]:03d}"
    others = [f.name for f in out.glob(".part-*-of-*") if not f.name.endswith(own.name[-7:])]
    if others:
        raise RunLogError(out, f"was begun with {others[0]}, not with {shard[1]} shards", "repeat --shard as it was")
    return own


def join_parts(out: Path, count: int, facts: Facts) -> bool:
    """Make one run of all parts if all are whole; whoever comes second finds it made. True if the run is whole.

    A join that was killed is taken up again: shards that were written stay.
    """
    parts = [out / f".part-{i:03d}-of-{count:03d}" for i in range(1, count + 1)]
    with filelock.FileLock(out / ".join.lock"):
        if (out / NAME).exists():
            return True
        if not all((part / NAME).exists() for part in parts):
            return False
        with RunWriter(out, facts) as writer:
            for sequences, rounds in _compacted(parts, writer.prompts_done):
                writer.add(sequences, rounds)
            writer.notes += _notes(parts)
    for part in parts:
        shutil.rmtree(part)
    (out / ".join.lock").unlink(missing_ok=True)
    return True


def _compacted(parts: list[Path], written: set[str]) -> Iterator[Frames]:
    """Shards of about `ROWS_IN_SHARD` rows, of all prompts that are not written yet."""
    waiting: list[Frames] = []
    for sequences, rounds in (frames for part in parts for frames in _frames(part)):
        left = sequences.filter(~pl.col("prompt_id").is_in(list(written)))
        if len(left) == 0:
            continue
        waiting.append((left, rounds.filter(pl.col("prompt").is_in(left["prompt"].to_list()))))
        if sum(len(r) for _, r in waiting) >= ROWS_IN_SHARD:
            yield _joined(waiting)
            waiting = []
    if waiting:
        yield _joined(waiting)


def _joined(frames: list[Frames]) -> Frames:
    sequences, rounds = zip(*frames, strict=True)
    return pl.concat(sequences), pl.concat(rounds)


def _frames(part: Path) -> Iterator[Frames]:
    for shard in open_run(part).shards:
        shard.read_rounds()  # checked before it is joined
        yield tuple(pl.read_parquet(shard.folder / e.name, glob=False) for e in (shard.sequences, shard.rounds))


def _notes(parts: list[Path]) -> list[str]:
    """What a reader of the numbers must know of damaged rows and of near-ties."""
    counts = dict.fromkeys(("damaged", "disagreed"), 0)
    for _, rounds in (frames for part in parts for frames in _frames(part)):
        for name in counts.keys() & set(rounds.columns):
            counts[name] += int(rounds[name].sum())
    notes = []
    if counts["damaged"]:
        notes.append(f"{counts['damaged']} positions are damaged (NaN from the drafter): their rounds accept nothing.")
    if counts["disagreed"]:
        notes.append(
            f"{counts['disagreed']} tokens are not the target's first choice when the whole text is read at once: "
            "near-ties that rounding decides."
        )
    return notes
