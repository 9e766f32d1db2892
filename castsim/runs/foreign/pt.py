"""The `.pt` of the paper's public code: a list with one dict for each round of the chain.

Each dict has `accepted` (int), `top_idx` (L, K) int64, `top_val` (L, K) float32 logits and `realized` (up to L) int64.
Two things are not in the file:

* the normaliser: logits are normalised over the K logged candidates, so masses are too high (the run says so);
* prompts and positions: rounds follow one another, so each must continue the one before. A prompt ends with a round
  whose continuation is cut, or with an end of sequence (`--eos`) before the next root. The bonus token of a full accept
  is in no row; the prompt is taken to go on.

Two things in it are not plain, and are counted:

* a prompt that ended at the token limit: `realized` stops there, `accepted` does not. Such a round counts up to the
  limit. A last round whose `realized` is empty has nothing to be scored by and is left out.
* a tie at the top of the logits: the file does not say which candidate its chain took, so every number that one of
  them gives is believed, and the next round begins where `accepted` says.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from castsim.base.errors import ForeignError, first_line
from castsim.base.extras import install
from castsim.runs.foreign import MARKED, Foreign, ImportOptions, sequences_frame
from castsim.runs.manifest import Facts
from replay.rounds import ID_LIMIT


def read(file: Path, options: ImportOptions) -> Foreign:
    """A sparse run of the chain's rounds. Raises `ForeignError` for anything but the layout above."""
    rounds = _load(file)
    depth_max, rank_kept = rounds[0].token.shape
    if any(r.token.shape != rounds[0].token.shape for r in rounds):
        raise ForeignError(file, "has rounds of several block lengths or numbers of candidates", "import them apart")
    joined = _join(rounds, options.eos_ids)
    logits = np.stack([r.logit for r in rounds])  # (B, L, K)
    logq = logits - np.logaddexp.reduce(logits, axis=2, keepdims=True)
    facts = Facts(
        layout="sparse",
        depth_max=depth_max,
        rank_kept=rank_kept,
        normaliser="kept_ranks",
        logged_by="chain",
        notes=tuple(_notes(rank_kept, joined.breaks)),
    )
    rows = [
        {"prompt_id": f"{options.domain}/{i}", "domain": options.domain, "prompt_tokens": [], "output_tokens": output}
        for i, output in enumerate(joined.outputs)
    ]
    return Foreign(
        sequences_frame(rows),
        np.array(joined.prompt),
        np.array(joined.position),
        np.stack([r.token for r in rounds]),
        np.minimum(logq, 0.0).astype(np.float32),
        facts,
        {name: np.array([getattr(r, name) for r in rounds]) for name in MARKED},
    )


def _notes(rank_kept: int, breaks: int) -> list[str]:
    notes = [
        f"Scores are normalised over the {rank_kept} logged candidates, since the file has no normaliser: masses are "
        "upper bounds, and the order of a tree's nodes can differ from that under the full vocabulary.",
        "Prompts and positions are not in the file; they were rebuilt from how rounds continue one another.",
    ]
    if breaks:
        notes.append(f"{breaks} rounds do not continue the one before; a new prompt was begun at each.")
    return notes


class _Round(NamedTuple):
    """A checked round.

    Attributes:
        token, logit: (L, K).
        realized: up to L tokens behind the root.
        accepted: how many of them the chain accepted.
        accepted_beyond_end: it accepted more than was realised.
        tied_at_top: a tie at the top decides how many.
    """

    token: np.ndarray
    logit: np.ndarray
    realized: list[int]
    accepted: int
    accepted_beyond_end: bool
    tied_at_top: bool


def _load(file: Path) -> list[_Round]:
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


