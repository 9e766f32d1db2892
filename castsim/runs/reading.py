"""Run folders: Parquet shards of whole prompts, and a manifest written last. The schema is in logs/README.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from castsim.base.errors import RunLogError, first_line
from castsim.runs.manifest import NAME, REWRITE, Facts, FileEntry, Manifest, digest_of_file, read_manifest
from castsim.runs.schema import FINISH, NAME_PATTERN, SEQUENCES, fits, rounds_schema
from replay import Marginals, Rounds, RowError
from replay.rounds import ID_LIMIT, refuse


@dataclass(frozen=True)
class Shard:
    """One pair of files, read together: whole prompts and their rounds. Picklable, so that a worker can open it."""

    folder: Path
    facts: Facts
    sequences: FileEntry
    rounds: FileEntry

    def read_sequences(self, columns: Sequence[str] = tuple(SEQUENCES)) -> pl.DataFrame:
        """The shard's prompts by number, whatever their order in the file; all columns, or some of `SEQUENCES`.

        Raises:
            RunLogError: the file is not what the manifest says, or one of these columns breaks the schema.
        """
        frame = _read(self.folder, self.sequences, _columns(columns), None)
        faults = {p: bad for p, bad in self._sequence_faults().items() if set(bad.meta.root_names()) <= set(columns)}
        for rows in frame.select(bad.fill_null(False).alias(problem) for problem, bad in faults.items()):
            _refuse(self.folder / self.sequences.name, rows.to_numpy(), rows.name)
        return frame.cast({"prompt": pl.Int32}).sort("prompt")

    def _sequence_faults(self) -> dict[str, pl.Expr]:
        """What can be wrong with a row of the sequences, and the rows that it is wrong with."""
        output = pl.col("output_tokens").list
        before_last = output.head(output.len() - 1).list
        largest = (self.facts.vocab_size or ID_LIMIT) - 1
        return {
            **{f"{name} is missing": pl.col(name).is_null() for name in SEQUENCES},
            f"finish is none of {FINISH}": ~pl.col("finish").is_in(FINISH),
            "two sequences have its prompt number": pl.col("prompt").is_duplicated(),
            "a domain cannot be named all": pl.col("domain") == "all",
            "prompt_id or domain is no plain name": ~pl.all_horizontal(
                pl.col("prompt_id", "domain").str.contains(NAME_PATTERN)
            ),
            "a prompt token is missing": pl.col("prompt_tokens").list.eval(pl.element().is_null()).list.any(),
            "the output has no token": output.len() < 1,
            f"a prompt's token id is not in 0..{largest}": _outside("prompt_tokens", largest),
            f"an output's token id is not in 0..{largest}": _outside("output_tokens", largest),
            "the output goes on behind an end of sequence": before_last.eval(
                pl.element().is_in(list(self.facts.eos_ids))
            ).list.any(),
        }

    def read_rounds(self, prompts: Sequence[int] | None = None) -> Rounds:
        """The shard's rounds, or those of some prompts (others are skipped lazily), by prompt and position.

        Raises:
            RunLogError: names file, row group and row of the first row that breaks the schema.
        """
        sequences = self.read_sequences()
        frame = _in_order(_read(self.folder, self.rounds, rounds_schema(self.facts), prompts))
        file, place = self.folder / self.rounds.name, frame["row"].to_numpy()
        for column in frame.columns:
            if column != "root":
                _refuse(file, frame[column].is_null().to_numpy(), f"{column} is missing", place)
        again = frame.select(pl.struct("prompt", "position").is_duplicated()).to_series().to_numpy()
        _refuse(file, again, "another row has its prompt and position", place)
        with _rows_named(file, place):
            rounds = _rounds(self.facts, frame, sequences)
        chosen = sequences if prompts is None else sequences.filter(pl.col("prompt").is_in(list(prompts)))
        if self.facts.layout == "dense":
            _refuse_gaps(file, rounds, chosen)
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

    def sequences(self, columns: Sequence[str] = tuple(SEQUENCES)) -> pl.DataFrame:
        """All prompts by number; all columns of `SEQUENCES`, or some, "prompt", "prompt_id" and "domain" among them.

        Raises:
            RunLogError: from reading, or where two shards have a prompt in common.
        """
        whole = pl.concat(
            [pl.DataFrame(schema=_columns(columns)), *(s.read_sequences(columns).select(columns) for s in self.shards)]
        )
        for column in ("prompt", "prompt_id"):
            if len(twice := whole.filter(pl.col(column).is_duplicated())):
                raise RunLogError(self.folder, f"has two sequences with one {column} ({twice[column][0]})", REWRITE)
        told = (self.manifest.prompts, self.manifest.rounds, set(self.manifest.domains))
        if told != (len(whole), sum(shard.rounds.rows for shard in self.shards), set(whole["domain"])):
            raise RunLogError(self.folder / NAME, "counts other prompts, rounds or domains than its files", REWRITE)
        return whole.sort("prompt")

    def rounds(self, prompts: Sequence[int] | None = None) -> Iterator[Rounds]:
        """The rounds shard by shard, optionally of some prompts: memory is bounded by a shard."""
        return (shard.read_rounds(prompts) for shard in self.shards)


def open_run(folder: Path) -> Run:
    """Open a run folder; its shards are read and checked as they are used.

    Raises:
        RunLogError: see `read_manifest`; also shards that do not pair up.
    """
    manifest = read_manifest(folder)
    names = [entry.name for entry in manifest.files]
    if problem := _part_fault(names):
        raise RunLogError(folder / NAME, f"lists sequences and rounds files that do not pair up: {problem}", REWRITE)
    return Run(folder, manifest)


def _part_fault(names: Sequence[str]) -> str | None:
    """The first file of a run that is listed twice, or is not there; shards are numbered from 0 without a gap."""
    wanted = [f"{kind}-{i:05d}.parquet" for i in range((len(names) + 1) // 2) for kind in ("sequences", "rounds")]
    count = Counter(names)
    faults = (f"{name} is {'missing' if not count[name] else 'there twice'}" for name in wanted if count[name] != 1)
    return next(faults, None)


def _in_order(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows by prompt and position; those of a recorder stand so already, and are not moved."""
    prompt, position = (frame[name].cast(pl.Int64).fill_null(-1).to_numpy() for name in ("prompt", "position"))
    step, inner = np.diff(prompt), np.diff(position)
    return frame if ((step > 0) | ((step == 0) & (inner >= 0))).all() else frame.sort("prompt", "position")


