"""How the parts that castsim does not always need are installed; it is on no index, so its place names it."""

from __future__ import annotations


def install(extra: str) -> str:
    """The command that brings an extra."""
    return f"pip install '.[{extra}]' in castsim's source folder, or 'WHEEL[{extra}]' with the file of its wheel"
