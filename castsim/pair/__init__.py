"""The embedded pair: a small target and its one-pass drafters, and the recipe that made them."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "weights"
PROMPTS = Path(__file__).parent / "prompts.jsonl"
NAMES = {  # what --target and --drafter call them
    "pair": FOLDER / "target",
    "pair-dflash": FOLDER / "dflash-b16",
    "pair-dart": FOLDER / "dart",
}


def resolved(name: str) -> str:
    """The folder of an embedded model, or the name itself."""
    return str(NAMES[name]) if name in NAMES else name
