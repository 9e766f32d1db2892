"""Lists of whole numbers on the command line."""

from __future__ import annotations

from itertools import pairwise

from castsim.base.errors import OptionError


def counts(option: str, text: str | None, least: int = 1) -> tuple[int, ...] | None:
    """Whole numbers that rise from at least `least`, from "16,32"; None stays None.

    Raises:
        OptionError: something else.
    """
    if text is None:
        return None
    try:
        values = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise OptionError(f"{option} {text}: give whole numbers with commas, for example 16,32") from None
    if values[0] < least or any(a >= b for a, b in pairwise(values)):
        raise OptionError(f"{option} {text}: give rising numbers from {least} on")
    return values