def _refuse_gaps(file: Path, rounds: Rounds, sequences: pl.DataFrame) -> None:
    """Raise `RunLogError` for the first position of a dense log that has no row.

    Args:
        rounds: each position once.
        sequences: the prompts that they are of.
    """
    positions = pl.int_ranges(pl.col("output_tokens").list.len().cast(pl.Int32) - 1, dtype=pl.Int32)
    wanted = (
        sequences.select("prompt", position=positions).filter(pl.col("position").list.len() > 0).explode("position")
    )
    if len(wanted) == len(rounds):
        return
    found = pl.DataFrame({"prompt": rounds.prompt, "position": rounds.position})
    missing = wanted.join(found, on=["prompt", "position"], how="anti").sort("prompt", "position")
    more = "" if len(missing) == 1 else f", nor of {len(missing) - 1} more"
    told = f"has {len(rounds)} rows for {len(wanted)} positions of a dense log"
    raise RunLogError(file, f"{told}: none of prompt {missing[0, 0]}, position {missing[0, 1]}{more}", REWRITE)


def _columns(names: Sequence[str]) -> pl.Schema:
    return pl.Schema({name: SEQUENCES[name] for name in names})


def _read(folder: Path, entry: FileEntry, schema: pl.Schema, prompts: Sequence[int] | None) -> pl.DataFrame:
    """The columns of `schema` of one checked file, with the row number where rows can be left out."""
    file = folder / entry.name
    if not file.is_file():
        raise RunLogError(file, "is missing though the manifest lists it", REWRITE)
    if digest_of_file(file) != entry.sha256:
        raise RunLogError(file, "does not have the digest in the manifest: it is damaged or cut short", REWRITE)
    try:
        lazy = pl.scan_parquet(file, row_index_name="row", glob=False)
        found = lazy.collect_schema()
        for name, wanted in schema.items():
            if not fits(found.get(name), wanted):
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
        raise RunLogError(file, error.problem, REWRITE, _row_group(file, row), row) from error


