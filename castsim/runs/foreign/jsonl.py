"""JSONL: one prompt a line, for programs that write neither Parquet nor NPZ.

A line is {"prompt_id", "domain", "prompt_tokens", "output_tokens", "finish", "rounds": [{"position", "token", "logq"}]}
with `token` and `logq` as L lists of K. The run is dense where every line has all its positions, sparse otherwise.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from castsim.base.errors import ForeignError
from castsim.base.textfile import read_lines
from castsim.runs.foreign import Foreign, ImportOptions, Sequence, sequences_frame
from castsim.runs.manifest import Facts


class Round(BaseModel):
    """One row: candidates (L, K) in any order."""

    model_config = ConfigDict(strict=True, frozen=True)

    position: int = Field(ge=0, lt=2**31)
    token: list[list[int]]
    logq: list[list[float]]


class Line(Sequence):
    """One prompt with its rounds."""

    rounds: list[Round]


def read(file: Path, options: ImportOptions) -> Foreign:
    """The prompts of a file. A torn last line, as a killed writer leaves, is dropped and counted.

    Raises:
        ForeignError: names the line that is not JSON or has a wrong field.
    """
    lines, torn = _lines(file)
    rounds = [(i, r) for i, line in enumerate(lines) for r in line.rounds]
    if not rounds:
        raise ForeignError(file, "holds no rounds", "record it again")
    try:
        token = np.array([r.token for _, r in rounds], np.int64)
        logq = np.array([r.logq for _, r in rounds], np.float32)
    except (ValueError, OverflowError) as error:
        raise ForeignError(file, f"has rounds that differ in L or K ({error})", "record it again") from error
    if token.ndim != 3:
        raise ForeignError(file, "has rounds without candidates", "record it again")
    every = all(sorted(r.position for r in x.rounds) == list(range(len(x.output_tokens) - 1)) for x in lines)
    facts = Facts(
        layout="dense" if every else "sparse",
        depth_max=token.shape[1],
        rank_kept=token.shape[2],
        notes=(f"{torn} torn last line was dropped.",) if torn else (),
    )
    sequences = sequences_frame(line.model_dump(exclude={"rounds"}) for line in lines)
    prompt, position = np.array([(i, r.position) for i, r in rounds]).T
    return Foreign(sequences, prompt, position, token, logq, facts)


def _lines(file: Path) -> tuple[list[Line], int]:
    """Whole lines, and whether (0 or 1) the last was torn: one without a line end that is not JSON."""
    try:
        raw = read_lines(file)
    except ValueError as error:
        raise ForeignError(file, str(error), "export it again") from error
    lines: list[Line] = []
    for number, text in enumerate(raw, start=1):
        try:
            if text.strip():
                lines.append(Line.model_validate_json(text))
        except ValidationError as error:
            first = error.errors()[0]
            if first["type"] == "json_invalid" and number == len(raw):
                return lines, 1
            place = ".".join(map(str, first["loc"])) or "not JSON"
            raise ForeignError(file, f"line {number}, {place}: {first['msg'].lower()}", "record it again") from error
    return lines, 0
