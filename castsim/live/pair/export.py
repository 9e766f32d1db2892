"""The product: safetensors in float16, with the config keys and tensor names of public checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from castsim.base.textfile import read_json, write_whole
from castsim.live.pair.recipe import Recipe

SHARED = ("vocab_size", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps",
          "max_position_embeddings")  # fmt: skip


def export_target(model: Any, tokenizer: Any, folder: Path) -> None:
    """A transformers checkpoint with its tokenizer. `model` stays as it is."""
    tied = "lm_head.weight" if model.config.tie_word_embeddings else None
    state = {name: weight.half() for name, weight in model.state_dict().items() if name != tied}
    model.save_pretrained(folder, state_dict=state)
    config = read_json(folder / "config.json")
    write_whole(folder / "config.json", json.dumps({**config, "dtype": "float16"}, indent=2) + "\n")
    tokenizer.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)


def export_head(head: torch.nn.Module, config: dict[str, Any], folder: Path) -> None:
    """A drafter's weights and config.json."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    state = head.state_dict().items()
    kept = {k: (v.half() if v.is_floating_point() else v).contiguous() for k, v in state if "rotary_emb" not in k}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)
    write_whole(folder / "config.json", json.dumps(config, indent=2) + "\n")


def dflash_json(recipe: Recipe, target: dict[str, Any], mask_id: int) -> dict[str, Any]:
    """config.json of a DFlash head, with the keys of the public ones. `target` is the target's config."""
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        **{key: target[key] for key in (*SHARED, "hidden_act", "attention_bias", "eos_token_id", "intermediate_size")},
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "tie_word_embeddings": True,
        "num_hidden_layers": recipe.draft_layers,
        "num_target_layers": recipe.layers,
        "layer_types": ["full_attention"] * recipe.draft_layers,
        "block_size": recipe.block_size,
        "dflash_config": {"mask_token_id": mask_id, "target_layer_ids": list(recipe.aux_layers)},
        "dtype": "float16",
    }


def dart_json(recipe: Recipe, target: dict[str, Any]) -> dict[str, Any]:
    """config.json of a DART head; its feature layers are named, since the public rule needs a deeper target."""
    return {
        "architectures": ["LlamaForCausalLMDart"],
        **{key: target[key] for key in (*SHARED, "intermediate_size")},
        "hidden_act": "silu",
        "rope_scaling": None,
        "draft_length": recipe.dart_length,
        "draft_vocab_size": recipe.dart_vocab,
        "eagle_aux_hidden_state_layer_ids": list(recipe.aux_layers),
        "dtype": "float16",
    }
