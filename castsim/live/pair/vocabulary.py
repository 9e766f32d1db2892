"""The tokenizer: byte-level BPE with single digits, and a chat template of two marks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from castsim.live.pair.text import Document

END, USER, ASSISTANT, MASK = SPECIALS = ("<|end|>", "<|user|>", "<|assistant|>", "<|mask|>")
TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}<|user|>{{ message['content'] }}"
    "{% else %}<|assistant|>{{ message['content'] }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def train_tokenizer(documents: Iterable[Document], vocab_size: int, folder: Path) -> None:
    """Train on all text and save in the layout of a Hugging Face tokenizer."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((part for d in documents for part in (d.prompt or "", d.reply)), trainer)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, additional_special_tokens=[USER, ASSISTANT, MASK],
        chat_template=TEMPLATE, clean_up_tokenization_spaces=False,
    ).save_pretrained(folder)  # fmt: skip


def encoded(tokenizer: Any, document: Document) -> tuple[list[int], list[int]]:
    """Ids of a document's prompt (with its marks; empty for plain text) and of its reply with the end."""
    end, user, assistant, _ = tokenizer.convert_tokens_to_ids(list(SPECIALS))
    reply = [*tokenizer.encode(document.reply), end]
    if document.prompt is None:
        return [], reply
    return [user, *tokenizer.encode(document.prompt), assistant], reply


class Windows:
    """Training windows of one length from kinds of text, each a function of (seed, step, row).

    A window of chat text begins with a document, one of plain text anywhere.
    """

    def __init__(self, kinds: dict[str, list[list[int]]], shares: dict[str, float], window: int, seed: int) -> None:
        self.names = [name for name in shares if kinds.get(name)]
        self.weight = np.array([shares[name] for name in self.names])
        self.weight /= self.weight.sum()
        self.documents = {name: kinds[name] for name in self.names}
        self.window, self.seed = window, seed

    def rows(self, step: int, count: int) -> np.ndarray:
        """(count, window) ids."""
        rng = np.random.default_rng([self.seed, step])
        kinds = rng.choice(len(self.names), count, p=self.weight)
        return np.stack([self._row(rng, self.names[kind]) for kind in kinds])

    def _row(self, rng: np.random.Generator, kind: str) -> np.ndarray:
        return np.array(list(self._stream(rng, self.documents[kind], kind == "source")), dtype=np.int64)

    def _stream(self, rng: np.random.Generator, documents: list[list[int]], anywhere: bool) -> Iterator[int]:
        left = self.window
        while left:
            document = documents[rng.integers(len(documents))]
            begin = int(rng.integers(max(len(document) - left, 1))) if anywhere else 0
            part = document[begin : begin + left]
            yield from part
            left -= len(part)