def _row_group(file: Path, row: int) -> int:
    from pyarrow import parquet  # slow to import, and needed for an error only

    meta = parquet.ParquetFile(file).metadata
    ends = np.cumsum([meta.row_group(i).num_rows for i in range(meta.num_row_groups)])
    return int(np.searchsorted(ends, row, side="right"))


def _outside(column: str, largest: int) -> pl.Expr:
    """Rows of a list column with an id below 0 or above `largest`; a null is no id."""
    tokens = pl.col(column).list
    return (tokens.min() < 0) | (tokens.max() > largest)


def _rounds(facts: Facts, frame: pl.DataFrame, sequences: pl.DataFrame) -> Rounds:
    """Rounds of checked columns, with the continuations of their prompts' outputs. Raises `RowError`."""
    prompt, position = (frame[name].cast(pl.Int64).to_numpy() for name in ("prompt", "position"))
    found = continuations(sequences, prompt, position, facts.depth_max)
    root = frame["root"].cast(pl.Int64).fill_null(-1).to_numpy()
    refuse((root >= 0) & (found.root >= 0) & (root != found.root), "root is not the output's token there")
    refuse(frame["context"].to_numpy() != found.context, "context is not the prompt's length plus the position")
    marginals = Marginals(frame["token"].to_numpy(), frame["logq"].to_numpy())
    return assembled(facts.vocab_size, marginals, found, prompt, position)


class Continuations(NamedTuple):
    """What the outputs say of rounds: (B,) each, `continuation` (B, L); an unknown token is -1."""

    root: NDArray[np.int64]
    continuation: NDArray[np.int64]
    known: NDArray[np.int64]
    remaining: NDArray[np.int64]
    context: NDArray[np.int64]


def assembled(
    vocab_size: int | None,
    marginals: Marginals,
    found: Continuations,
    prompt: NDArray[np.int64],
    position: NDArray[np.int64],
) -> Rounds:
    """Rounds from their parts; the candidates must be in the run's vocabulary. Raises `RowError`."""
    refuse(marginals.token >= (vocab_size or ID_LIMIT), "a token id is outside the vocabulary")
    return Rounds(marginals, found.continuation, found.known, prompt, position, found.remaining)


def continuations(
    sequences: pl.DataFrame, prompt: NDArray[np.int64], position: NDArray[np.int64], depth_max: int
) -> Continuations:
    """Cut the continuations of rounds (B,) out of their prompts' outputs.

    Raises:
        RowError: a prompt that is not among the sequences, or a position that no token of the output follows.
    """
    numbers = sequences["prompt"].to_numpy()
    refuse(~np.isin(prompt, numbers), "its prompt is not among the sequences")
    order = np.argsort(numbers, kind="stable")
    at = order[np.searchsorted(numbers[order], prompt)]
    length, before = (
        sequences[name].list.len().to_numpy().astype(np.int64) for name in ("output_tokens", "prompt_tokens")
    )
    remaining = length[at] - 1 - position
    refuse((position < 0) | (remaining < 1), "position is not followed by a token of the output")
    output = sequences["output_tokens"].explode(empty_as_null=False).cast(pl.Int64).fill_null(-1).to_numpy()
    start = (np.cumsum(length) - length)[at] + position  # (B,) the root's place in the flat outputs
    ahead = np.arange(1, depth_max + 1)
    inside = ahead <= remaining[:, None]
    continuation = np.where(inside, output[np.where(inside, start[:, None] + ahead, 0)], -1)
    known = np.minimum(remaining, depth_max)
    return Continuations(output[start], continuation, known, remaining, before[at] + position)
