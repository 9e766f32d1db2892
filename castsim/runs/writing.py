"""Writing run folders: a shard at a time, resumable, one writer, the manifest last."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import filelock
import numpy as np
import polars as pl

from castsim import __version__
from castsim.base.errors import RunLogError, first_line
from castsim.base.textfile import read_text, write_whole
from castsim.runs.manifest import NAME, Facts, FileEntry, Manifest, digest_of_file, write_manifest
from castsim.runs.reading import continuations, open_run
from castsim.runs.schema import SEQUENCES, optional_schema, rounds_schema
from replay import Marginals, Rounds

ROWS_IN_SHARD = 8192  # a shard is what a reader holds in memory: about 16 MB at L = 15, K = 16
ROWS_IN_GROUP = 1024
ZSTD_LEVEL = 9  # a twentieth smaller than the default, and reading is no slower
OWN_FILE = re.compile(r"(sequences|rounds)-\d{5}\.(parquet|part)|(manifest|unfinished)\.json\.part")
UNFINISHED = "unfinished.json"  # the facts of a run that has no manifest yet


class RunWriter:
    """Adds shards of whole prompts to a run folder; leaving the block without an exception finishes the run.

    A folder that was left unfinished is taken up again: its complete shards stay, half a shard is dropped, and
    `prompts_done` and `files` say what need not be recorded again.

    Raises:
        RunLogError: the run is finished already, another writer is at it, or it was begun with other facts.
    """

    def __init__(self, folder: Path, facts: Facts) -> None:
        self.folder, self.facts = folder, facts
        self._lock = filelock.FileLock(folder / ".lock", blocking=False)
        self.files: list[FileEntry] = []
        self._domains: set[str] = set()
        self.prompts_done: set[str] = set()
        self.notes: list[str] = []  # what only the end of a recording can tell

    def __enter__(self) -> RunWriter:
        self._not_finished()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
        except filelock.Timeout as error:
            raise RunLogError(self.folder, "is being written by another process", "wait for it to end") from error
        except OSError as error:
            raise RunLogError(self.folder, f"cannot be written ({error.strerror})", "name another folder") from error
        try:
            self._not_finished()  # another writer may have ended while this one waited
            self._take_up()
        except BaseException:
            self._unlock()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._unlock()

    def _unlock(self) -> None:
        self._lock.release()
        (self.folder / ".lock").unlink(missing_ok=True)

    def _not_finished(self) -> None:
        if (self.folder / NAME).exists():
            raise RunLogError(self.folder, "holds a finished run", "name another folder, or delete this one")

    def add(self, sequences: pl.DataFrame, rounds: pl.DataFrame) -> None:
        """Write one shard: prompts (columns `SEQUENCES`) and all their rounds (columns `rounds_schema`, and of
        `optional_schema` those that are there)."""
        number = len(self.files) // 2
        extra = {name: kind for name, kind in optional_schema(self.facts).items() if name in rounds.columns}
        for half, frame, schema in (
            ("rounds", rounds, {**rounds_schema(self.facts), **extra}),
            ("sequences", sequences, SEQUENCES),  # last: a shard counts once both are there
        ):
            file = self.folder / f"{half}-{number:05d}.parquet"
            part = file.with_suffix(".part")
            try:
                whole = frame.select(pl.col(name).cast(kind) for name, kind in schema.items())
                whole.write_parquet(part, compression_level=ZSTD_LEVEL, row_group_size=ROWS_IN_GROUP)
            except (OSError, pl.exceptions.PolarsError) as error:
                raise self._not_written(error) from error
            os.replace(part, file)
        self._count(number, sequences)

    def _not_written(self, error: Exception) -> RunLogError:
        kept = f"{len(self.prompts_done)} prompts are whole and stay"
        return RunLogError(
            self.folder, f"cannot be written to ({first_line(error)}); {kept}", "make room and repeat the command"
        )

    def _count(self, number: int, sequences: pl.DataFrame) -> None:
        self.files += [_entry(self.folder / f"{kind}-{number:05d}.parquet") for kind in ("sequences", "rounds")]
        self._domains |= set(sequences["domain"])
        self.prompts_done |= set(sequences["prompt_id"])

    def _take_up(self) -> None:
        begun = self.folder / UNFINISHED
        if begun.exists():
            self._same_facts(begun)
        else:
            self._put(begun, self.facts.model_dump_json(indent=1))
        while (file := self.folder / f"sequences-{len(self.files) // 2:05d}.parquet").exists():
            try:
                self._count(len(self.files) // 2, pl.read_parquet(file, glob=False))
            except (pl.exceptions.PolarsError, OSError):
                break  # damaged, as a power cut leaves it: recorded again with all behind it
        kept = {entry.name for entry in self.files}
        for file in self.folder.iterdir():
            if OWN_FILE.fullmatch(file.name) and file.name not in kept:
                file.unlink()

    def _put(self, file: Path, text: str) -> None:
        """Write a small file whole or not at all."""
        try:
            write_whole(file, text)
        except OSError as error:
            raise self._not_written(error) from error

    def _same_facts(self, begun: Path) -> None:
        try:
            same = Facts.model_validate_json(read_text(begun)) == self.facts
        except ValueError:  # a ValidationError is one
            same = False
        if not same:
            raise RunLogError(self.folder, "was begun with other settings", "repeat those, or name another folder")

    def _finish(self) -> None:
        rows = {kind: sum(f.rows for f in self.files if f.name.startswith(kind)) for kind in ("sequences", "rounds")}
        manifest = Manifest(
            castsim_version=__version__,
            facts=self.facts.model_copy(update={"notes": (*self.facts.notes, *self.notes)}),
            prompts=rows["sequences"],
            rounds=rows["rounds"],
            domains=tuple(sorted(self._domains)),
            files=tuple(self.files),
        )
        try:
            write_manifest(self.folder, manifest)
        except OSError as error:
            raise self._not_written(error) from error
        (self.folder / UNFINISHED).unlink()


def _entry(file: Path) -> FileEntry:
    rows = pl.scan_parquet(file, glob=False).select(pl.len()).collect().item()
    return FileEntry(name=file.name, rows=rows, sha256=digest_of_file(file))


@contextmanager
def whole_run(folder: Path, facts: Facts, scratch: Path | None = None) -> Iterator[RunWriter]:
    """A writer whose run appears under `folder` once it is finished and has been read back; an error leaves nothing.

    It is made in `scratch`, a folder on the same disk, by default the one that `folder` will be in.

    Raises:
        RunLogError: `folder` exists already or cannot be made, or the run cannot be read.
    """
    refuse_taken(folder)
    try:
        part = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=scratch or folder.parent))
    except OSError as error:
        raise RunLogError(folder, f"cannot be made ({error.strerror})", "name another folder") from error
    try:
        part.chmod(0o755)  # mkdtemp makes private folders
        with RunWriter(part, facts) as writer:
            yield writer
        put_in_place(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def refuse_taken(folder: Path) -> None:
    """Raise `RunLogError` where a run cannot appear, as something is there."""
    if folder.exists():
        raise RunLogError(folder, "exists already", "name a new folder, or delete this one")


def put_in_place(part: Path, folder: Path) -> None:
    """Let a finished run appear as `folder`, once it has been read back.

    Raises:
        RunLogError: the run cannot be read, or another writer was quicker.
    """
    run = open_run(part)
    run.sequences()
    for _ in run.rounds():
        pass
    for name in (UNFINISHED, ".lock"):  # a writer that was killed behind its manifest leaves them
        (part / name).unlink(missing_ok=True)
    refuse_taken(folder)
    os.replace(part, folder)


def rounds_frame(rounds: Rounds, sequences: pl.DataFrame) -> pl.DataFrame:
    """The rows of rounds-*.parquet for checked rounds and the prompts (columns `SEQUENCES`) that they belong to."""
    marginals: Marginals = rounds.marginals
    chain = np.logical_and.accumulate(marginals.token[:, :, 0] == rounds.continuation, axis=1)  # padding is no id
    found = continuations(sequences, rounds.prompt, rounds.position, marginals.depth_max)
    return pl.DataFrame(
        {
            "prompt": rounds.prompt,
            "position": rounds.position,
            "context": found.context,
            "root": pl.Series(found.root).replace(-1, None),
            "token": marginals.token,
            "logq": marginals.logq.astype(np.float32),
            "chain_accepted": chain.sum(axis=1),
        }
    )


def prompt_shards(rows_of_prompt: np.ndarray) -> list[slice]:
    """Slices of prompts whose rows (P,) add up to about `ROWS_IN_SHARD`; a longer prompt has a shard of its own."""
    shards, begin, rows = [], 0, 0
    for i, count in enumerate(rows_of_prompt):
        if rows and rows + count > ROWS_IN_SHARD:
            shards.append(slice(begin, i))
            begin, rows = i, 0
        rows += count
    return [*shards, slice(begin, len(rows_of_prompt))] if len(rows_of_prompt) else shards
