"""Dense NPZ: a row for each position, beside a JSON list of sequences.

STEM_dense.npz holds `prompt` (index into the sequences), `position`, `root`, `token` and `logq` (rows, L, K); the
sequences are STEM_sequences.json, a list of {prompt_id, domain, prompt_tokens, output_tokens}.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from castsim.base.errors import ForeignError, first_line
from castsim.base.textfile import read_json
from castsim.runs.foreign import Foreign, ImportOptions, sequences_frame
from castsim.runs.manifest import Facts

ARRAYS = {"prompt": 1, "position": 1, "root": 1, "token": 3, "logq": 3}  # name: number of axes


def read(file: Path, options: ImportOptions) -> Foreign:
    """A dense run. Raises `ForeignError` for a damaged archive, missing arrays, or sequences that do not fit."""
    try:
        with file.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in ARRAYS}
    except Exception as error:  # a damaged archive can raise anything in there
        raise ForeignError(
            file, f"cannot be read as a dense NPZ ({first_line(error)})", f"it needs the arrays {', '.join(ARRAYS)}"
        ) from error
    for name, axes in ARRAYS.items():
        if arrays[name].ndim != axes or len(arrays[name]) != len(arrays["prompt"]):
            raise ForeignError(file, f"array {name} has shape {arrays[name].shape}", "export the log again")
        if name != "logq" and arrays[name].dtype.kind not in "iu":
            raise ForeignError(file, f"array {name} is {arrays[name].dtype}, not integer", "export the log again")
    sequences = _sequences(
        options.sequences or file.with_name(file.name.removesuffix(".npz").removesuffix("_dense") + "_sequences.json")
    )
    depth_max, rank_kept = arrays["token"].shape[1:]
    if 0 in (depth_max, rank_kept):
        raise ForeignError(file, "holds no candidates", "export the log again")
    _check_roots(file, arrays, sequences)
    facts = Facts(layout="dense", depth_max=depth_max, rank_kept=rank_kept)
    rows = {name: arrays[name] for name in ("token", "logq")}
    return Foreign(
        sequences, arrays["prompt"].astype(np.int64), arrays["position"].astype(np.int64), facts=facts, **rows
    )


def _sequences(file: Path) -> pl.DataFrame:
    try:
        return sequences_frame(read_json(file))
    except OSError as error:
        raise ForeignError(file, "cannot be read", "name the sequences with --sequences") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise ForeignError(file, f"is no list of sequences ({first_line(error)})", "export it again") from error


def _check_roots(file: Path, arrays: dict[str, np.ndarray], sequences: pl.DataFrame) -> None:
    """A root that is not the output's token at its position means that rows and sequences do not belong together."""
    outputs = sequences["output_tokens"].to_list()
    for row, (prompt, position, root) in enumerate(
        zip(arrays["prompt"], arrays["position"], arrays["root"], strict=True)
    ):
        if not (
            0 <= prompt < len(outputs) and 0 <= position < len(outputs[prompt]) and outputs[prompt][position] == root
        ):
            raise ForeignError(
                file,
                f"row {row}: root {root} is not token {position} of sequence {prompt}",
                "check that both files belong together",
            )
