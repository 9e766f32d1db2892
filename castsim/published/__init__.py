"""What the paper's authors measured and printed, as data. `castsim.paper` recomputes its tables from these.

Figures by Jungseob Lee and Sugyeong Eo, *CAST: Cost-Aware Speculative Trees from One-Pass Block Drafters* (arXiv
2610.00321, CC BY 4.0), and their repository js-lee-AI/CAST (folder data/, commit 308e3f8; MIT). See README.md here.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

CREDIT = "Lee and Eo, arXiv 2610.00321 (CC BY 4.0)"
FOLDER = Path(__file__).parent


def frame(name: str) -> pl.DataFrame:
    """One of the data files: probes, masses, sweeps, prompts committed or tables."""
    return pl.read_csv(FOLDER / f"{name}.csv", infer_schema_length=None)


def short(target: str) -> str:
    """A target's name as the tables print it."""
    return target.split("/")[-1].removesuffix("-Instruct").replace("Llama", "LLaMA")
