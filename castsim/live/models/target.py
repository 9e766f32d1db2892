"""A target: any causal language model of transformers whose embedding and head the library can name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from castsim.base.errors import ModelError, in_one_line
from castsim.live.models.cache import KeyValueCache, cache_argument
from castsim.live.models.files import revision, unknown
from castsim.runs.manifest import digest_of_file

ENDLESS = 2**31 - 1  # positions of a model that names no limit


@dataclass(frozen=True)
class Target:
    """A loaded target.

    Attributes:
        model: the transformers model, in evaluation mode.
        name, revision: what was asked for, and commit or digest.
    """

    model: Any
    name: str
    revision: str = ""

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        return self._embedding.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of its weights."""
        return self._embedding.dtype

    @property
    def embedding_rows(self) -> int:
        """Ids that it can be fed."""
        return self._embedding.shape[0]

    @property
    def hidden_size(self) -> int:
        """Channels of its hidden states."""
        return self._embedding.shape[1]

    @property
    def vocab_size(self) -> int:
        """Rows of its output head."""
        return self.model.get_output_embeddings().weight.shape[0]

    @property
    def layers(self) -> int:
        """Number of its layers."""
        return self.model.config.get_text_config().num_hidden_layers

    @property
    def positions_max(self) -> int:
        """Longest sequence that it takes."""
        return getattr(self.model.config.get_text_config(), "max_position_embeddings", None) or ENDLESS

    @property
    def attention(self) -> str:
        """The attention code that it runs."""
        return getattr(self.model.config.get_text_config(), "_attn_implementation", None) or "eager"

    @property
    def _embedding(self) -> Tensor:
        return self.model.get_input_embeddings().weight

    def embed(self, ids: Tensor) -> Tensor:
        """Rows of the embedding table, unscaled: (...) to (..., hidden)."""
        return torch.nn.functional.embedding(ids, self._embedding)

    def head(self, hidden: Tensor) -> Tensor:
        """Logits of hidden states: (..., hidden) to (..., vocabulary)."""
        return self.model.get_output_embeddings()(hidden)

    def forward(self, ids: Tensor, layer_ids: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Logits (B, T, vocabulary) of ids (B, T), and features (B, T, layers * hidden), the outputs of `layer_ids`
        side by side.

        As in transformers and the reference drafter, the last layer's output is taken after the final norm.
        """
        found = self.model(ids, use_cache=False, output_hidden_states=True)
        return found.logits, torch.cat([found.hidden_states[i + 1] for i in layer_ids], dim=-1)  # [0] is the embedding

    def read(
        self,
        ids: Tensor,
        positions: Tensor,
        mask: dict[str, Tensor],
        cache: KeyValueCache,
        layer_ids: Sequence[int],
        logits_kept: int = 0,
    ) -> tuple[Tensor, Tensor | None]:
        """Logits and features, as `forward`, of ids (B, n) behind a cache, which holds their rows until `commit`.

        Args:
            positions: (B, n) int64.
            mask: additive, (B, 1, n, P + n), of each kind of attention.
            layer_ids: none for a pass without features.
            logits_kept: of the last rows only; 0 is all.
        """
        masks = mask if len(mask) > 1 else next(iter(mask.values()))
        found = self.model(
            ids,
            position_ids=positions,
            attention_mask=masks,
            use_cache=True,
            output_hidden_states=bool(layer_ids),
            logits_to_keep=logits_kept,
            **{cache_argument(type(self.model)): cache},
        )
        if not layer_ids:
            return found.logits, None
        return found.logits, torch.cat([found.hidden_states[i + 1] for i in layer_ids], dim=-1)

    def check_layers(self, file: Path, key: str, layer_ids: Sequence[int]) -> None:
        """Raise `ModelError` unless all ids are layers of this target."""
        if bad := [i for i in layer_ids if not 0 <= i < self.layers]:
            raise ModelError(
                file, f"{key} has layer {bad[0]}, the target has layers 0 to {self.layers - 1}", "pair other models"
            )


def load_target(name: str, dtype: torch.dtype, device: str) -> Target:
    """Load a target from a local folder, a GGUF file, or a Hugging Face id. No remote code, no pickles.

    Raises:
        ModelError: it cannot be had, is not a causal language model, or its embedding and head cannot be found.
    """
    from transformers import AutoModelForCausalLM

    path = Path(name)
    source = {"gguf_file": path.name} if path.suffix == ".gguf" else {"use_safetensors": True}
    try:
        model, found = AutoModelForCausalLM.from_pretrained(
            path.parent if path.suffix == ".gguf" else name,
            dtype=dtype,  # the attention code is the library's choice: SDPA, or eager where a model has none
            trust_remote_code=False,
            output_loading_info=True,
            **source,
        )
    except Exception as error:  # transformers, safetensors and torch each have their own for a bad file
        raise unknown(name, error) from error
    if found["missing_keys"]:  # transformers would fill them with random numbers
        raise ModelError(name, f"lacks tensor {min(found['missing_keys'])}", "fetch the model again")
    if model.get_input_embeddings() is None or model.get_output_embeddings() is None:
        raise ModelError(name, "names no embedding or no output head", "use a causal language model")
    return Target(model.eval().to(device), name, _revision(path, model))


def random_target(file: Path, dtype: torch.dtype, device: str, seed: int) -> Target:
    """A target of a config.json with random weights, made where it runs.

    Raises:
        ModelError: no such file, or no causal language model that transformers knows.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    if not file.is_file():
        raise ModelError(file, "is no file", "name a model's config.json")
    try:
        config = AutoConfig.from_pretrained(file, trust_remote_code=False)
        with torch.random.fork_rng(), torch.device(device):
            torch.manual_seed(seed)
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    except Exception as error:  # transformers and torch each have their own for a bad configuration
        if "out of memory" in str(error) or "can't allocate memory" in str(error):
            raise
        raise ModelError(file, f"describes no causal model ({in_one_line(error)})", "use a model's own one") from error
    return Target(model.eval().to(device), f"random weights of {file.name}", "random")


def _revision(path: Path, model: Any) -> str:
    if path.is_dir():
        return revision(path)
    if path.is_file():
        return f"sha256:{digest_of_file(path)}"
    return getattr(model.config, "_commit_hash", None) or "unknown"
