"""Lists on the command line: no value stands in one twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from castsim.base.errors import OptionError


def refuse_twice(where: str, values: Iterable[str]) -> None:
    """Refuse a value that a list has twice; numbers are told by their value, so that 2 and 2.0 are one.

    Args:
        where: the option with its text.

    Raises:
        OptionError: a value is there twice.
    """
    names = [name for value in values if (name := value.strip())]  # an empty one is refused as what it is
    times = Counter(map(_plain, names))
    if twice := [name for name in names if times[_plain(name)] > 1]:
        raise OptionError(f"{where}: {twice[0]} is there twice; give each one once")


def _plain(name: str) -> float | str:
    try:
        return float(name)
    except ValueError:
        return name
