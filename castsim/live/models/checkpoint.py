"""A drafter's folder, checked and bound to its target; or a head of random weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from castsim.base.errors import ModelError, in_one_line
from castsim.live.models.config import COPY, DraftConfig, dart_config, dflash_config, is_dart
from castsim.live.models.dart import Dart
from castsim.live.models.dflash import DFlash
from castsim.live.models.drafter import DartDrafter, DFlashDrafter, Drafter
from castsim.live.models.files import model_folder, read_config, read_weights, revision
from castsim.live.models.target import Target

NOT_OURS = ("embed_tokens.", "lm_head.", "rotary_emb.")  # the target's, or computed; some checkpoints carry copies


def load_drafter(name: str, target: Target) -> Drafter:
    """Load a DFlash or DART head for `target`, on its device and in its type.

    Raises:
        ModelError: it cannot be had, is damaged, or does not fit the target.
    """
    folder = model_folder(name)
    file, found = folder / "config.json", read_config(folder)
    bind = _bind_dart if is_dart(found) else _bind_dflash
    return replace(bind(file, found, target), name=name, revision=revision(folder))


def random_drafter(file: Path, target: Target, seed: int) -> Drafter:
    """A DFlash head of a config.json with random weights.

    Raises:
        ModelError: it is no such file, or does not fit the target.
    """
    if file.name != "config.json":
        raise ModelError(file, "is no config.json", "name the one of a DFlash head")
    config = _fitting(file, read_config(file.parent), target)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = _made(file, lambda: DFlash(config))
    return DFlashDrafter(head.placed(target.device, target.dtype).eval(), target, "random weights", "random")


def _bind_dflash(file: Path, found: dict[str, Any], target: Target) -> DFlashDrafter:
    config = _fitting(file, found, target)
    return DFlashDrafter(_filled(file, lambda: DFlash(config), target), target, "")


def _fitting(file: Path, found: dict[str, Any], target: Target) -> DraftConfig:
    config = dflash_config(file, found)
    target.check_layers(file, "dflash_config.target_layer_ids", config.target_layer_ids)
    _same(file, "hidden_size", config.arch.hidden_size, target.hidden_size)
    _same(file, "vocab_size", config.arch.vocab_size, target.vocab_size)
    _same(file, "num_target_layers", found.get("num_target_layers", target.layers), target.layers)
    rows = target.embedding_rows
    if config.mask_token_id >= rows:
        problem = f"mask_token_id {config.mask_token_id} is not among the target's {rows} embeddings"
        raise ModelError(file, problem, "pair other models")
    return config


def _bind_dart(file: Path, found: dict[str, Any], target: Target) -> DartDrafter:
    config = dart_config(file, found)
    _same(file, "target_hidden_size", config.target_hidden, target.hidden_size)
    _same(file, "hidden_size", config.hidden_size, target.hidden_size)  # the embedding is the target's
    _same(file, "vocab_size", config.vocab_size, target.vocab_size)
    drafter = DartDrafter(_filled(file, lambda: Dart(config), target), target, "")
    target.check_layers(file, "the feature layers", drafter.layer_ids)
    check_table(file, drafter.token_of, target.vocab_size)
    return drafter


def check_table(file: Path, token_of: Tensor, vocab_size: int) -> None:
    """Refuse a draft vocabulary with doubles or with ids that the target has not (scenario: offset read as id)."""
    if len(token_of.unique()) < len(token_of):
        raise ModelError(file.parent, "d2t gives one target id to two draft ids", "d2t must hold offsets, not ids")
    if token_of.min() < 0 or token_of.max() >= vocab_size:
        raise ModelError(file.parent, f"d2t leads outside the target's {vocab_size} ids", "pair other models")


def _filled(file: Path, made: Callable[[], DFlash | Dart], target: Target) -> Any:
    """A head with the weights beside its config.json."""
    remedy = "fetch the weights that belong to config.json"
    head = _made(file, made)
    weights, wanted = read_weights(file.parent), head.state_dict()
    extra = [k for k in weights if k not in wanted and not k.startswith(NOT_OURS) and k != "t2d"]
    missing = [k for k in wanted if k not in weights and not k.startswith("rotary_emb.")]
    for keys, problem in ((missing, "lacks"), (extra, "has the unknown")):
        if keys:
            raise ModelError(file.parent, f"{problem} tensor {keys[0]}", remedy)
    for key in wanted.keys() & weights.keys():
        asked, found = tuple(wanted[key].shape), tuple(weights[key].shape)
        if asked != found:
            raise ModelError(file.parent, f"{key} has shape {found}, config.json asks for {asked}", remedy)
    head.load_state_dict({k: weights[k] for k in wanted.keys() & weights.keys()}, strict=False)
    return head.placed(target.device, target.dtype).eval()


def _made(file: Path, made: Callable[[], DFlash | Dart]) -> Any:
    """A head, its weights random."""
    try:
        return made()
    except Exception as error:  # whatever a strange configuration leads to in torch and transformers
        raise ModelError(file, f"describes no model ({in_one_line(error)})", COPY) from error


def _same(file: Path, key: str, drafter: int, target: int) -> None:
    if drafter != target:
        raise ModelError(file, f"{key} is {drafter}, the target's is {target}", "pair a drafter with its own target")
