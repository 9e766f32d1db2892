"""Prompt sets: JSONL files with `prompt` or `turns`, or the usual benchmark names."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from castsim.base.errors import PromptError, first_line
from castsim.base.textfile import read_lines

PLAIN = re.compile(r"[\w .:+/#-]{1,200}")  # NAME_PATTERN as Python spells it
FOLDER_VARIABLE = "CASTSIM_PROMPTS"  # where NAME.jsonl of a benchmark may lie
HUB = {  # name -> data set, configuration, split, column of the prompt
    "gsm8k": ("openai/gsm8k", "main", "test", "question"),
    "math500": ("HuggingFaceH4/MATH-500", "default", "test", "problem"),
    "humaneval": ("openai/openai_humaneval", "openai_humaneval", "test", "prompt"),
    "mbpp": ("google-research-datasets/mbpp", "full", "test", "text"),
    "mtbench": ("HuggingFaceH4/mt_bench_prompts", "default", "train", "prompt"),
}
ALIASES = {**{name: name for name in HUB}, "mt-bench": "mtbench", "mt_bench": "mtbench"}


@dataclass(frozen=True)
class Conversation:
    """What a user says, turn by turn; the target answers between.

    Attributes:
        number: of its first turn in a run; further turns count on.
        place: where it was read, for messages.
    """

    number: int
    prompt_id: str
    domain: str
    turns: tuple[str, ...]
    place: str


class Line(BaseModel):
    """A line of a prompts file; further fields are left alone."""

    model_config = ConfigDict(frozen=True)

    prompt: str | None = None
    turns: tuple[str, ...] = ()
    id: str | None = None
    domain: str | None = None


def read_prompts(name: str, limit: int | None = None) -> list[Conversation]:
    """The conversations of a file or of a benchmark, the first `limit` of them.

    Raises:
        PromptError: no such file or name, nothing in it, or a line that is no prompt (with its number).
    """
    file = Path(name) if Path(name).is_file() else _file_of(name)
    lines = _file_lines(file) if file else _hub_lines(name)
    found: list[Conversation] = []
    taken: set[str] = set()
    number = 0
    for count, (place, line) in enumerate(lines[:limit]):
        talk = Conversation(
            number,
            line.id or f"{_domain(name)}/{count}",
            line.domain or _domain(name),
            line.turns or (line.prompt or "",),
            place,
        )
        _check_names(talk, taken)
        found.append(talk)
        number += len(talk.turns)
    if not found:
        raise PromptError(name, "holds no prompt", 'give one JSON object a line, {"prompt": "..."}')
    return found


def turn_id(prompt_id: str, turn: int) -> str:
    """What a turn, from 0, is called in a run: as its conversation, and from the second one on with its number."""
    return prompt_id + (f"#{turn + 1}" if turn else "")


def _check_names(talk: Conversation, taken: set[str]) -> None:
    """Names that a run can hold, each once; adds the turns' to `taken`."""
    ids = {turn_id(talk.prompt_id, turn) for turn in range(len(talk.turns))}
    remedy = "give id and domain of letters, digits and _.:+/#-, at most 200"
    for name in (*sorted(ids), talk.domain):
        if not PLAIN.fullmatch(name) or name == "all":
            raise PromptError(talk.place, f"has the name {name[:60]!a}, which a run cannot hold", remedy)
    if ids & taken:
        raise PromptError(talk.place, f"has the id {min(ids & taken)} of an earlier prompt", "give each its own id")
    taken |= ids
    try:
        "".join(talk.turns).encode()
    except UnicodeEncodeError as error:
        raise PromptError(talk.place, f"is no Unicode text ({error.reason})", "repair or remove the line") from error


def _domain(name: str) -> str:
    return ALIASES.get(Path(name).stem, Path(name).stem)


def _file_of(name: str) -> Path | None:
    """A benchmark's file in the folder of `CASTSIM_PROMPTS`, if it is there."""
    if name not in ALIASES:
        raise PromptError(name, "is no file", f"name a .jsonl file, or one of {', '.join(ALIASES)}")
    folder = os.environ.get(FOLDER_VARIABLE)
    file = Path(folder or ".") / f"{ALIASES[name]}.jsonl"
    return file if file.is_file() else None


def _file_lines(file: Path) -> list[tuple[str, Line]]:
    found = []
    try:
        lines = read_lines(file)
    except ValueError as error:
        raise PromptError(file, first_line(error), "give one JSON object a line") from error
    for number, text in enumerate(lines, start=1):
        if text.strip():
            place = f"{file}, line {number}"
            try:
                found.append((place, _line(place, json.loads(text))))
            except (ValueError, RecursionError) as error:
                raise PromptError(place, f"is not JSON ({first_line(error)})", "repair or remove the line") from error
    return found


def _line(place: str, row: Any) -> Line:
    remedy = 'give {"prompt": "..."} or {"turns": ["...", "..."]}'
    try:
        line = Line.model_validate(row)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "line"
        raise PromptError(place, f"{field}: {first['msg'].lower()}", remedy) from error
    if line.prompt is None and not line.turns:
        raise PromptError(place, "has neither prompt nor turns", remedy)
    return line


def _hub_lines(name: str) -> list[tuple[str, Line]]:
    """A benchmark from the Hugging Face hub."""
    path, config, split, column = HUB[ALIASES[name]]
    remedy = f"put {ALIASES[name]}.jsonl here or into the folder ${FOLDER_VARIABLE}, or pip install datasets"
    try:
        from datasets import load_dataset

        rows = load_dataset(path, config, split=split)
    except ImportError as error:
        raise PromptError(name, "is no file here, and the package datasets is not installed", remedy) from error
    except Exception as error:  # the hub's client raises errors of many libraries
        raise PromptError(name, f"cannot be had from the hub ({first_line(error)})", remedy) from error
    turns = [row[column] if isinstance(row[column], list) else [row[column]] for row in rows]
    return [(f"{path} row {i}", Line(turns=tuple(t))) for i, t in enumerate(turns)]
