"""Controllers as the command line names them: `--policy batched --set every=8`."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any

from castsim.base.errors import OptionError
from castsim.scoring.policies import pair, value
from castsim.serving.controllers import Controller, load_controllers


def choose_controllers(names: Sequence[str], settings: Sequence[str]) -> list[Controller]:
    """Controllers with their options; a setting goes to every one that has it. No name means all.

    Raises:
        OptionError: an unknown name, a setting that none of them has, or a number that is not positive.
    """
    known: dict[str, Any] = load_controllers()
    for name in names:
        if name not in known:
            raise OptionError(f"--policy {name}: there are {', '.join(known)}")
    kinds = {name: known[name] for name in names or known}
    options: dict[str, dict[str, Any]] = {name: {} for name in kinds}
    for key, text in map(pair, settings):
        takers = [name for name, kind in kinds.items() if key in kind.__dataclass_fields__]
        if not takers:
            raise OptionError(f"--set {key}={text}: none of {', '.join(kinds)} has it")
        for name in takers:
            options[name][key] = _positive(key, value(key, text, typing.get_type_hints(kinds[name])[key]))
    return [kind(**options[name]) for name, kind in kinds.items()]


def _positive(key: str, number: int) -> int:
    if number < 1:
        raise OptionError(f"--set {key}={number}: give at least 1")
    return number
