"""From what a user says to the ids that a target is given, with one beginning of sequence and the right ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from castsim.base.errors import ModelError, PromptError, in_one_line
from castsim.live.models.files import unknown


@dataclass(frozen=True)
class Chat:
    """A tokenizer and how prompts are put to it.

    Attributes:
        raw: the prompt as it is, without the chat template.
        thinking: what a template that asks is told; the public block-16 heads were trained without.
    """

    tokenizer: Any
    raw: bool = False
    thinking: bool = False

    def ids(self, messages: Sequence[dict[str, str]], place: str) -> list[int]:
        """Target ids of a conversation that waits for an answer.

        Raises:
            PromptError: there is nothing to say and no beginning of sequence either.
        """
        ids = self._plain(messages) if self.raw else self._templated(messages, place)
        bos = self.tokenizer.bos_token_id
        while bos is not None and ids[:2] == [bos, bos]:  # a template may write what the tokenizer adds
            ids = ids[1:]
        if not ids and bos is None:
            raise PromptError(place, "is an empty prompt", "give it text")
        return ids or [bos]

    def _plain(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return self.tokenizer.encode("\n".join(m["content"] for m in messages))

    def _templated(self, messages: Sequence[dict[str, str]], place: str) -> list[int]:
        if not any(m["content"] for m in messages):
            raise PromptError(place, "is an empty prompt", "give it text, or use --raw to send the bare beginning")
        try:
            text = self.tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=True, enable_thinking=self.thinking
            )
        except Exception as error:  # a template is a program of its author's
            raise PromptError(place, f"is refused by the chat template ({in_one_line(error)})", "use --raw") from error
        return self.tokenizer.encode(text, add_special_tokens=False)

    def said(self, output: Sequence[int]) -> str:
        """The text of an answer, for the turns that follow it."""
        return self.tokenizer.decode(list(output), skip_special_tokens=True)


def load_chat(name: str, raw: bool, thinking: bool) -> Chat:
    """The tokenizer of a target.

    Raises:
        ModelError: it cannot be had, or has no chat template and `raw` is not set.
    """
    from transformers import AutoTokenizer

    path = Path(name)
    source = {"gguf_file": path.name} if path.suffix == ".gguf" else {}
    try:
        tokenizer = AutoTokenizer.from_pretrained(path.parent if source else name, trust_remote_code=False, **source)
    except Exception as error:  # transformers and tokenizers each have their own for a bad file
        raise unknown(name, error) from error
    if len(tokenizer) < 2:  # what transformers makes of a folder without tokenizer files
        raise ModelError(name, "has no tokenizer files", "name a folder with a whole model")
    if not raw and not tokenizer.chat_template:
        raise ModelError(name, "has no chat template", "use --raw, as for a base model")
    return Chat(tokenizer, raw, thinking)


def end_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Every end of sequence that model or tokenizer names: generation configs of chat models have several."""
    found: set[int] = set()
    for ids in (
        model.generation_config.eos_token_id,
        model.config.get_text_config().eos_token_id,
        tokenizer.eos_token_id,
    ):
        found |= set(ids) if isinstance(ids, (list, tuple)) else set() if ids is None else {ids}
    return tuple(sorted(found))
