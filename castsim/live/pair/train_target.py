"""The target: a small Qwen3, trained from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from castsim.live.pair.recipe import Recipe
from castsim.live.pair.text import Document
from castsim.live.pair.training_loop import fit
from castsim.live.pair.vocabulary import END, Windows, encoded


def new_target(recipe: Recipe, end_id: int) -> Qwen3ForCausalLM:
    """An untrained target."""
    torch.manual_seed(recipe.seed)
    config = Qwen3Config(
        vocab_size=recipe.vocab_size,
        hidden_size=recipe.hidden,
        intermediate_size=recipe.intermediate,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        head_dim=recipe.head_dim,
        max_position_embeddings=recipe.positions_max,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end_id,
    )
    return Qwen3ForCausalLM(config)


def windows(documents: list[Document], tokenizer: Any, recipe: Recipe) -> Windows:
    """Training windows of all documents."""
    kinds: dict[str, list[list[int]]] = {}
    for document in documents:
        prompt, reply = encoded(tokenizer, document)
        kinds.setdefault(document.kind, []).append(prompt + reply)
    return Windows(kinds, recipe.shares, recipe.window, recipe.seed)


def train_target(documents: list[Document], tokenizer: Any, recipe: Recipe, folder: Path) -> Qwen3ForCausalLM:
    """Next-token prediction on all text; resumes from `folder`."""
    model = new_target(recipe, tokenizer.convert_tokens_to_ids(END))
    data, plan = windows(documents, tokenizer, recipe), recipe.target

    def batch(step: int) -> list[torch.Tensor]:
        return list(torch.from_numpy(data.rows(step, plan.batch)).split(plan.micro))

    fit(model, batch, lambda ids: model(ids, labels=ids, use_cache=False).loss, plan, folder)
    return model.eval()
