"""Continuations of many prompts at once; each has a random stream of its own, so neighbours do not matter."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from castsim.live.models.cache import cache_argument
from castsim.live.models.sampling import Sampling, draw, law
from castsim.live.models.target import Target


@torch.inference_mode()
def continuations(
    target: Target,
    prompts: Sequence[Sequence[int]],
    limits: Sequence[int],
    eos_ids: Sequence[int],
    sampling: Sampling,
    seeds: Sequence[Sequence[int]],
) -> list[list[int]]:
    """Up to so many tokens behind each prompt, the end of sequence included where one came.

    Prompts are padded on the left; rows that have ended leave the batch by halves.

    Args:
        prompts: target ids, none empty.
        limits: most tokens of each output, at least 1.
        eos_ids: any of them ends an output.
        seeds: what each prompt's random stream is made from; not used when greedy.

    Returns:
        One list of ids a prompt, each with at least one token.
    """
    ids, mask = _left_padded(prompts, target.device)
    uniforms = _uniforms(seeds, max(limits), sampling).to(target.device)
    ends = torch.tensor(list(eos_ids), dtype=torch.long, device=target.device)
    cache = DynamicCache(config=target.model.config)
    known_as = {cache_argument(type(target.model)): cache}
    outputs: list[list[int]] = [[] for _ in prompts]
    rows = list(range(len(prompts)))  # whose output each row of the batch is
    ended = torch.zeros(len(rows), dtype=torch.bool, device=target.device)
    last = torch.tensor(limits, device=target.device) - 1
    for step in range(max(limits)):
        place = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        found = target.model(ids, attention_mask=mask, position_ids=place, use_cache=True, logits_to_keep=1, **known_as)
        token = _next(found.logits[:, -1], sampling, uniforms[rows, step])
        for row, value, over in zip(rows, token.tolist(), ended.tolist(), strict=True):
            outputs[row] += [] if over else [value]
        ended |= torch.isin(token, ends) | (last <= step)
        going = (~ended).nonzero()[:, 0]
        if len(going) == 0:
            break
        if 2 * len(going) <= len(rows):  # the copy pays when half of the rows are done
            cache.batch_select_indices(going)
            token, mask, ended, last = token[going], mask[going], ended[going], last[going]
            rows = [rows[i] for i in going.tolist()]
        ids, mask = token[:, None], torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
    return outputs


def _next(logits: Tensor, sampling: Sampling, uniform: Tensor) -> Tensor:
    return logits.argmax(dim=-1) if sampling.temperature == 0 else draw(law(logits, sampling), uniform)


def _uniforms(seeds: Sequence[Sequence[int]], count: int, sampling: Sampling) -> Tensor:
    """Numbers in [0, 1) (B, count) float64, a row from each seed; zeros where nothing is drawn."""
    if sampling.temperature == 0:
        return torch.zeros(len(seeds), count, dtype=torch.float64)
    return torch.from_numpy(np.stack([np.random.default_rng(list(seed)).random(count) for seed in seeds]))


def _left_padded(prompts: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids and attention mask (B, T); pads are id 0 and unseen."""
    width = max(map(len, prompts))
    ids = [[0] * (width - len(p)) + list(p) for p in prompts]
    mask = [[0] * (width - len(p)) + [1] * len(p) for p in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)
