"""Run folders: Parquet shards of whole prompts, and a manifest written last. The schema is in logs/README.md."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from castsim.errors import RunLogError, first_line
from castsim.manifest import NAME, REWRITE, Facts, FileEntry, Manifest, read_manifest
from replay import Marginals, Rounds, RowError
from replay.rounds import ID_LIMIT, refuse
from replay.trajectory import dense_spans

FINISH = ("stop", "length", "unknown")

SEQUENCES = pl.Schema(
    {
        "prompt": pl.Int32,
        "prompt_id": pl.String,
        "domain": pl.String,
        "prompt_tokens": pl.List(pl.Int32),
        "output_tokens": pl.List(pl.Int32),
        "finish": pl.String,
    }
)


def rounds_schema(facts: Facts) -> pl.Schema:
    """Columns of rounds-*.parquet for a run of L positions and K ranks."""
    shape = (facts.depth_max, facts.rank_kept)
    return pl.Schema(
        {
            "prompt": pl.Int32,
            "position": pl.Int32,
            "context": pl.Int32,
            "root": pl.Int32,
            "token": pl.Array(pl.Int32, shape),
            "logq": pl.Array(pl.Float32, shape),
            "chain_accepted": pl.Int32,
        }
    )


@dataclass(frozen=True)
class Shard:
    """One pair of files, read together: whole prompts and their rounds. Picklable, so that a worker can open it."""

    folder: Path
    facts: Facts
    sequences: FileEntry
    rounds: FileEntry

    def read_sequences(self) -> pl.DataFrame:
        """The shard's prompts, columns `SEQUENCES`.

        Raises:
            RunLogError: the file is not what the manifest says, or a row breaks the schema.
        """
        frame = _read(self.folder, self.sequences, SEQUENCES, None)
        file = self.folder / self.sequences.name
        for column in ("prompt", "prompt_id", "domain", "prompt_tokens", "output_tokens"):
            _refuse(file, frame[column].is_null().to_numpy(), f"{column} is missing")
        _refuse(file, ~frame["finish"].is_in(FINISH).fill_null(False).to_numpy(), f"finish is none of {FINISH}")
        _refuse(file, (frame["output_tokens"].list.len() < 1).to_numpy(), "the output has no token")
        _refuse(file, frame["prompt"].is_duplicated().to_numpy(), "two sequences have its prompt number")
        _refuse(file, (frame["output_tokens"].list.min().fill_null(0) < 0).to_numpy(), "a token id is negative")
        return frame

    def read_rounds(self, prompts: Sequence[int] | None = None) -> Rounds:
        """The shard's rounds, or those of some prompts (others are skipped lazily).

        Raises:
            RunLogError: names file, row group and row of the first row that breaks the schema.
        """
        sequences = self.read_sequences()
        frame = _read(self.folder, self.rounds, rounds_schema(self.facts), prompts)
        file = self.folder / self.rounds.name
        place = frame["row"].to_numpy()
        for column in frame.columns:
            if column != "root":
                _refuse(file, frame[column].is_null().to_numpy(), f"{column} is missing", place)
        rounds = _with_continuation(self, frame, sequences)
        if self.facts.layout == "dense":
            with _rows_named(file, place):
                dense_spans(rounds)
        return rounds


@dataclass(frozen=True)
class Run:
    """An opened run folder."""

    folder: Path
    manifest: Manifest

    @property
    def facts(self) -> Facts:
        """What the manifest says of the run."""
        return self.manifest.facts

    @property
    def shards(self) -> list[Shard]:
        """Pairs of files in order."""
        by_name = {entry.name: entry for entry in self.manifest.files}
        return [
            Shard(self.folder, self.facts, by_name[name], by_name[name.replace("sequences", "rounds")])
            for name in sorted(by_name)
            if name.startswith("sequences")
        ]

    def sequences(self) -> pl.DataFrame:
        """All prompts, columns `SEQUENCES`.

        Raises:
            RunLogError: from reading, or where two shards have a prompt in common.
        """
        whole = pl.concat(
            [pl.DataFrame(schema=SEQUENCES), *(s.read_sequences().select(*SEQUENCES) for s in self.shards)]
        )
        for column in ("prompt", "prompt_id"):
            if whole[column].is_duplicated().any():
                raise RunLogError(self.folder, f"has two sequences with one {column}", REWRITE)
        return whole

    def rounds(self, prompts: Sequence[int] | None = None) -> Iterator[Rounds]:
        """The rounds shard by shard, optionally of some prompts: memory is bounded by a shard."""
        return (shard.read_rounds(prompts) for shard in self.shards)


def open_run(folder: Path) -> Run:
    """Open a run folder; its shards are read and checked as they are used.

    Raises:
        RunLogError: see `read_manifest`; also shards that do not pair up.
    """
    manifest = read_manifest(folder)
    names = sorted(entry.name for entry in manifest.files)
    halves = [{n.split("-")[1] for n in names if n.startswith(kind)} for kind in ("sequences", "rounds")]
    if halves[0] != halves[1] or len(set(names)) != len(names):
        raise RunLogError(folder / NAME, "lists sequences and rounds files that do not pair up", REWRITE)
    return Run(folder, manifest)


def _read(folder: Path, entry: FileEntry, schema: pl.Schema, prompts: Sequence[int] | None) -> pl.DataFrame:
    """The columns of `schema` of one checked file, with the row number where rows can be left out."""
    file = folder / entry.name
    if not file.is_file():
        raise RunLogError(file, "is missing though the manifest lists it", REWRITE)
    with file.open("rb") as stream:
        if hashlib.file_digest(stream, "sha256").hexdigest() != entry.sha256:
            raise RunLogError(file, "does not have the digest in the manifest: it is damaged or cut short", REWRITE)
    try:
        lazy = pl.scan_parquet(file, row_index_name="row", glob=False)
        found = lazy.collect_schema()
        for name, wanted in schema.items():
            if found.get(name) != wanted:
                raise RunLogError(
                    file, f"column {name} is {found.get(name)}, not {wanted} as the manifest says", REWRITE
                )
        if prompts is not None:
            lazy = lazy.filter(pl.col("prompt").is_in(list(prompts)))
        frame = lazy.select("row", *schema).collect()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise RunLogError(file, f"is not a readable Parquet file ({first_line(error)})", REWRITE) from error
    if prompts is None and len(frame) != entry.rows:
        raise RunLogError(file, f"has {len(frame)} rows, the manifest says {entry.rows}", REWRITE)
    return frame


def _refuse(file: Path, bad: NDArray[np.bool_], problem: str, place: NDArray[np.integer] | None = None) -> None:
    """Raise `RunLogError` for the first True of `bad` (rows,); `place` gives the rows' numbers in the file."""
    with _rows_named(file, np.arange(len(bad)) if place is None else place):
        refuse(bad, problem)


