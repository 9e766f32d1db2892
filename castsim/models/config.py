"""What a drafter's config.json must say, checked before anything is computed. Nothing is guessed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from castsim.errors import ModelError

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
    from transformers import Qwen3Config

    own = config.get("dflash_config") or {}
    if "selector_rank" in own or "conv_kernel_size" in own or "selector_rank" in config:
        raise ModelError(file, "is a DFlash2 head (convolutions and candidate selector)", "use a DFlash head")
    if config.get("hidden_act", "silu") != "silu":
        raise ModelError(file, f"hidden_act {config['hidden_act']} is not silu", COPY)

    def value(key: str) -> Any:
        return own.get(key, config.get(key))

    ids = value("target_layer_ids")
    if not (isinstance(ids, list) and ids and all(isinstance(i, int) and i >= 0 for i in ids)):
        raise ModelError(file, f"dflash_config.target_layer_ids is {ids}, not a list of layers from 0", COPY)
    block = _count(file, "block_size", value("block_size"), 2)
    mask = _count(file, "dflash_config.mask_token_id", value("mask_token_id"), 0)
    try:
        arch = Qwen3Config(**{k: v for k, v in config.items() if k not in ("dflash_config", "auto_map", "model_type")})
    except (TypeError, ValueError, KeyError) as error:
        raise ModelError(file, f"is no Qwen3 configuration ({error})", COPY) from error
    softcap = value("final_logit_softcapping")
    return DraftConfig(
        arch,
        block,
        mask,
        tuple(ids),
        tuple(_sight(arch, i) for i in range(arch.num_hidden_layers)),
        float(value("input_embedding_scale") or 1.0),
        float(value("output_multiplier") or 1.0),
        float(softcap) if softcap else None,
    )


def dart_config(file: Path, config: dict[str, Any]) -> DartConfig:
    """The checked configuration of a DART head.

    Raises:
        ModelError: a key is missing or cannot be right; names file and key.
    """
    if config.get("rope_scaling") is not None:
        raise ModelError(file, "rope_scaling of a DART head is not supported", "use a head without it")
    count = {
        key: _count(file, key, config.get(key), 1)
        for key in ("hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", "draft_length")
    }
    heads, aux = count["num_attention_heads"], config.get("eagle_aux_hidden_state_layer_ids")
    return DartConfig(
        hidden_size=count["hidden_size"],
        target_hidden=config.get("target_hidden_size") or count["hidden_size"],
        intermediate_size=count["intermediate_size"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads") or heads,
        head_dim=config.get("head_dim") or count["hidden_size"] // heads,
        rms_norm_eps=config.get("rms_norm_eps", 1e-6),
        vocab_size=count["vocab_size"],
        positions_max=config.get("max_position_embeddings", 2048),
        draft_length=count["draft_length"],
        draft_vocab_size=_count(file, "draft_vocab_size", config.get("draft_vocab_size"), 1),
        aux_layer_ids=None if aux is None else tuple(aux),
    )


def _sight(arch: Any, layer: int) -> tuple[bool, int | None]:
    sliding = bool(arch.layer_types) and arch.layer_types[layer] == "sliding_attention"
    causal = getattr(arch, "is_causal", None)
    return sliding if causal is None else bool(causal), arch.sliding_window if sliding else None


def _count(file: Path, key: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ModelError(file, f"{key} is {value}, not a whole number from {least}", COPY)
    return value
