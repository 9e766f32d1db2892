"""The `.pt` of the paper's public code: a list with one dict for each round of the chain.

Each dict has `accepted` (int), `top_idx` (L, K) int64, `top_val` (L, K) float32 logits and `realized` (up to L) int64.
Two things are not in the file:

* the normaliser: logits are normalised over the K logged candidates, so masses are too high (the run says so);
* prompts and positions: rounds follow one another, so each must continue the one before. A round whose continuation is
  cut ends its prompt. The bonus token of a full accept is in no row; the prompt is taken to go on.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from castsim.errors import ForeignError, first_line
from castsim.foreign import Foreign, ImportOptions, sequences_frame
from castsim.manifest import Facts


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
        raise ForeignError(file, "needs torch to be read", "pip install 'castsim[pt]'") from error
    try:
        rounds = torch.load(file, weights_only=True, map_location="cpu")  # never unpickles foreign objects
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, AttributeError, pickle.UnpicklingError) as error:
        raise ForeignError(
            file,
            f"is refused by torch's weights-only reader ({first_line(error)})",
            "export it as tensors and numbers only",
        ) from error
    if not isinstance(rounds, list) or not rounds:
        raise ForeignError(file, "is not a list of rounds", "see logs/README.md for the layout")
    return [_round(file, i, entry) for i, entry in enumerate(rounds)]


def _round(file: Path, number: int, entry: Any) -> dict[str, Any]:
    """One entry with arrays for tensors, or an error that names it."""
    try:
        found = {name: entry[name].numpy() for name in ("top_idx", "top_val", "realized")} | {
            "accepted": int(entry["accepted"])
        }
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise ForeignError(file, f"round {number} lacks what the layout has ({error})", "see logs/README.md") from error
    shape = found["top_idx"].shape
    depth_known = len(found["realized"])
    if len(shape) != 2 or found["top_val"].shape != shape or not 0 < depth_known <= shape[0]:
        raise ForeignError(file, f"round {number} has arrays of shapes that disagree", "see logs/README.md")
    best = np.take_along_axis(found["top_idx"], found["top_val"].argmax(axis=1)[:, None], axis=1)[:depth_known, 0]
    chain = int(np.cumprod(best == found["realized"]).sum())
    if found["accepted"] != chain:
        told = f"round {number} says that {found['accepted']} tokens are accepted, its own arrays say {chain}"
        raise ForeignError(file, told, "export it again")
    return found


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
        if len(entry["top_idx"]) != depth_max:
            raise ForeignError(file, "has rounds of several block lengths", "import them apart")
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
