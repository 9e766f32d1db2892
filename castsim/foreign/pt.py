"""The `.pt` of the paper's public code: a list with one dict for each round of the chain.

Each dict has `accepted` (int), `top_idx` (L, K) int64, `top_val` (L, K) float32 logits and `realized` (up to L) int64.
Two things are not in the file:

* the normaliser: logits are normalised over the K logged candidates, so masses are too high (the run says so);
* prompts and positions: rounds follow one another, so each must continue the one before. A round whose continuation is
  cut ends its prompt. The bonus token of a full accept is in no row; the prompt is taken to go on.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from castsim.errors import ForeignError, first_line
from castsim.extras import install
from castsim.foreign import Foreign, ImportOptions, sequences_frame
from castsim.manifest import Facts
from replay.rounds import ID_LIMIT


def read(file: Path, options: ImportOptions) -> Foreign:
    """A sparse run of the chain's rounds. Raises `ForeignError` for anything but the layout above."""
    rounds = _load(file)
    depth_max, rank_kept = rounds[0]["top_idx"].shape
    outputs, prompt, position, breaks = _join(file, rounds, depth_max)
    logits = np.stack([r["top_val"] for r in rounds]).astype(np.float64)  # (B, L, K)
    logq = logits - np.logaddexp.reduce(logits, axis=2, keepdims=True)
    notes = [
        f"Scores are normalised over the {rank_kept} logged candidates, since the file has no normaliser: masses are "
        "upper bounds, and the order of a tree's nodes can differ from that under the full vocabulary.",
        "Prompts and positions are not in the file; they were rebuilt from how rounds continue one another.",
    ]
    if breaks:
        notes.append(f"{breaks} rounds do not continue the one before; a new prompt was begun at each.")
    facts = Facts(
        layout="sparse",
        depth_max=depth_max,
        rank_kept=rank_kept,
        normaliser="kept_ranks",
        logged_by="chain",
        notes=tuple(notes),
    )
    names = [f"{options.domain}/{i}" for i in range(len(outputs))]
    rows = [
        {"prompt_id": name, "domain": options.domain, "prompt_tokens": [], "output_tokens": output, "finish": "unknown"}
        for name, output in zip(names, outputs, strict=True)
    ]
    token = np.stack([r["top_idx"] for r in rounds])
    return Foreign(
        sequences_frame(rows),
        np.array(prompt),
        np.array(position),
        token,
        np.minimum(logq, 0.0).astype(np.float32),
        facts,
    )


def _load(file: Path) -> list[dict[str, Any]]:
    try:
        import torch
    except ImportError as error:
        raise ForeignError(file, "needs torch to be read", install("pt")) from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of what is refused here anyway
            rounds = torch.load(file, weights_only=True, map_location="cpu")  # never unpickles foreign objects
    except Exception as error:  # a damaged file can raise anything in there
        problem = f"is refused by torch's weights-only reader ({first_line(error)})"
        raise ForeignError(file, problem, "export it as tensors and numbers only") from error
    if not isinstance(rounds, list) or not rounds:
        raise ForeignError(file, "is not a list of rounds", "see logs/README.md for the layout")
    return [_round(file, i, entry) for i, entry in enumerate(rounds)]


def _round(file: Path, number: int, entry: Any) -> dict[str, Any]:
    """One entry with arrays for tensors, or an error that names it."""
    try:
        found = {name: entry[name].detach().numpy() for name in ("top_idx", "top_val", "realized")}
        told = entry["accepted"]
    except (TypeError, KeyError, AttributeError, ValueError, RuntimeError) as error:
        problem = f"round {number} lacks what the layout has ({first_line(error)})"
        raise ForeignError(file, problem, "see logs/README.md") from error
    _check_arrays(file, number, **found)
    best = np.take_along_axis(found["top_idx"], found["top_val"].argmax(axis=1)[:, None], axis=1)[:, 0]
    chain = int(np.cumprod(best[: len(found["realized"])] == found["realized"]).sum())
    if told != chain:
        problem = f"round {number} says that {told} tokens are accepted, its own arrays say {chain}"
        raise ForeignError(file, problem, "export it again")
    return {**found, "accepted": chain}


def _check_arrays(file: Path, number: int, top_idx: np.ndarray, top_val: np.ndarray, realized: np.ndarray) -> None:
    rules = {
        "arrays of shapes that disagree": top_idx.ndim != 2
        or top_val.shape != top_idx.shape
        or realized.ndim != 1
        or not 0 < len(realized) <= len(top_idx)
        or not top_idx.size,
        "arrays of other types": top_idx.dtype.kind != "i" or realized.dtype.kind != "i" or top_val.dtype.kind != "f",
        "a logit that is not finite": top_val.dtype.kind == "f" and not np.isfinite(top_val).all(),
        "a token id that is no int32": realized.dtype.kind == "i"
        and bool(((realized < 0) | (realized >= ID_LIMIT)).any()),
    }
    for problem, broken in rules.items():
        if broken:
            raise ForeignError(file, f"round {number} has {problem}", "see logs/README.md")


@dataclass
class _Output:
    """A prompt's output while its rounds are joined; index 0 is the prefill token, which no row holds."""

    tokens: list[int | None] = field(default_factory=lambda: [None])
    next_root: int = 0
    ended: bool = False

    def takes(self, realized: list[int], depth_max: int) -> bool:
        """Add a round's continuation if it agrees with what is known behind the root."""
        known = self.tokens[self.next_root + 1 :]
        total = self.next_root + 1 + len(realized)
        if known != realized[: len(known)] or (self.ended and total != len(self.tokens)):
            return False
        self.tokens += realized[len(known) :]
        self.ended = len(realized) < depth_max
        return True

    def advance(self, committed: int) -> bool:
        """Move to the next root; False where no token would follow it."""
        self.next_root += committed
        if self.next_root == len(self.tokens) and not self.ended:
            self.tokens.append(None)  # the bonus token of a full accept
        return not self.ended or self.next_root < len(self.tokens) - 1


def _join(
    file: Path, rounds: list[dict[str, Any]], depth_max: int
) -> tuple[list[list[int | None]], list[int], list[int], int]:
    """Outputs, and for each round its prompt and position; also how many rounds do not continue the one before."""
    outputs, prompt, position, breaks = [_Output()], [], [], 0
    for entry in rounds:
        if entry["top_idx"].shape != rounds[0]["top_idx"].shape:
            raise ForeignError(
                file, "has rounds of several block lengths or numbers of candidates", "import them apart"
            )
        realized = entry["realized"].tolist()
        if not outputs[-1].takes(realized, depth_max):
            breaks += 1
            outputs.append(_Output())
            outputs[-1].takes(realized, depth_max)
        prompt.append(len(outputs) - 1)
        position.append(outputs[-1].next_root)
        if not outputs[-1].advance(entry["accepted"] + 1):
            outputs.append(_Output())
    return [o.tokens for o in outputs if len(o.tokens) > 1], prompt, position, breaks
