"""Tiny random models and tokenizers, saved as a user would have them."""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from castsim.live.models.checkpoint import load_drafter
from castsim.live.models.config import dart_config, dflash_config
from castsim.live.models.dart import Dart
from castsim.live.models.dflash import DFlash
from castsim.live.models.target import load_target

HIDDEN, VOCAB, LAYERS = 32, 300, 4
SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 96,
    "eos_token_id": 0,
    "bos_token_id": None,
    "pad_token_id": None,
    "initializer_range": 0.3,
}
KINDS = {
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {}),
    "llama": (LlamaConfig, LlamaForCausalLM, {}),
    "gemma2": (Gemma2Config, Gemma2ForCausalLM, {"sliding_window": 16}),
    "qwen3moe": (
        Qwen3MoeConfig,
        Qwen3MoeForCausalLM,
        {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32},
    ),
    "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM, {"sliding_window": 128, "query_pre_attn_scalar": 8}),
}
DFLASH = {
    "architectures": ["DFlashDraftModel"],
    "model_type": "qwen3",
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 96,
    "rope_theta": 10000.0,
    "block_size": 5,
    "dflash_config": {"mask_token_id": 3, "target_layer_ids": [0, 2]},
}
DART = {
    "vocab_size": VOCAB,
    "hidden_size": HIDDEN,
    "intermediate_size": 40,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 96,
    "draft_length": 3,
    "draft_vocab_size": 50,
    "eagle_aux_hidden_state_layer_ids": [0, 1, 2],
}
TEMPLATE = "{% for m in messages %}<u>{{ m['content'] }}<a>{% endfor %}"


def save_target(folder: Path, kind: str = "qwen3", seed: int = 0, template: str | None = TEMPLATE, **changes) -> Path:
    """A random target with a byte-level tokenizer; id 0 ends, 1 and 2 are chat marks, 3 is the mask."""
    torch.manual_seed(seed)
    config, model, extra = KINDS[kind]
    model(config(**{**SHAPE, **extra, **changes})).save_pretrained(folder)
    save_tokenizer(folder, template)
    return folder


def save_tokenizer(folder: Path, template: str | None, bos: bool = False) -> None:
    """256 bytes behind a few marks; with `bos`, the tokenizer puts <s> in front by itself, as Llama's does."""
    marks = ["<end>", "<u>", "<a>", "<mask>", "<s>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=len(marks) + 256, special_tokens=marks, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator([], trainer)
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 4)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", bos_token="<s>" if bos else None, chat_template=template
    ).save_pretrained(folder)


def randomised(head: torch.nn.Module, seed: int = 1) -> torch.nn.Module:
    """Weights that make a difference everywhere."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in head.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.copy_(noise * 0.3 if weight.ndim > 1 else 1 + 0.2 * noise)
    return head


def save_head(folder: Path, config: dict, seed: int = 1) -> Path:
    """A random DFlash or DART head."""
    folder.mkdir(parents=True, exist_ok=True)
    dart = "draft_length" in config
    head = Dart(dart_config(folder, config)) if dart else DFlash(dflash_config(folder, config))
    state = randomised(head, seed).state_dict()
    if dart:
        state["d2t"] = 2 * torch.arange(config["draft_vocab_size"])  # ids 0, 3, 6, ...
    save_file({k: v for k, v in state.items() if "rotary" not in k}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def saved_pair(folder: Path, config: dict | None = None, **changes) -> tuple[Path, Path]:
    """Folders of a target and a head that fits it."""
    return save_target(folder / "target", **changes), save_head(folder / "head", config or DFLASH)


def loaded(pair: tuple[Path, Path], dtype: torch.dtype = torch.float32):
    """The drafter of a saved pair, bound to its target."""
    return load_drafter(str(pair[1]), load_target(str(pair[0]), dtype, "cpu"))


class HalfRight:
    """A head that knows what comes and says it, at a rank that differs by position; now and then it does not.

    A random head is hardly ever right, so a decoder behind it hardly ever accepts. This one draws its own logits first
    and lifts the true token among them, so contexts are kept as they would be. One sequence at a time.
    """

    def __init__(self, drafter, tokens, seed=0, ranks=(*[0] * 6, 1, 2, None)):
        self.drafter, self.truth, self.seed, self.ranks = drafter, list(tokens), seed, ranks
        self.length = 0  # rows of the context

    def __getattr__(self, name):
        return getattr(self.drafter, name)

    def growing(self, capacity):
        self.length = 0
        return self.drafter.growing(capacity)

    def extend(self, context, features, tokens):
        self.length += features.shape[1]
        self.drafter.extend(context, features, tokens)

    def draft(self, context, tokens):
        logits = self.drafter.draft(context, tokens).clone()
        for depth, token in enumerate(self.truth[self.length + 1 :][: self.depth_max]):
            dice = np.random.default_rng([self.seed, self.length, depth])
            rank, column = self.ranks[dice.integers(len(self.ranks))], self._column(token)
            if rank is not None and column is not None:
                before = dice.choice(np.delete(np.arange(logits.shape[-1]), column), rank, replace=False)
                logits[depth, [*before, column]] = logits[depth].max() + 3 * torch.arange(rank + 1, 0, -1)
        return logits

    def _column(self, token):
        if self.token_of is None:
            return token
        found = torch.nonzero(self.token_of == token)
        return int(found[0]) if len(found) else None
