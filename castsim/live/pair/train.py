"""The recipe, stage by stage: `python -m castsim.live.pair.train --gsm8k FILE --mbpp FILE --work FOLDER`.

Every stage is seeded, timed in FOLDER/stages.jsonl, and taken up again where it was broken off.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import torch
import typer
from rich import print as tell
from transformers import PreTrainedTokenizerFast

from castsim.base.console import run_app
from castsim.base.errors import CastsimError
from castsim.base.textfile import read_text, write_whole
from castsim.live.models.checkpoint import load_drafter
from castsim.live.models.target import Target, load_target
from castsim.live.pair.corpus import Roots, write_corpus
from castsim.live.pair.export import dart_json, dflash_json, export_head, export_target
from castsim.live.pair.recipe import Recipe
from castsim.live.pair.text import Document, training_text
from castsim.live.pair.train_drafters import draft_labels, new_dart, new_dflash, train
from castsim.live.pair.train_target import train_target
from castsim.live.pair.vocabulary import MASK, train_tokenizer


def main(
    gsm8k: Annotated[Path, typer.Option(help="GSM8K's training problems, JSONL with prompt and reference.")],
    mbpp: Annotated[Path, typer.Option(help="MBPP, JSONL with prompt, reference and split.")],
    work: Annotated[Path, typer.Option(help="Folder for checkpoints, logs and the product.")],
    text: Annotated[list[Path] | None, typer.Option(help="Further text files; repeatable.")] = None,
) -> None:
    """Make tokenizer, target, DFlash head and DART head; the product is in FOLDER/product."""
    torch.set_num_threads(1)  # `fit` and the corpus share the cores themselves
    with stage(work, "text"):
        documents = training_text(gsm8k, mbpp, list(text or []))
    run(Recipe(), documents, work)


def run(recipe: Recipe, documents: list[Document], work: Path) -> None:
    """All stages behind the text.

    Raises:
        CastsimError: `work` was begun with another recipe.
    """
    product, text = work / "product", json.dumps(asdict(recipe), indent=1)
    work.mkdir(parents=True, exist_ok=True)
    if (work / "recipe.json").exists() and read_text(work / "recipe.json") != text:
        raise CastsimError(f"{work}: was begun with another recipe; name another folder")
    write_whole(work / "recipe.json", text)
    with stage(work, "tokenizer"):
        tokenizer = made_tokenizer(documents, recipe, work / "tokenizer")
    with stage(work, "target"):
        export_target(train_target(documents, tokenizer, recipe, work / "target"), tokenizer, product / "target")
    target = load_target(str(product / "target"), torch.float32, "cpu")  # what it is in float16, not what it was
    with stage(work, "corpus"):
        corpus = write_corpus(documents, tokenizer, target, recipe, work / "corpus")
    with stage(work, "dflash"):
        make_dflash(corpus, tokenizer, target, recipe, work / "dflash", product / "dflash-b16")
    with stage(work, "dart"):
        make_dart(corpus, target, recipe, work / "dart", product / "dart")
    for name in ("dflash", "dart", "target"):
        shutil.copyfile(work / name / "log.jsonl", product / f"{name}-log.jsonl")


@contextmanager
def stage(work: Path, name: str) -> Iterator[None]:
    """Time a stage and note it."""
    work.mkdir(parents=True, exist_ok=True)
    tell(f"{datetime.now(UTC):%H:%M:%S} {name} ...")
    begun = time.monotonic()
    yield
    with (work / "stages.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps({"stage": name, "seconds": round(time.monotonic() - begun, 1)}) + "\n")


def made_tokenizer(documents: list[Document], recipe: Recipe, folder: Path) -> Any:
    """The tokenizer in `folder`, trained if it is not there."""
    if not (folder / "tokenizer.json").exists():
        train_tokenizer(documents, recipe.vocab_size, folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def make_dflash(
    corpus: pl.DataFrame, tokenizer: Any, target: Target, recipe: Recipe, work: Path, product: Path
) -> None:
    """Train the DFlash head and export it; loading it back checks the product."""
    config = dflash_json(recipe, target.model.config.to_dict(), tokenizer.convert_tokens_to_ids(MASK))
    drafter = new_dflash(config, target, recipe)
    train(drafter, Roots(corpus, recipe, drafter.depth_max), recipe.dflash, recipe.decay, work)
    export_head(drafter.head, config, product)
    load_drafter(str(product), target)


def make_dart(corpus: pl.DataFrame, target: Target, recipe: Recipe, work: Path, product: Path) -> None:
    """Train the DART head and export it; loading it back checks the product."""
    config = dart_json(recipe, target.model.config.to_dict())
    drafter, kept = new_dart(config, corpus, target, recipe)
    labels = draft_labels(kept, target.vocab_size)
    roots = Roots(corpus, recipe, drafter.depth_max, lambda ids: labels[ids])
    train(drafter, roots, recipe.dart, recipe.decay, work)
    export_head(drafter.head, config, product)
    load_drafter(str(product), target)


if __name__ == "__main__":
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    run_app(app)
