"""Logs of other programs as castsim runs: one module a layout, one way from what it found to a run folder."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from castsim.base.errors import ForeignError, OptionError, RunLogError
from castsim.runs.manifest import Facts, digest_of_file
from castsim.runs.reading import assembled, continuations
from castsim.runs.schema import NAME_PATTERN, SEQUENCES
from castsim.runs.writing import prompt_shards, rounds_frame, whole_run
from replay import Marginals, Rounds, RowError
from replay.rounds import ID_LIMIT

TOLD = ("target", "drafter", "dtype", "licence", "vocab_size")  # facts that no layout carries
VOCAB_SIZE = re.compile(r"[1-9][0-9]{0,9}")
TokenId = Annotated[int, Field(ge=0, lt=ID_LIMIT)]
MARKED = {
    "accepted_beyond_end": "rounds accept more than was realised: their prompts ended at the token limit, and they are "
    "censored there.",
    "tied_at_top": "rounds have a tie at the top of the logits that decides what the chain accepts: positions go by "
    "what the file says, a replay ranks the lower id first.",
}
LAYOUTS = {".npz": "npz", ".pt": "pt", ".jsonl": "jsonl"}


@dataclass(frozen=True)
class Foreign:
    """What a layout's reader found.

    Attributes:
        sequences: columns `SEQUENCES`; an unknown token is null; `prompt` counts from 0.
        prompt, position: (B,) which prompt a round belongs to and the root's place in its output.
        token, logq: (B, L, K) candidates in any order.
        facts: what the layout tells of the run.
        marks: (B,) each, rounds that are not plain, by a name of `MARKED`.
    """

    sequences: pl.DataFrame
    prompt: np.ndarray
    position: np.ndarray
    token: np.ndarray
    logq: np.ndarray
    facts: Facts
    marks: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class ImportOptions:
    """What a foreign file does not say of itself.

    Attributes:
        sequences: the file of prompts and outputs beside an NPZ; None looks for it by name.
        domain: the domain of a layout that names none.
        eos_ids: end-of-sequence ids; an output ends with the first of them.
        per_domain: keep only the first so many prompts of each domain.
        facts: target, drafter, dtype, licence and vocab_size, for the manifest; ids are checked against the last.
    """

    sequences: Path | None = None
    domain: str = "unknown"
    eos_ids: tuple[int, ...] = ()
    per_domain: int | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)


def import_run(
    file: Path, out: Path, options: ImportOptions, progress: Callable[[float], None] = lambda _: None
) -> Facts:
    """Read a foreign log, check it, write it as the run folder `out`. Returns the run's facts.

    Raises:
        ForeignError: the file is of no known layout, cannot be read, or contradicts itself.
        RunLogError: `out` exists.
    """
    if file.suffix.lower() not in LAYOUTS:
        raise ForeignError(file, f"has no known layout ({', '.join(LAYOUTS)})", "see logs/README.md for the layouts")
    if not file.is_file():
        raise ForeignError(file, "is not a file", "name a log to import")
    found = importlib.import_module(f"castsim.runs.foreign.{LAYOUTS[file.suffix.lower()]}").read(file, options)
    kept = _counted(_ended(_first_prompts(found, options.per_domain), options))
    facts = kept.facts.model_copy(update={**options.facts, "source": f"{file.name} (SHA-256 {digest_of_file(file)})"})
    _write(file, out, replace(kept, facts=facts), progress)
    return facts


def told_facts(pairs: Iterable[str]) -> dict[str, Any]:
    """`--fact key=value` pairs as facts.

    Raises:
        OptionError: a key that is not for the user to tell, or a value of the wrong type.
    """
    told: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if key not in TOLD or not equals or (key == "vocab_size" and not VOCAB_SIZE.fullmatch(value)):
            raise OptionError(f"--fact {pair}: give key=value with a key of {', '.join(TOLD)}; vocab_size is a number")
        told[key] = int(value) if key == "vocab_size" else value
    return told


class Sequence(BaseModel):
    """A prompt of a foreign log, checked as far as JSON can be wrong; a null output token is an unknown one."""

    model_config = ConfigDict(strict=True, frozen=True)

    prompt_id: Annotated[str, Field(pattern=NAME_PATTERN)]
    domain: Annotated[str, Field(pattern=NAME_PATTERN)]
    prompt_tokens: list[TokenId]
    output_tokens: list[TokenId | None] = Field(min_length=1)
    finish: Literal["stop", "length", "unknown"] = "unknown"


def sequences_frame(rows: Iterable[Any]) -> pl.DataFrame:
    """Prompts, each a dict with the fields of `Sequence`, as a frame numbered in order.

    Raises:
        ValueError: names the first prompt and field that is wrong.
    """
    checked = []
    for i, row in enumerate(rows):
        try:
            checked.append({"prompt": i, **Sequence.model_validate(row).model_dump()})
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"sequence {i}, {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error
    return pl.DataFrame(checked, schema=SEQUENCES)


def _first_prompts(found: Foreign, per_domain: int | None) -> Foreign:
    if per_domain is None:
        return found
    chosen = found.sequences.filter(pl.int_range(pl.len()).over("domain") < per_domain)
    rows = np.isin(found.prompt, chosen["prompt"].to_numpy())
    return _with_rows(replace(found, sequences=chosen), rows)


def _with_rows(found: Foreign, rows: np.ndarray) -> Foreign:
    columns = ("prompt", "position", "token", "logq")
    marks = {name: mark[rows] for name, mark in found.marks.items()}
    return replace(found, marks=marks, **{name: getattr(found, name)[rows] for name in columns})


def _ended(found: Foreign, options: ImportOptions) -> Foreign:
    """Outputs up to their first end of sequence; rows that no token follows any more are no rounds."""
    outputs, finishes, cut = [], [], 0
    for tokens, finish in found.sequences.select("output_tokens", "finish").iter_rows():
        end = next((i + 1 for i, token in enumerate(tokens) if token in options.eos_ids), None)
        cut += end is not None and end < len(tokens)
        outputs.append(tokens[:end])
        finishes.append(finish if not options.eos_ids else "length" if end is None else "stop")
    sequences = found.sequences.with_columns(
        output_tokens=pl.Series(outputs, dtype=SEQUENCES["output_tokens"]), finish=pl.Series(finishes, dtype=pl.String)
    )
    whole, kept = (
        dict(zip(f["prompt"], f["output_tokens"].list.len(), strict=True)) for f in (found.sequences, sequences)
    )
    places = zip(found.prompt.tolist(), found.position.tolist(), strict=True)
    behind = [kept.get(i, 0) - 1 <= p < whole.get(i, 0) for i, p in places]  # others stay, to be kept or refused
    notes = list(found.facts.notes)
    if not options.eos_ids:
        notes.append("No end-of-sequence id was given (--eos): outputs are taken whole.")
    if cut:
        notes.append(f"{cut} outputs ran on past their end of sequence and were cut there.")
    if any(behind):
        notes.append(f"{sum(behind)} rows that no token of an output follows were left out.")
    told = {"notes": tuple(notes), "eos_ids": options.eos_ids, "imported": {"left_out": sum(behind)}}
    facts = found.facts.model_copy(update=told)
    return _with_rows(replace(found, sequences=sequences, facts=facts), ~np.array(behind, bool))


def _counted(found: Foreign) -> Foreign:
    """The same with its rounds counted: with a whole continuation, cut by the end of an output, and not plain."""
    length = dict(found.sequences.select("prompt", pl.col("output_tokens").list.len()).iter_rows())
    last = np.array([length.get(prompt, 0) - 1 for prompt in found.prompt.tolist()], np.int64)
    censored = int((last - found.position < found.facts.depth_max).sum())
    counts = {"whole": len(found.prompt) - censored, "censored": censored, **found.facts.imported}
    marked = {name: int(mark.sum()) for name, mark in found.marks.items()}
    notes = (*found.facts.notes, *(f"{count} {MARKED[name]}" for name, count in marked.items() if count))
    return replace(found, facts=found.facts.model_copy(update={"imported": counts | marked, "notes": notes}))


def _write(file: Path, out: Path, found: Foreign, progress: Callable[[float], None]) -> None:
    found = _with_rows(found, np.lexsort((found.position, found.prompt)))
    names = found.sequences["prompt"].to_numpy()
    first, stop = np.searchsorted(found.prompt, names), np.searchsorted(found.prompt, names, side="right")
    if (stop - first).sum() != len(found.prompt):
        raise ForeignError(
            file, "has rounds of a prompt that is not among the sequences", "check that both belong together"
        )
    again = (np.diff(found.prompt, prepend=-1) == 0) & (np.diff(found.position, prepend=-1) == 0)
    if again.any():
        place = _place(found, int(again.argmax()))
        raise ForeignError(file, f"{place}: another row has its prompt and position", "keep one of them")
    try:
        with whole_run(out, found.facts) as writer:
            for part in prompt_shards(stop - first):
                sequences = found.sequences[part]
                rows = slice(int(first[part][0]), int(stop[part][-1]))
                writer.add(sequences, rounds_frame(_checked(file, _with_rows(found, rows), sequences), sequences))
                progress(rows.stop / max(len(found.prompt), 1))
    except RunLogError as error:
        if error.file == out:
            raise
        raise ForeignError(file, f"makes no sound run: {error.problem}", "export the log again") from error


def _checked(file: Path, found: Foreign, sequences: pl.DataFrame) -> Rounds:
    """The rounds of some prompts, with the continuations from their outputs."""
    try:
        rest = continuations(sequences, found.prompt, found.position, found.facts.depth_max)
        marginals = Marginals.ranked(found.token, found.logq)
        return assembled(found.facts.vocab_size, marginals, rest, found.prompt, found.position)
    except RowError as error:
        raise ForeignError(file, f"{_place(found, error.row)}: {error.problem}", "export the log again") from error
    except ValueError as error:
        raise ForeignError(file, str(error), "export the log again") from error


def _place(found: Foreign, row: int) -> str:
    return f"prompt {found.prompt[row]}, position {found.position[row]}"
