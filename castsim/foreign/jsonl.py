"""JSONL: one prompt a line, for programs that write neither Parquet nor NPZ.

A line is {"prompt_id", "domain", "prompt_tokens", "output_tokens", "finish", "rounds": [{"position", "token", "logq"}]}
with `token` and `logq` as L lists of K. The run is dense where every line has all its positions, sparse otherwise.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from castsim.errors import ForeignError
from castsim.foreign import Foreign, ImportOptions, sequences_frame
from castsim.manifest import Facts


def read(file: Path, options: ImportOptions) -> Foreign:
    """The prompts of a file. A torn last line, as a killed writer leaves, is dropped and counted.

    Raises:
        ForeignError: names the line that is not JSON or lacks a field.
    """
    prompts, torn = _lines(file)
    if not prompts:
        raise ForeignError(file, "holds no whole line", "record it again")
    rounds = [(i, r) for i, prompt in enumerate(prompts) for r in prompt["rounds"]]
    try:
        columns = ("prompt_id", "domain", "prompt_tokens", "output_tokens", "finish")
        sequences = sequences_frame([{k: p[k] for k in columns} for p in prompts])
        token = np.array([r["token"] for _, r in rounds])
        logq = np.array([r["logq"] for _, r in rounds], np.float32)
        position = np.array([r["position"] for _, r in rounds])
    except (ValueError, TypeError, KeyError, pl.exceptions.PolarsError) as error:
        raise ForeignError(file, f"has rounds that are no arrays of one shape ({error})", "record it again") from error
    if token.ndim != 3 or token.shape != logq.shape or token.dtype.kind != "i" or position.dtype.kind != "i":
        raise ForeignError(file, "has rounds that are no arrays of one shape", "record it again")
    every = all(sorted(r["position"] for r in p["rounds"]) == list(range(len(p["output_tokens"]) - 1)) for p in prompts)
    notes = (f"{torn} torn last line was dropped.",) if torn else ()
    facts = Facts(
        layout="dense" if every else "sparse", depth_max=token.shape[1], rank_kept=token.shape[2], notes=notes
    )
    return Foreign(sequences, np.array([i for i, _ in rounds]), position, token, logq, facts)


def _lines(file: Path) -> tuple[list[dict[str, Any]], int]:
    """Whole lines, and whether (0 or 1) the last was torn."""
    raw = file.read_bytes().split(b"\n")
    last = max((i for i, line in enumerate(raw) if line.strip()), default=-1)
    prompts = []
    for number, line in enumerate(raw[: last + 1]):
        try:
            if line.strip():
                prompts.append(_prompt(json.loads(line.decode("utf-8"))))
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            if number == last and number == len(raw) - 1:  # no line end: the writer was stopped in the middle
                return prompts, 1
            raise ForeignError(file, f"line {number + 1} is not JSON ({error})", "record it again") from error
        except (KeyError, TypeError) as error:
            raise ForeignError(file, f"line {number + 1} lacks a field ({error})", "see logs/README.md") from error
    return prompts, 0


def _prompt(value: Any) -> dict[str, Any]:
    for name in ("prompt_id", "domain", "prompt_tokens", "output_tokens"):
        value[name]
    return {"finish": "unknown", **value, "rounds": list(value["rounds"])}