@contextmanager
def _rows_named(file: Path, place: NDArray[np.integer]) -> Iterator[None]:
    """Turn a batch's `RowError` into a `RunLogError`; `place` gives the rows' numbers in the file."""
    try:
        yield
    except RowError as error:
        row = int(place[error.row])
        raise RunLogError(file, error.problem, REWRITE, row=row, row_group=_row_group(file, row)) from error


def _row_group(file: Path, row: int) -> int:
    from pyarrow import parquet  # slow to import, and needed for an error only

    meta = parquet.ParquetFile(file).metadata
    ends = np.cumsum([meta.row_group(i).num_rows for i in range(meta.num_row_groups)])
    return int(np.searchsorted(ends, row, side="right"))


def _with_continuation(shard: Shard, frame: pl.DataFrame, sequences: pl.DataFrame) -> Rounds:
    """Join rounds with the outputs that their continuations are cut from."""
    file, place = shard.folder / shard.rounds.name, frame["row"].to_numpy()
    prompt, position = frame["prompt"].to_numpy(), frame["position"].to_numpy()
    names = sequences["prompt"].to_numpy()
    order = np.argsort(names, kind="stable")
    at = order[np.minimum(np.searchsorted(names[order], prompt), len(names) - 1)] if len(names) else prompt * 0 - 1
    _refuse(
        file, names[at] != prompt if len(names) else prompt == prompt, "its prompt is not among the sequences", place
    )
    length = sequences["output_tokens"].list.len().to_numpy().astype(np.int64)
    output = sequences["output_tokens"].explode(empty_as_null=False).fill_null(-1).to_numpy()
    remaining = length[at] - 1 - position
    _refuse(file, (position < 0) | (remaining < 1), "position is not followed by a token of the output", place)
    start = (np.cumsum(length) - length)[at] + position  # (B,) place of the root in the flat outputs
    root = frame["root"].fill_null(-1).to_numpy()
    _refuse(
        file,
        (root >= 0) & (output[start] >= 0) & (root != output[start]),
        "root is not the output's token there",
        place,
    )
    depth = np.arange(shard.facts.depth_max)
    inside = depth < remaining[:, None]
    continuation = np.where(inside, output[np.where(inside, start[:, None] + 1 + depth, 0)], -1)
    with _rows_named(file, place):
        marginals = Marginals(frame["token"].to_numpy(), frame["logq"].to_numpy())
        refuse(marginals.token >= (shard.facts.vocab_size or ID_LIMIT), "a token id is outside the vocabulary")
        return Rounds(marginals, continuation, np.minimum(remaining, len(depth)), prompt, position, remaining)
