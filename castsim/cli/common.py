"""What several verbs do alike: the head of their JSON, the prompts they choose, and errors of torch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from castsim import __version__
from castsim.base.errors import OptionError
from castsim.base.extras import install
from castsim.runs.prompts import Conversation, read_prompts
from castsim.runs.reading import Run


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


@contextmanager
def live_extra(verb: str) -> Iterator[None]:
    """Around imports of what needs torch.

    Raises:
        OptionError: it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise OptionError(
            f"{verb} needs torch and transformers ({error.name} is missing): {install('live')}"
        ) from error


def some_prompts(name: str | None, limit: int | None, few: int) -> list[Conversation]:
    """The prompts asked for; without a name `limit` or a few of the pair's own, spread over all of them."""
    from castsim.live.pair import PROMPTS

    if name is not None:
        return read_prompts(name, limit)
    own = read_prompts(str(PROMPTS))
    count = min(limit or few, len(own))
    return own[:: len(own) // count][:count]


@contextmanager
def memory_told(remedy: str = "give fewer --max-new-tokens, smaller --budgets or another --device") -> Iterator[None]:
    """A device without room is the user's to know of."""
    try:
        yield
    except RuntimeError as error:
        if "out of memory" not in str(error) and "can't allocate memory" not in str(error):
            raise
        raise OptionError(f"out of memory; {remedy}") from error
