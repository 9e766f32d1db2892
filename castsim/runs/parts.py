"""A run that several processes record: each writes a part of its own beside the run, the last to end joins them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import filelock
import numpy as np
import polars as pl

from castsim.base.errors import OptionError, RunLogError
from castsim.runs.manifest import NAME, Facts, digest_of_file
from castsim.runs.reading import open_run
from castsim.runs.writing import prompt_shards, refuse_taken, whole_run

COUNTED = {
    "damaged": "positions are damaged: the drafter returned NaN there, so their candidates have no mass and no order.",
    "disagreed": "tokens are not the target's first choice when the whole text is read at once.",
}


def shard_of(text: str) -> tuple[int, int]:
    """`i/n` as numbers, i from 1 to n.

    Raises:
        OptionError: it is something else.
    """
    first, slash, count = text.partition("/")
    if slash and first.isdecimal() and count.isdecimal() and 1 <= int(first) <= int(count) <= 999:
        return int(first), int(count)
    raise OptionError(f"--shard {text}: give i/n, the number of this process and how many there are, as in 1/4")


def parts_folder(out: Path) -> Path:
    """Where the parts of an unfinished run are: beside it, so that the run appears when it is whole."""
    return out.with_name(f"{out.name}.parts")


def part_folder(out: Path, shard: tuple[int, int]) -> Path:
    """The part of shard i of n.

    Raises:
        RunLogError: the run is there already, or its parts were begun with another n.
    """
    refuse_taken(out)
    own = parts_folder(out) / f"{shard[0]:03d}-of-{shard[1]:03d}"
    begun = [f.name for f in parts_folder(out).glob("*-of-*") if not f.name.endswith(own.name[3:])]
    if begun:
        raise RunLogError(out, f"was begun with shard {begun[0]}", "repeat --shard as it was, or name a new folder")
    return own


def is_whole(part: Path) -> bool:
    """Whether a part was finished."""
    return (part / NAME).exists()


def missing_parts(out: Path, count: int) -> list[int]:
    """Numbers, from 1, of the parts that are not whole yet."""
    return [i for i in range(1, count + 1) if not is_whole(parts_folder(out) / f"{i:03d}-of-{count:03d}")]


def join_parts(out: Path, count: int, facts: Facts, sequences: int) -> bool:
    """Make one run of all parts if all are whole; whoever comes second finds it made. True if the run is whole.

    The run is read back before it appears and before the parts go; a join that was killed is done again.

    Args:
        sequences: how many there should be; fewer are noted.

    Raises:
        RunLogError: the parts were recorded with different settings, are damaged, or make no sound run.
    """
    parts = [parts_folder(out) / f"{i:03d}-of-{count:03d}" for i in range(1, count + 1)]
    with filelock.FileLock(parts_folder(out) / ".lock"):
        if out.exists():
            return True
        if missing_parts(out, count):
            return False
        for part in parts:
            _check_part(part, facts)
        with whole_run(out, facts, scratch=parts_folder(out)) as writer:
            for frames in _in_order(parts):
                writer.add(*frames)
            writer.notes += _notes(parts, sequences)
        delete_parts(out)
    return True


def delete_parts(out: Path) -> None:
    """Delete the parts of a run under another name, so that a kill leaves no half of them that looks whole."""
    gone = out.with_name(f".{out.name}.gone")
    shutil.rmtree(gone, ignore_errors=True)  # what such a kill left
    os.replace(parts_folder(out), gone)
    shutil.rmtree(gone)


def _check_part(part: Path, facts: Facts) -> None:
    """Raise `RunLogError` for a part of another recording, or one that lacks what its manifest lists."""
    run, again = open_run(part), "delete it and record this shard again"
    if run.facts != facts:
        raise RunLogError(part, "was recorded with other settings", again)
    for entry in run.manifest.files:
        file = part / entry.name
        if not file.is_file() or digest_of_file(file) != entry.sha256:
            raise RunLogError(part, f"has lost {entry.name}, or it is damaged", again)


def _files(parts: list[Path], kind: str) -> list[Path]:
    """Those that the parts' manifests list."""
    listed = ((part, entry.name) for part in parts for entry in open_run(part).manifest.files)
    return [part / name for part, name in listed if name.startswith(kind)]


def _in_order(parts: list[Path]) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """All prompts by number, in shards of about the usual size."""
    sequences = pl.concat(pl.read_parquet(file, glob=False) for file in _files(parts, "sequences")).sort("prompt")
    rows = sequences["output_tokens"].list.len().to_numpy().astype(np.int64) - 1  # of a sparse log, at most
    for shard in prompt_shards(rows):
        chosen = sequences[shard]
        rounds = [
            pl.scan_parquet(file, glob=False).filter(pl.col("prompt").is_in(chosen["prompt"].to_list()))
            for file in _files(parts, "rounds")
        ]
        yield chosen, pl.concat(rounds).collect().sort("prompt", "position")


def _notes(parts: list[Path], sequences: int) -> list[str]:
    """What a reader of the numbers must know of damaged rows, of disagreement, and of turns that did not fit."""
    rounds = pl.concat(pl.scan_parquet(file, glob=False) for file in _files(parts, "rounds"))
    known = [name for name in COUNTED if name in rounds.collect_schema()]
    counts = rounds.select(pl.col(known).sum()).collect().row(0, named=True) if known else {}
    notes = [f"{count} {COUNTED[name]}" for name, count in counts.items() if count]
    lost = sequences - sum(open_run(part).manifest.prompts for part in parts)
    if lost:
        notes.append(f"{lost} later turns of conversations did not fit into the context and were left out.")
    return notes
