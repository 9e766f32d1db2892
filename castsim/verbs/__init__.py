"""One verb a file: parse, call one function, print."""

from __future__ import annotations

from typing import Any

from castsim import __version__
from castsim.runlog import Run


def document_head(verb: str, run: Run) -> dict[str, Any]:
    """What every verb's JSON begins with."""
    manifest = run.manifest
    about = {"path": str(run.folder), "digest": manifest.digest, "prompts": manifest.prompts, "rounds": manifest.rounds}
    return {
        "verb": verb,
        "version": __version__,
        "run": {**about, "domains": manifest.domains, **run.facts.model_dump(mode="json")},
    }


def chosen_prompts(names: dict[int, str], domain: list[str] | None) -> list[int] | None:
    """Prompts to read; None reads shards without a filter."""
    return list(names) if domain else None
