"""What a drafter's config.json must say, checked before anything is computed. Nothing is guessed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from castsim.base.errors import ModelError, in_one_line

BLOCK_MAX = 4096
COPY = "use the config.json that came with the head"


@dataclass(frozen=True)
class DraftConfig:
    """A DFlash head.

    Attributes:
        arch: `transformers.Qwen3Config` of the head's layers.
        block_size: L + 1, the root and its mask tokens.
        target_layer_ids: target layers, from 0, whose outputs are its features.
        sight: for each layer whether a block row sees only the rows before it, and the sliding window or None.
        embedding_scale, output_multiplier: factors on input embeddings and output logits.
        softcap: bound of the logits, or None.
    """

    arch: Any
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    sight: tuple[tuple[bool, int | None], ...]
    embedding_scale: float = 1.0
    output_multiplier: float = 1.0
    softcap: float | None = None


@dataclass(frozen=True)
class DartConfig:
    """A DART head; its L is `draft_length` + 1. `aux_layer_ids` None stands for the layers of the public code."""

    hidden_size: int
    target_hidden: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    vocab_size: int
    positions_max: int
    draft_length: int
    draft_vocab_size: int
    aux_layer_ids: tuple[int, ...] | None = None


def is_dart(config: dict[str, Any]) -> bool:
    """Whether a config.json is that of a DART head; otherwise it is taken for a DFlash head's."""
    return "draft_length" in config and "draft_vocab_size" in config


def dflash_config(file: Path, config: dict[str, Any]) -> DraftConfig:
    """The checked configuration of a DFlash head.

    Raises:
        ModelError: a key is missing or cannot be right; names file and key.
    """
    own = config.get("dflash_config", {})
    if not isinstance(own, dict):
        raise ModelError(file, f"dflash_config is {own}, no object", COPY)

    def value(key: str) -> Any:
        return own.get(key, config.get(key))

    if value("selector_rank") or value("conv_kernel_size"):
        raise ModelError(file, "is a DFlash2 head (convolutions and candidate selector)", "use a DFlash head")
    _silu(file, config)
    layers = _layers(file, "dflash_config.target_layer_ids", value("target_layer_ids"))
    block = _count(file, "block_size", value("block_size"), 2, most=BLOCK_MAX)
    mask = _count(file, "dflash_config.mask_token_id", value("mask_token_id"), 0)
    softcap = value("final_logit_softcapping")
    return DraftConfig(
        arch := _arch(file, config),
        block,
        mask,
        layers,
        tuple(_sight(arch, i) for i in range(arch.num_hidden_layers)),
        _number(file, "input_embedding_scale", value("input_embedding_scale"), 1.0),
        _number(file, "output_multiplier", value("output_multiplier"), 1.0),
        None if softcap is None else _number(file, "final_logit_softcapping", softcap, 0.0),
    )


def _arch(file: Path, config: dict[str, Any]) -> Any:
    """The `transformers.Qwen3Config` of a head's layers; its sizes are checked, the library checks the rest."""
    from transformers import Qwen3Config

    _heads(file, config)
    for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size", "max_position_embeddings"):
        _count(file, key, config.get(key), 1)
    kept = {key: value for key, value in config.items() if key not in ("dflash_config", "auto_map", "model_type")}
    try:
        return Qwen3Config(**kept)
    except Exception as error:  # transformers has errors of its own for what it does not like
        raise ModelError(file, f"is no Qwen3 configuration ({in_one_line(error)})", COPY) from error


def dart_config(file: Path, config: dict[str, Any]) -> DartConfig:
    """The checked configuration of a DART head.

    Raises:
        ModelError: a key is missing or cannot be right; names file and key.
    """
    if config.get("rope_scaling") is not None or config.get("rope_parameters") is not None:
        raise ModelError(file, "rope scaling of a DART head is not supported", "use a head without it")
    _silu(file, config)
    count = {
        key: _count(file, key, config.get(key), 1)
        for key in ("hidden_size", "intermediate_size", "vocab_size", "draft_vocab_size", "max_position_embeddings")
    }
    heads, kv_heads, width = _heads(file, config)
    aux = config.get("eagle_aux_hidden_state_layer_ids")
    if aux is not None and len(_layers(file, "eagle_aux_hidden_state_layer_ids", aux)) != 3:
        raise ModelError(file, f"eagle_aux_hidden_state_layer_ids is {aux}, not three layers", COPY)
    return DartConfig(
        hidden_size=count["hidden_size"],
        target_hidden=_count(file, "target_hidden_size", config.get("target_hidden_size", count["hidden_size"]), 1),
        intermediate_size=count["intermediate_size"],
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width,
        rms_norm_eps=_number(file, "rms_norm_eps", config.get("rms_norm_eps"), 1e-6),
        rope_theta=_number(file, "rope_theta", config.get("rope_theta"), 10_000.0),
        vocab_size=count["vocab_size"],
        positions_max=count["max_position_embeddings"],
        draft_length=_count(file, "draft_length", config.get("draft_length"), 1, most=BLOCK_MAX),
        draft_vocab_size=count["draft_vocab_size"],
        aux_layer_ids=None if aux is None else tuple(aux),
    )


def _heads(file: Path, config: dict[str, Any]) -> tuple[int, int, int]:
    """Heads, key-value heads, and channels of a head."""
    heads = _count(file, "num_attention_heads", config.get("num_attention_heads"), 1)
    kv_heads = _count(file, "num_key_value_heads", config.get("num_key_value_heads", heads), 1)
    if heads % kv_heads:
        raise ModelError(file, f"{heads} heads cannot share {kv_heads} key-value heads", COPY)
    hidden = _count(file, "hidden_size", config.get("hidden_size"), 1)
    width = _count(file, "head_dim", config.get("head_dim", hidden // heads), 2)
    return heads, kv_heads, width


def _layers(file: Path, key: str, value: Any) -> tuple[int, ...]:
    if not (isinstance(value, list) and value and all(type(i) is int and i >= 0 for i in value)):
        raise ModelError(file, f"{key} is {value}, not a list of layers from 0", COPY)
    return tuple(value)


def _silu(file: Path, config: dict[str, Any]) -> None:
    if config.get("hidden_act", "silu") != "silu":
        raise ModelError(file, f"hidden_act {config['hidden_act']} is not silu", COPY)


def _number(file: Path, key: str, value: Any, default: float) -> float:
    """A positive number, or the default of one that is not there."""
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ModelError(file, f"{key} is {value}, not a positive number", COPY)
    return float(value)


def _sight(arch: Any, layer: int) -> tuple[bool, int | None]:
    sliding = bool(arch.layer_types) and arch.layer_types[layer] == "sliding_attention"
    causal = getattr(arch, "is_causal", None)
    return sliding if causal is None else bool(causal), arch.sliding_window if sliding else None


def _count(file: Path, key: str, value: Any, least: int, most: int = 2**31 - 1) -> int:
    if type(value) is not int or not least <= value <= most:
        raise ModelError(file, f"{key} is {value}, not a whole number from {least} to {most}", COPY)
    return value
