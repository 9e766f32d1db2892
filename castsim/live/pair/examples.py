"""The prompts that the embedded pair is recorded and shown on; none of them is in its training text.

`python -m castsim.live.pair.examples --gsm8k TEST --mbpp FILE --humaneval FILE` writes prompts.jsonl anew: the first
of each set, and functions of the held-out modules of the standard library, spread evenly. Nothing is chosen by its
result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from castsim.base.console import run_app
from castsim.base.textfile import write_whole
from castsim.live.pair import PROMPTS
from castsim.live.pair.text import functions, json_lines, source_files

EACH = 15


def held_out(gsm8k: Path, mbpp: Path, humaneval: Path) -> Iterator[dict[str, str]]:
    """Prompts with id and domain."""
    yield from _first("gsm8k", json_lines(gsm8k))
    yield from _first("mbpp", (row for row in json_lines(mbpp) if row["split"] == "test"))
    yield from _first("humaneval", json_lines(humaneval))
    found = [d for file in source_files(held_out=True) for d in functions(file)]
    for document in found[:: len(found) // EACH][:EACH]:
        yield {"id": f"stdlib/{document.name}", "domain": "stdlib", "prompt": document.prompt or ""}


def _first(domain: str, rows: Iterable[dict[str, str]]) -> Iterator[dict[str, str]]:
    for row, _ in zip(rows, range(EACH), strict=False):
        yield {"id": row["id"], "domain": domain, "prompt": row["prompt"]}


def main(
    gsm8k: Annotated[Path, typer.Option(help="GSM8K's test problems, JSONL.")],
    mbpp: Annotated[Path, typer.Option(help="MBPP, JSONL; its test rows are used.")],
    humaneval: Annotated[Path, typer.Option(help="HumanEval, JSONL.")],
    out: Annotated[Path, typer.Option(help="Where to write.")] = PROMPTS,
) -> None:
    """Write the embedded pair's prompts."""
    write_whole(out, "".join(json.dumps(row) + "\n" for row in held_out(gsm8k, mbpp, humaneval)))


if __name__ == "__main__":
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    run_app(app)
