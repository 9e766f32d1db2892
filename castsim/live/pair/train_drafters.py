"""Training of the one-pass drafters on the target's answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from castsim.live.models.config import dart_config, dflash_config
from castsim.live.models.dart import Dart
from castsim.live.models.dflash import DFlash
from castsim.live.models.drafter import DartDrafter, DFlashDrafter, Drafter
from castsim.live.models.target import Target
from castsim.live.pair.corpus import Roots
from castsim.live.pair.recipe import Recipe, Schedule
from castsim.live.pair.training_loop import fit


def train(drafter: Drafter, roots: Roots, schedule: Schedule, decay: float, folder: Path) -> None:
    """Cross-entropy of the tokens behind sampled roots; position j weighs exp(-(j - 1) / decay).

    Calibrated marginals minimise it; nothing is distilled from the target's own probabilities.
    """
    weight = torch.exp(-torch.arange(drafter.depth_max) / decay)

    def loss(part: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        ids, anchor, label = part
        with torch.no_grad():
            _, features = drafter.target.forward(ids, drafter.layer_ids)
        logits = drafter.logits(drafter.context(features[:, :-1], ids), ids, anchor)
        each = torch.nn.functional.cross_entropy(logits.flatten(0, 2), label.flatten(), reduction="none")
        share = weight * (label >= 0)
        return (each.view_as(label) * share).sum() / share.sum()

    fit(drafter.head, lambda step: roots.batch(step, schedule.batch, schedule.micro), loss, schedule, folder)
    drafter.head.eval()


def new_dflash(config: dict[str, Any], target: Target, recipe: Recipe) -> DFlashDrafter:
    """A head that begins as the target's last layers, reading the features that those layers read."""
    torch.manual_seed(recipe.seed)
    head = DFlash(dflash_config(Path("config.json"), config))
    last = target.model.model.layers[-recipe.draft_layers :]
    for layer, source in zip(head.layers, last, strict=True):
        layer.load_state_dict(source.state_dict())
    head.norm.load_state_dict(target.model.model.norm.state_dict())
    _begin_with_last_feature(head.fc)
    return DFlashDrafter(head, target, "dflash")


def frequent_ids(corpus: pl.DataFrame, count: int) -> np.ndarray:
    """The `count` ids most often in the replies, ascending: the draft vocabulary."""
    ids, times = np.unique(np.concatenate(corpus["reply"].to_list()), return_counts=True)
    return np.sort(ids[np.lexsort((ids, -times))][:count]).astype(np.int64)


def new_dart(
    config: dict[str, Any], corpus: pl.DataFrame, target: Target, recipe: Recipe
) -> tuple[DartDrafter, np.ndarray]:
    """A head that begins as the target's last layer on features, nearly blind to embeddings; and its vocabulary."""
    torch.manual_seed(recipe.seed)
    head, last = Dart(dart_config(Path("config.json"), config)), target.model.model.layers[-1]
    layer, kept = head.midlayer, frequent_ids(corpus, recipe.dart_vocab)
    layer.mlp.load_state_dict(last.mlp.state_dict())
    layer.hidden_norm.load_state_dict(last.input_layernorm.state_dict())
    layer.post_attention_layernorm.load_state_dict(last.post_attention_layernorm.state_dict())
    layer.self_attn.o_proj.load_state_dict(last.self_attn.o_proj.state_dict())
    with torch.no_grad():
        for name in ("q_proj", "k_proj", "v_proj"):
            source = getattr(last.self_attn, name).weight
            getattr(layer.self_attn, name).weight.copy_(torch.cat([torch.randn_like(source) * 0.02, source], dim=1))
        layer.mask_rep.normal_(std=0.5)
        _begin_with_last_feature(head.fc)
        head.lm_head.weight.copy_(target.model.get_output_embeddings().weight[torch.from_numpy(kept)])
        head.d2t.copy_(torch.from_numpy(kept - np.arange(len(kept))))
    return DartDrafter(head, target, "dart"), kept


def draft_labels(kept: np.ndarray, vocab_size: int) -> np.ndarray:
    """(vocabulary,) draft id of each target id; -100 for ids that the draft vocabulary lacks."""
    table = np.full(vocab_size, -100)
    table[kept] = np.arange(len(kept))
    return table


def _begin_with_last_feature(fc: torch.nn.Linear) -> None:
    """Let a projection pass on its last feature, with a little noise from the others."""
    with torch.no_grad():
        fc.weight.normal_(std=0.01)
        fc.weight[:, -fc.out_features :] += torch.eye(fc.out_features)
