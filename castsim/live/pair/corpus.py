"""The drafters' text: the target's own answers to training prompts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch

from castsim.live.models.continuations import continuations
from castsim.live.models.sampling import Sampling
from castsim.live.models.target import Target
from castsim.live.pair.looping import loop_start
from castsim.live.pair.recipe import Recipe
from castsim.live.pair.text import Document
from castsim.live.pair.vocabulary import encoded

PART = 512  # answers in a file; a part that is there is not made again
SHORTEST = 4  # tokens of a reply that has something to teach
SCHEMA = pl.Schema({"prompt": pl.List(pl.Int32), "reply": pl.List(pl.Int32), "greedy": pl.Boolean})


def write_corpus(
    documents: list[Document], tokenizer: Any, target: Target, recipe: Recipe, folder: Path, jobs: int = 2
) -> pl.DataFrame:
    """Answers to `recipe.answers` prompts, in a seeded order; resumes from the parts in `folder`."""
    from joblib import Parallel, delayed

    folder.mkdir(parents=True, exist_ok=True)
    prompts = [encoded(tokenizer, d)[0] for d in documents if d.prompt is not None]
    order = np.random.default_rng(recipe.seed).permutation(len(prompts))[: recipe.answers]
    parts = [order[i : i + PART].tolist() for i in range(0, len(order), PART)]
    end = tokenizer.eos_token_id
    wanted = {folder / f"part-{n:03d}.parquet": part for n, part in enumerate(parts)}
    Parallel(n_jobs=jobs)(
        delayed(_write_part)(target, [(i, prompts[i]) for i in part], end, recipe, file)
        for file, part in wanted.items()
        if not file.exists()
    )
    return pl.concat(pl.read_parquet(file) for file in wanted)


def _write_part(target: Target, prompts: list[tuple[int, list[int]]], end: int, recipe: Recipe, file: Path) -> None:
    torch.set_num_threads(1)
    prompts = sorted(prompts, key=lambda p: len(p[1]))  # batches of like length
    cut = round(len(prompts) * recipe.greedy_share)
    mixed = np.random.default_rng([recipe.seed, prompts[0][0]]).permutation(len(prompts)) < cut
    rows = []
    for greedy in (True, False):
        chosen = [p for p, is_greedy in zip(prompts, mixed, strict=True) if is_greedy == greedy]
        for i in range(0, len(chosen), recipe.answers_batch):
            batch = chosen[i : i + recipe.answers_batch]
            seeds = [(recipe.seed, number) for number, _ in batch]
            sampling = Sampling(0.0 if greedy else 1.0)
            found = continuations(
                target, [p for _, p in batch], [recipe.new_tokens] * len(batch), [end], sampling, seeds
            )
            rows += [(prompt, reply, greedy) for (_, prompt), reply in zip(batch, found, strict=True)]
    pl.DataFrame(rows, schema=SCHEMA, orient="row").write_parquet(file.with_suffix(".part"))
    os.replace(file.with_suffix(".part"), file)


class Roots:
    """Micro-batches for a drafter: sequences, roots in their replies, and what follows each root.

    Replies are cut where they begin to loop: repeated text teaches little, and there is much of it. A step's batch
    depends on the seed and the step alone.
    """

    def __init__(self, corpus: pl.DataFrame, recipe: Recipe, depth_max: int, label_of: Callable | None = None) -> None:
        cut = ((prompt, reply[: loop_start(reply)]) for prompt, reply in corpus.select("prompt", "reply").iter_rows())
        self.sequences = [(prompt + reply, len(prompt)) for prompt, reply in cut if len(reply) >= SHORTEST]
        self.recipe, self.depth_max, self.label_of = recipe, depth_max, label_of

    def batch(self, step: int, count: int, micro: int) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Micro-batches of ids (b, T), anchors (b, M), labels (b, M, L); -100 where nothing is known."""
        epoch, at = divmod(step * count, len(self.sequences) // count * count)
        order = np.random.default_rng([self.recipe.seed, 1, epoch]).permutation(len(self.sequences))
        rng = np.random.default_rng([self.recipe.seed, 2, step])
        chosen = sorted(order[at : at + count], key=lambda i: len(self.sequences[i][0]))
        return [self._micro(rng, chosen[i : i + micro]) for i in range(0, count, micro)]

    def _micro(self, rng: np.random.Generator, chosen: list[int]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        width = max(len(self.sequences[i][0]) for i in chosen)
        ids = np.zeros((len(chosen), width + self.depth_max), np.int64)
        length, anchor = np.zeros(len(chosen), np.int64), np.zeros((len(chosen), self.recipe.anchors), np.int64)
        for row, i in enumerate(chosen):
            tokens, begin = self.sequences[i]
            ids[row, : len(tokens)], length[row] = tokens, len(tokens)
            anchor[row] = rng.integers(begin, len(tokens) - 1, self.recipe.anchors)
        place = anchor[..., None] + np.arange(1, self.depth_max + 1)  # (b, M, L)
        label = np.take_along_axis(ids[:, None], place, axis=2)
        label = np.where(place < length[:, None, None], label if self.label_of is None else self.label_of(label), -100)
        return torch.from_numpy(ids[:, :width]), torch.from_numpy(anchor), torch.from_numpy(label)
