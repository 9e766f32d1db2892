"""A target, its drafter and its tokenizer, by name."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import torch
from transformers.utils import logging

from castsim.base.errors import OptionError
from castsim.live.models.chat import Chat, load_chat
from castsim.live.models.checkpoint import load_drafter, random_drafter
from castsim.live.models.drafter import Drafter
from castsim.live.models.target import Target, load_target, random_target
from castsim.live.pair import resolved

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_pair(
    target: str, drafter: str | None, dtype: str, device: str, raw: bool, thinking: bool
) -> tuple[Drafter, Chat]:
    """The drafter, bound to its target, and the chat.

    Raises:
        OptionError: a device or type that is not there, or no drafter for a target that is not the embedded one.
        ModelError: see `load_target`, `load_drafter` and `load_chat`.
    """
    if drafter is None and target != "pair":
        raise OptionError(f"--target {target}: needs a --drafter that was trained for it")
    where = _device(device)
    logging.set_verbosity_error()  # what matters of a model is checked and told by castsim
    logging.disable_progress_bar()
    drafter = drafter or "pair-dflash"
    loaded = replace(load_target(resolved(target), _dtype(dtype, where), where), name=target)
    bound = replace(load_drafter(resolved(drafter), loaded), name=drafter)
    return bound, load_chat(resolved(target), raw, thinking)


def load_for_probe(
    target: str,
    drafter: str | None,
    config: Path | None,
    drafter_config: Path | None,
    dtype: str,
    device: str,
    seed: int,
) -> tuple[Target, Drafter | None]:
    """A target, or one of random weights, and a drafter if one is named: latency depends on neither's values.

    Raises:
        OptionError: a device or type that is not there.
        ModelError: see `load_target`, `random_target` and `load_drafter`.
    """
    where = _device(device)
    kind = _dtype(dtype, where)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    if config is not None:
        loaded = random_target(config, kind, where, seed)
    else:
        loaded = replace(load_target(resolved(target), kind, where), name=target)
        drafter = drafter or ("pair-dflash" if target == "pair" else None)
    if drafter_config is not None:
        return loaded, random_drafter(drafter_config, loaded, seed)
    return loaded, None if drafter is None else replace(load_drafter(resolved(drafter), loaded), name=drafter)


def _device(name: str) -> str:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:  # torchrun: a GPU for each process
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        torch.zeros(1, device=name).item()  # `meta` has no numbers
    except (RuntimeError, AssertionError) as error:
        raise OptionError(f"--device {name}: is not there; give cpu, or a device that torch sees") from error
    return name


def _dtype(name: str, device: str) -> torch.dtype:
    if name == "auto":
        name = "float32" if torch.device(device).type == "cpu" else "bfloat16"
    if name not in TYPES:
        raise OptionError(f"--dtype {name}: there are {', '.join(TYPES)} and auto")
    return TYPES[name]
