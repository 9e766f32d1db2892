"""Text that is free to redistribute, as documents; what is recorded or shown is held out."""

from __future__ import annotations

import ast
import json
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from castsim.base.errors import CastsimError
from castsim.base.textfile import read_lines

SKIPPED = {"test", "tests", "site-packages", "idlelib", "lib2to3", "encodings", "pydoc_data", "__pycache__"}
HELD_OUT = {  # modules whose functions are prompts
    "statistics", "textwrap", "heapq", "bisect", "colorsys", "fractions", "shlex", "string", "difflib", "calendar",
    "random", "ipaddress", "posixpath", "fnmatch", "glob", "copy", "base64", "quopri", "inspect", "ast",
}  # fmt: skip
PROMPT_CHARS, REPLY_CHARS = 700, 1200


@dataclass(frozen=True)
class Document:
    """`prompt` is None for plain text; `kind` is a key of `Recipe.shares`."""

    kind: str
    name: str
    prompt: str | None
    reply: str


def json_lines(file: Path) -> list[dict]:
    """The objects of a JSONL file.

    Raises:
        CastsimError: names the line that is not JSON.
    """
    rows = []
    for number, line in enumerate(read_lines(file), start=1):
        try:
            rows += [json.loads(line)] if line.strip() else []
        except ValueError as error:
            raise CastsimError(f"{file}, line {number}: is not JSON; repair or remove it") from error
    return rows


def gsm8k(file: Path) -> list[Document]:
    """GSM8K's training problems (MIT, OpenAI), with the calculator marks of the original."""
    return [Document("gsm8k", row["id"], row["prompt"], row["reference"]) for row in json_lines(file)]


def mbpp(file: Path) -> list[Document]:
    """MBPP's `train` rows (CC BY 4.0, Austin et al. 2021, Google Research)."""
    rows = [row for row in json_lines(file) if row["split"] == "train"]
    return [Document("mbpp", r["id"], r["prompt"], r["reference"].replace("\r\n", "\n").rstrip()) for r in rows]


def source_files(held_out: bool, folder: Path | None = None) -> list[Path]:
    """Modules of the Python standard library (PSF-2.0), in order; of `HELD_OUT` or all others."""
    root = folder or Path(sysconfig.get_path("stdlib"))
    files = sorted(f for f in root.rglob("*.py") if not SKIPPED & set(f.relative_to(root).parts))
    return [f for f in files if (f.relative_to(root).parts[0].removesuffix(".py") in HELD_OUT) == held_out]


def functions(file: Path) -> Iterator[Document]:
    """Functions with a docstring: head and docstring are the prompt, the body is the reply."""
    text = file.read_text(encoding="utf-8-sig", errors="replace")
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and len(node.body) > 1 and ast.get_docstring(node):
            head = textwrap.dedent("\n".join(lines[node.lineno - 1 : node.body[0].end_lineno]))
            margin = node.col_offset
            body = "\n".join(line[margin:] for line in lines[node.body[0].end_lineno : node.end_lineno]).strip("\n")
            if len(head) <= PROMPT_CHARS and 0 < len(body) <= REPLY_CHARS:
                yield Document("stdlib", f"{file.stem}/{node.name}", head + "\n", body)


def training_text(gsm8k_file: Path, mbpp_file: Path, others: list[Path], stdlib: Path | None = None) -> list[Document]:
    """All documents that the target is trained on; `others` are read as plain text, `stdlib` is Python's own."""
    files = source_files(False, stdlib)
    plain = [
        Document("source", f.name, None, f.read_text(encoding="utf-8-sig", errors="replace")) for f in files + others
    ]
    return [*gsm8k(gsm8k_file), *mbpp(mbpp_file), *(d for f in files for d in functions(f)), *plain]
