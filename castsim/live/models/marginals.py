"""A drafter's marginals at every position of a target's output, in a few passes: the rows of a dense log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from castsim.live.models.drafter import Drafter
from castsim.live.models.sampling import first
from replay.rounds import Marginals

ROWS_IN_PASS = 512  # block rows of one drafter pass: enough to fill a matrix product, few enough to stay in the cache


@dataclass(frozen=True)
class DenseRows:
    """What a drafter believed at each of P positions; ids are the target's.

    Attributes:
        token, logq: (P, L, K) candidates, best first, equal ones by id; log-probabilities over its whole vocabulary.
        true_rank: (P, L) rank of the true token from 1, by the same order; one more than the vocabulary has where the
            drafter cannot say it, -1 where the output ends before.
        true_logq: (P, L) its log-probability; -inf and NaN in those two cases.
        target_logp: (P, L, K) the target's log-probabilities at the candidates behind the true prefix, NaN behind the
            output's end; None if not asked for.
        damaged: (P,) the drafter returned NaN there: its candidates are then its lowest ids, of no mass at all.
        disagreed: (P,) the token behind the root is not the first choice of the one pass that read the output.
    """

    token: NDArray[np.int32]
    logq: NDArray[np.float32]
    true_rank: NDArray[np.int32]
    true_logq: NDArray[np.float32]
    target_logp: NDArray[np.float32] | None
    damaged: NDArray[np.bool_]
    disagreed: NDArray[np.bool_]


@torch.inference_mode()
def dense_rows(
    drafter: Drafter, prompt: Sequence[int], output: Sequence[int], rank_kept: int, with_target: bool = False
) -> DenseRows:
    """Rows of all positions 0 .. len(output) - 2 of one output.

    Target and drafter read the whole sequence once; then the blocks of many positions share a pass.
    """
    target, depth_max = drafter.target, drafter.depth_max
    ids = torch.tensor([[*prompt, *output]], device=target.device)
    logits, features = target.forward(ids[:, :-1], drafter.layer_ids)
    answers = logits[0, len(prompt) - 1 :]  # (len(output), V); row i chose output[i]
    context = drafter.context(features, ids)
    anchor = torch.arange(len(prompt), ids.shape[1] - 1, device=ids.device)
    after = _after(ids[0], anchor, depth_max)  # (P, L)
    parts = [
        _ranked(drafter, drafter.logits(context, ids, at[None])[0], true, rank_kept)
        for at, true in zip(*(x.split(max(ROWS_IN_PASS // (depth_max + 1), 1)) for x in (anchor, after)), strict=True)
    ]
    token, logq, rank, true_logq, damaged = (torch.cat(column) for column in zip(*parts, strict=True))
    wanted = _target_logp(answers, token, after) if with_target else None
    return DenseRows(
        token.int().cpu().numpy(),
        logq.cpu().numpy(),
        rank.int().cpu().numpy(),
        true_logq.cpu().numpy(),
        None if wanted is None else wanted.cpu().numpy(),
        damaged.cpu().numpy(),
        (answers[1:].argmax(dim=-1) != after[:, 0]).cpu().numpy(),
    )


def candidates(drafter: Drafter, logits: Tensor, rank_kept: int) -> Marginals:
    """The marginals of one block, from logits (L, draft vocabulary); the same candidates as `dense_rows` keeps.

    Raises:
        RowError: a logit is NaN.
    """
    logq = logits.float().log_softmax(dim=-1)
    kept = min(rank_kept, logq.shape[-1])
    if kept == 1 and drafter.token_of is None:  # the chain needs no more, and no sorting
        token = first(logq)[:, None]
        return Marginals(token.cpu().numpy()[None], logq.gather(-1, token).cpu().numpy()[None])
    score, column = logq.topk(min(kept + 1, logq.shape[-1]), dim=-1)
    found, cut = score.cpu().numpy(), slice(kept)
    if (found[:, kept:] == found[:, kept - 1 : kept]).any():  # a tie at the cut: the smaller ids are kept
        ids = torch.arange(logq.shape[-1], device=logq.device) if drafter.token_of is None else drafter.token_of
        column, score = _best(logq, ids, kept)
        found = score.cpu().numpy()
    token = column if drafter.token_of is None else drafter.token_of[column]
    return Marginals(token.cpu().numpy()[None, :, cut], found[None, :, cut])


def _after(ids: Tensor, anchor: Tensor, depth_max: int) -> Tensor:
    """(P, L) the tokens behind each root, -1 behind the end."""
    place = anchor[:, None] + torch.arange(1, depth_max + 1, device=ids.device)
    return torch.where(place < len(ids), ids[place.clamp(max=len(ids) - 1)], -1)


def _ranked(drafter: Drafter, logits: Tensor, true: Tensor, rank_kept: int) -> tuple[Tensor, ...]:
    """Candidates, their scores, rank and score of the true tokens, damage: of logits (m, L, V), tokens (m, L)."""
    logq = logits.float().log_softmax(dim=-1)
    damaged = logq[..., 0].isnan().any(dim=1)  # one NaN makes all of its row NaN
    logq[damaged] = -torch.inf
    ids = torch.arange(logits.shape[-1], device=logits.device) if drafter.token_of is None else drafter.token_of
    best, score = _best(logq, ids, rank_kept)
    own = true if drafter.token_of is None else _draft_ids(drafter, true)
    known = own.clamp(min=0)[..., None]
    mine = logq.gather(-1, known)
    rank = _place(logq, mine, ids, ids[known])
    beyond, ended = own < 0, true < 0
    rank = torch.where(ended, -1, torch.where(beyond, logits.shape[-1] + 1, rank))
    mine = torch.where(ended, torch.nan, torch.where(beyond, -torch.inf, mine[..., 0]))
    return ids[best], score, rank, mine, damaged


def _place(logq: Tensor, mine: Tensor, ids: Tensor, id_of_mine: Tensor) -> Tensor:
    """Ranks (m, L) from 1 of the scores `mine` (m, L, 1) in logq (m, L, V); equal scores go by the smaller id."""
    above, up_to = ((logq > mine).sum(dim=-1, dtype=torch.int32), (logq >= mine).sum(dim=-1, dtype=torch.int32))
    rank, tied = above + 1, up_to - above > 1  # ties are rare, and a third pass over all is dear
    rank[tied] += ((logq[tied] == mine[tied]) & (ids < id_of_mine[tied])).sum(dim=-1, dtype=torch.int32)
    return rank


def _best(logq: Tensor, ids: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Columns and scores (..., count) of the best of logq (..., V): by score, equal ones by the smaller id.

    `topk` keeps any of the equal scores at its cut, so rows with a tie there are sorted whole.
    """
    more = min(count + 1, logq.shape[-1])
    score, column = logq.topk(more, dim=-1)
    column = column.gather(-1, ids[column].argsort(dim=-1))
    column = column.gather(-1, logq.gather(-1, column).argsort(dim=-1, descending=True, stable=True))
    if more > count:
        tied = score[..., count - 1] == score[..., count]
        by_id = ids.argsort()
        order = logq[tied][..., by_id].argsort(dim=-1, descending=True, stable=True)[..., :more]
        column[tied] = by_id[order]
    column = column[..., :count]
    return column, logq.gather(-1, column)


def _draft_ids(drafter: Drafter, true: Tensor) -> Tensor:
    """Draft ids (m, L) of target ids; -1 where the draft vocabulary has none."""
    table = true.new_full((drafter.target.vocab_size,), -1)
    table[drafter.token_of] = torch.arange(len(drafter.token_of), device=true.device)
    return torch.where(true < 0, -1, table[true.clamp(min=0)])


def _target_logp(answers: Tensor, token: Tensor, after: Tensor) -> Tensor:
    """The target's log-probabilities at candidates (P, L, K): position p, depth d was chosen by row p + d."""
    positions, depth_max, _ = token.shape
    row = torch.arange(positions, device=token.device)[:, None] + torch.arange(1, depth_max + 1, device=token.device)
    normaliser = answers.float().logsumexp(dim=-1)
    row = row.clamp(max=len(answers) - 1)
    logp = answers[row[..., None], token].float() - normaliser[row][..., None]
    return torch.where(after[..., None] < 0, torch.nan, logp)
