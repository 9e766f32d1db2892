"""Logs of other programs as castsim runs: one module a layout, one way from what it found to a run folder."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from castsim.errors import ForeignError, OptionError
from castsim.manifest import Facts
from castsim.runlog import SEQUENCES
from castsim.runwriter import prompt_shards, rounds_frame, whole_run
from replay import Marginals, Rounds, RowError
from replay.rounds import ID_LIMIT, refuse

TOLD = ("target", "drafter", "dtype", "licence", "vocab_size")  # facts that no layout carries
LAYOUTS = {".npz": "npz", ".pt": "pt", ".jsonl": "jsonl"}


@dataclass(frozen=True)
class Foreign:
    """What a layout's reader found.

    Attributes:
        sequences: columns `SEQUENCES`; an unknown token is null; `prompt` counts from 0.
        prompt, position: (B,) which prompt a round belongs to and the root's place in its output.
        token, logq: (B, L, K) candidates in any order.
        facts: what the layout tells of the run.
    """

    sequences: pl.DataFrame
    prompt: np.ndarray
    position: np.ndarray
    token: np.ndarray
    logq: np.ndarray
    facts: Facts


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
    if file.suffix not in LAYOUTS:
        raise ForeignError(file, f"has no known layout ({', '.join(LAYOUTS)})", "see logs/README.md for the layouts")
    if not file.is_file():
        raise ForeignError(file, "is not a file", "name a log to import")
    found = importlib.import_module(f"castsim.foreign.{LAYOUTS[file.suffix]}").read(file, options)
    kept = _ended(_first_prompts(found, options.per_domain), options)
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    facts = kept.facts.model_copy(update={**options.facts, "source": f"{file.name} (SHA-256 {digest})"})
    _write(file, out, replace(kept, facts=facts), progress)
    return facts


def told_facts(pairs: Sequence[str]) -> dict[str, Any]:
    """`--fact key=value` pairs as facts.

    Raises:
        OptionError: a key that is not for the user to tell, or a value of the wrong type.
    """
    told: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if key not in TOLD or not equals or (key == "vocab_size" and not (value.isdecimal() and int(value))):
            raise OptionError(f"--fact {pair}: give key=value with a key of {', '.join(TOLD)}; vocab_size is a number")
        told[key] = int(value) if key == "vocab_size" else value
    return told


def sequences_frame(rows: list[dict[str, object]]) -> pl.DataFrame:
    """Prompts (dicts with the columns of `SEQUENCES` but `prompt`) as a frame, numbered in order."""
    return pl.DataFrame([{"prompt": i, **row} for i, row in enumerate(rows)], schema=SEQUENCES)


def _first_prompts(found: Foreign, per_domain: int | None) -> Foreign:
    if per_domain is None:
        return found
    chosen = found.sequences.filter(pl.int_range(pl.len()).over("domain") < per_domain)
    rows = np.isin(found.prompt, chosen["prompt"].to_numpy())
    return _with_rows(replace(found, sequences=chosen), rows)


def _with_rows(found: Foreign, rows: np.ndarray) -> Foreign:
    columns = ("prompt", "position", "token", "logq")
    return replace(found, **{name: getattr(found, name)[rows] for name in columns})


def _ended(found: Foreign, options: ImportOptions) -> Foreign:
    """Outputs up to their first end of sequence; rows at it or behind it are no rounds."""
    outputs, finishes, cut = [], [], 0
    for tokens, finish in found.sequences.select("output_tokens", "finish").iter_rows():
        end = next((i + 1 for i, token in enumerate(tokens) if token in options.eos_ids), None)
        cut += end is not None and end < len(tokens)
        outputs.append(tokens[:end])
        finishes.append(finish if not options.eos_ids else "length" if end is None else "stop")
    sequences = found.sequences.with_columns(
        output_tokens=pl.Series(outputs, dtype=SEQUENCES["output_tokens"]), finish=pl.Series(finishes, dtype=pl.String)
    )
    length = np.zeros(1 + int(sequences["prompt"].max() or 0), np.int64)
    length[sequences["prompt"].to_numpy()] = [len(tokens) for tokens in outputs]
    notes = list(found.facts.notes)
    if not options.eos_ids:
        notes.append("No end-of-sequence id was given (--eos): outputs are taken whole.")
    if cut:
        notes.append(f"{cut} outputs ran on past their end of sequence and were cut there.")
    facts = found.facts.model_copy(update={"notes": tuple(notes), "eos_ids": options.eos_ids})
    outside = (found.prompt < 0) | (found.prompt >= len(length))
    rows = outside | (found.position < length[np.where(outside, 0, found.prompt)] - 1)  # `outside` is refused later
    return _with_rows(replace(found, sequences=sequences, facts=facts), rows)


def _write(file: Path, out: Path, found: Foreign, progress: Callable[[float], None]) -> None:
    names = found.sequences["prompt"].to_numpy()
    order = np.lexsort((found.position, found.prompt))
    found = _with_rows(found, order)
    if not np.isin(found.prompt, names).all():
        raise ForeignError(
            file, "has rounds of a prompt that is not among the sequences", "check that both belong together"
        )
    first, stop = np.searchsorted(found.prompt, names), np.searchsorted(found.prompt, names, side="right")
    with whole_run(out, found.facts) as writer:
        for part in prompt_shards(stop - first):
            sequences = found.sequences[part]
            rows = slice(int(first[part][0]), int(stop[part][-1]))
            writer.add(sequences, rounds_frame(_checked(file, _with_rows(found, rows), sequences), sequences))
            progress(rows.stop / max(len(found.prompt), 1))


def _checked(file: Path, found: Foreign, sequences: pl.DataFrame) -> Rounds:
    """The rounds of some prompts, with the continuations from their outputs."""
    at = np.searchsorted(sequences["prompt"].to_numpy(), found.prompt)
    outputs = [[-1 if token is None else token for token in tokens] for tokens in sequences["output_tokens"]]
    depth = found.facts.depth_max
    spans = [outputs[i][p + 1 : p + 1 + depth] for i, p in zip(at, found.position, strict=True)]
    continuation = np.array([span + [-1] * (depth - len(span)) for span in spans], np.int64).reshape(-1, depth)
    remaining = np.array([len(outputs[i]) for i in at], np.int64) - 1 - found.position
    try:
        marginals = Marginals.ranked(found.token, found.logq)
        vocab_size = found.facts.vocab_size or ID_LIMIT
        refuse(marginals.token >= vocab_size, f"a token id is outside the vocabulary of {vocab_size}")
        return Rounds(marginals, continuation, np.minimum(remaining, depth), found.prompt, found.position, remaining)
    except RowError as error:
        prompt, position = found.prompt[error.row], found.position[error.row]
        raise ForeignError(
            file, f"prompt {prompt}, position {position}: {error.problem}", "export the log again"
        ) from error
    except ValueError as error:
        raise ForeignError(file, str(error), "export the log again") from error