def _round(file: Path, number: int, entry: Any) -> _Round:
    """One entry, or an error that names it."""
    try:
        token, logit, realized = (_array(entry[name]) for name in ("top_idx", "top_val", "realized"))
        told = entry["accepted"]
        told = told.item() if hasattr(told, "item") else told
    except (TypeError, KeyError, AttributeError, ValueError, RuntimeError) as error:
        problem = f"round {number} lacks what the layout has ({first_line(error)})"
        raise ForeignError(file, problem, "see logs/README.md") from error
    if realized.shape == (0,):
        realized = realized.astype(np.int64)  # an empty tensor is one of floats, whatever it would hold
    _check_arrays(file, number, token, logit, realized)
    at_top = logit == logit.max(axis=1, keepdims=True)  # (L, K)
    right = (at_top & (token == _column(realized, len(token)))).any(axis=1)  # (L,)
    alone = at_top.sum(axis=1) == 1
    sure, most = (int(np.cumprod(hits).sum()) for hits in (right & alone, right))
    beyond = isinstance(told, int) and most == len(realized) < told <= len(token)
    if not (told == most or beyond or (told in range(most) and not alone[int(told)])):
        says = f"{sure}" if sure == most else f"{sure} to {most}"
        problem = f"round {number} says that {told} tokens are accepted, its own arrays say {says}"
        raise ForeignError(file, problem, "export it again")
    accepted = min(int(told), len(realized))
    return _Round(token, logit, realized.tolist(), accepted, beyond, sure < most)


def _array(tensor: Any) -> np.ndarray:
    """A tensor as an array; reals as float64, since NumPy has no bfloat16."""
    tensor = tensor.detach()
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy()


def _column(realized: np.ndarray, depth_max: int) -> np.ndarray:
    """(L, 1) the realised tokens, and behind them an id that no candidate has."""
    return np.concatenate([realized, np.full(depth_max - len(realized), -1)])[:, None]


def _check_arrays(file: Path, number: int, top_idx: np.ndarray, top_val: np.ndarray, realized: np.ndarray) -> None:
    rules = {
        "arrays of shapes that disagree": top_idx.ndim != 2
        or top_val.shape != top_idx.shape
        or realized.ndim != 1
        or len(realized) > len(top_idx)
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

    @property
    def over(self) -> bool:
        """No token follows the next root, nor will any."""
        return self.ended and self.next_root >= len(self.tokens) - 1

    def takes(self, realized: list[int], depth_max: int) -> bool:
        """Add a round's continuation if it agrees with what is known behind the root."""
        if self.over:
            return not realized
        known = self.tokens[self.next_root + 1 :]
        total = self.next_root + 1 + len(realized)
        if known != realized[: len(known)] or (self.ended and total != len(self.tokens)):
            return False
        self.tokens += realized[len(known) :]
        self.ended = len(realized) < depth_max
        return True

    def advance(self, committed: int, eos_ids: Sequence[int]) -> None:
        """Move to the next root."""
        root, self.next_root = self.next_root, self.next_root + committed
        if any(token in eos_ids for token in self.tokens[root : self.next_root]):  # the exporter looks before the root
            self.ended, self.next_root = True, len(self.tokens) - 1
        elif self.ended:
            self.next_root = min(self.next_root, len(self.tokens) - 1)
        elif self.next_root == len(self.tokens):
            self.tokens.append(None)  # the bonus token of a full accept


class _Joined(NamedTuple):
    """Outputs, for each round its prompt and position, and how many rounds do not continue the one before."""

    outputs: list[list[int | None]]
    prompt: list[int]
    position: list[int]
    breaks: int


def _join(rounds: Sequence[_Round], eos_ids: Sequence[int]) -> _Joined:
    outputs, prompt, position, breaks = [_Output()], [], [], 0
    for entry in rounds:
        depth_max = len(entry.token)
        if not outputs[-1].takes(entry.realized, depth_max):
            breaks += not outputs[-1].over
            outputs.append(_Output())
            outputs[-1].takes(entry.realized, depth_max)
        prompt.append(len(outputs) - 1)
        position.append(outputs[-1].next_root)
        outputs[-1].advance(entry.accepted + 1, eos_ids)
    return _Joined([o.tokens for o in outputs], prompt, position, breaks)
