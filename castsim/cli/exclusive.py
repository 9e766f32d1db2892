"""Options that exclude each other, that do nothing, or that are given twice: refused in one line, none ignored.

What was given is told from a default by the parameter's source, so that a default is never refused, and a given option
that happens to repeat its default is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from castsim.base.errors import OptionError
from castsim.base.lists import refuse_twice

OUTPUTS = ("--json", "--csv", "--plot", "--out")
GREEDY = "--temperature 0, which is greedy"
PAIRED = "KEY=VALUE"  # metavar of options that are repeated, each time with another key
LISTED = (",...", "NAMES")  # how the metavar ends of an option whose value is a list with commas


def options_of(context: typer.Context) -> frozenset[str]:
    """The options that a verb has, so that a message names no others."""
    return frozenset(name for param in context.command.params for name in param.opts if name.startswith("-"))


def given(context: typer.Context, option: str) -> bool:
    """Whether an option stands on the command line."""
    return option in _given(context)


def refuse(context: typer.Context, where: str, *options: str) -> None:
    """Refuse options that make no sense where something else holds.

    Args:
        where: what holds, in words that follow "with", as "--published".

    Raises:
        OptionError: one of them was given.
    """
    for option in options:
        if given(context, option):
            raise OptionError(f"{option}: has no effect with {where}; leave one of the two out")


def refuse_all_but(context: typer.Context, where: str, *options: str) -> None:
    """Refuse every option but these, and arguments too, where something else holds.

    Raises:
        OptionError: another one was given.
    """
    allowed = {*options, where.split()[0]}
    refuse(context, where, *(option for option in _given(context) if option not in allowed))


def refuse_together(context: typer.Context, first: str, *others: str) -> None:
    """Refuse options that do nothing beside another one.

    Raises:
        OptionError: one of them was given, and `first` too.
    """
    if given(context, first):
        refuse(context, first, *others)


def refuse_idle(context: typer.Context, needed: str, *options: str) -> None:
    """Refuse options that do nothing without another one.

    Raises:
        OptionError: one of them was given, and `needed` was not.
    """
    if given(context, needed):
        return
    for option in options:
        if given(context, option):
            raise OptionError(f"{option}: has no effect without {needed}; give both or neither")


def refuse_sampling(context: typer.Context, temperature: float, *more: str) -> None:
    """Refuse what shapes a draw where nothing is drawn.

    Raises:
        OptionError: the temperature is 0, and --top-k, --top-p or one of `more` was given.
    """
    if temperature == 0:
        refuse(context, GREEDY, "--top-k", "--top-p", *more)


class Command(TyperCommand):
    """A verb whose options of one value are given once, and whose outputs are files of their own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As any command; what is wrong by itself is told first.

        Raises:
            OptionError: an option, a key or a value of a list is given twice, a number has no end, or a file is named
                for two purposes.
        """
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        _once(param for param in order if not (param.multiple or getattr(param, "is_flag", False)))
        rest = super().parse_args(ctx, args)
        _one_key_each(ctx)
        _one_value_each(ctx)
        _finite(ctx)
        _one_file_each(ctx)
        return rest


def _once(order: Iterator[Any]) -> None:
    for param, times in Counter(order).items():
        if times > 1:
            raise OptionError(f"{_name(param)}: takes one value and is given {times} times; give it once")


def _one_key_each(context: typer.Context) -> None:
    for option, param in _given(context).items():
        if param.metavar != PAIRED:
            continue
        keys = Counter(text.partition("=")[0].strip() for text in context.params[param.name])
        if twice := [key for key, times in keys.items() if times > 1]:
            raise OptionError(f"{option} {twice[0]}: is given twice; give each key once")


def _one_value_each(context: typer.Context) -> None:
    """A list names each of its values once, whether with commas or by repeating the option."""
    for option, param in _given(context).items():
        listed = str(param.metavar).endswith(LISTED)
        if not (listed or param.multiple) or param.metavar == PAIRED:
            continue
        stands = context.params[param.name]
        texts = list(map(str, stands)) if param.multiple else [stands]
        values = [value for text in texts for value in (text.split(",") if listed else [text])]
        refuse_twice(f"{option} {','.join(texts)}", values)


def _finite(context: typer.Context) -> None:
    for option, param in _given(context).items():
        value = context.params[param.name]
        if isinstance(value, float) and not math.isfinite(value):
            raise OptionError(f"{option} {value}: give a finite number")


def _one_file_each(context: typer.Context) -> None:
    """An output may be neither another output nor a file that is read."""
    named = {option: context.params[param.name] for option, param in _given(context).items()}
    places = {o: Path(v).resolve() for o, v in named.items() if isinstance(v, (str, Path)) and str(v) not in ("", "-")}
    for output in OUTPUTS:
        for option, place in places.items():
            same = output in places and output != option and place == places[output]
            if same and (option in OUTPUTS or place.is_file()):
                raise OptionError(f"{output} {named[output]}: is the file of {option} too; name another file")


def _given(context: typer.Context) -> dict[str, Any]:
    """The parameters that stand on the command line, by the name that the user knows."""
    found = {}
    for param in context.command.params:
        source = context.get_parameter_source(param.name)
        if source is not None and source.name not in ("DEFAULT", "DEFAULT_MAP"):
            found[_name(param)] = param
    return found


def _name(param: Any) -> str:
    """--json of an option, RUN of an argument."""
    return param.opts[0] if param.opts[0].startswith("-") else str(param.metavar or param.name).strip("[]")
