"""Policies as the command line names them: `--policy topN --set rank_cap=4`."""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, ValidationError

from castsim.base.errors import OptionError
from castsim.base.lists import refuse_twice
from replay import Policy, load_policies
from replay.policies import LARGEST, Measured, Priced


@dataclass(frozen=True, eq=False)
class Price:
    """What a policy weighs its nodes against.

    Attributes:
        round_ms: (N+1,) time of a round at each budget.
        mass: (N,) the deployment's mean masses.
    """

    round_ms: NDArray[np.float64]
    mass: NDArray[np.float64]


@dataclass(frozen=True)
class Choice:
    """A policy with its options; the budget comes later.

    Attributes:
        price: for a policy that takes one.
    """

    kind: type[Policy]
    options: dict[str, Any] = field(default_factory=dict)
    price: Price | None = None

    def at(self, budget: int) -> Policy:
        """The policy at one budget; a priced one may choose a smaller one for good."""
        policy = self.kind(budget=budget, **self.options)  # type: ignore[call-arg]  # every policy's first field
        if self.price is None or not isinstance(policy, Priced):
            return policy
        return policy.priced(self.price.round_ms, self.price.mass)

    @property
    def all_options(self) -> dict[str, Any]:
        """Every option, set or by default."""
        return {f.name: self.options.get(f.name, f.default) for f in option_fields(self.kind)}


def option_fields(kind: type[Policy]) -> list[dataclasses.Field[Any]]:
    """A policy's fields but the budget and what is measured for it."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    return [f for f in fields if f.name != "budget" and not f.metadata.get("measured")]


def choose(names: Sequence[str], settings: Sequence[str]) -> list[Choice]:
    """The policies of `--policy` (names, comma lists, or "all") with the `key=value` of `--set`.

    A setting goes to every chosen policy that has the option.

    Raises:
        OptionError: an unknown policy or option, or a value that the policy refuses.
    """
    known = load_policies()
    wanted = [part.strip() for name in names for part in name.split(",")]
    wanted = list(dict.fromkeys(known if wanted == ["all"] else wanted))
    for name in wanted:
        if name not in known:
            raise OptionError(f"--policy {name}: no such policy{_nearest(name, known)}; there are {', '.join(known)}")
    pairs = [pair(setting) for setting in settings]
    fields = {f.name for name in wanted for f in option_fields(known[name])}
    for key, _ in pairs:
        if key not in fields:
            offer = ", ".join(sorted(fields)) or "none"
            raise OptionError(
                f"--set {key}: {', '.join(wanted)} have no such option{_nearest(key, fields)}; there are {offer}"
            )
    return [_choice(known[name], pairs) for name in wanted]


def one_policy(option: str, name: str, settings: Sequence[str], budget: int) -> Policy:
    """The policy that a verb other than replay runs by itself.

    Raises:
        OptionError: as `choose`; several policies, or one that is measured on a finished run.
    """
    chosen = choose([name], settings)
    if len(chosen) != 1:
        raise OptionError(f"{option} {name}: give one policy")
    try:
        policy = chosen[0].at(budget)
    except ValueError as error:
        raise OptionError(f"--budget {budget}: {error}") from error
    if isinstance(policy, Measured):
        raise OptionError(f"{option} {name}: is measured on a finished run; give another policy")
    if isinstance(policy, Priced):
        raise OptionError(f"{option} {name}: weighs a probe; castsim replay and castsim live can give it one")
    return policy


def _choice(kind: type[Policy], pairs: list[tuple[str, str]]) -> Choice:
    types = typing.get_type_hints(kind)
    options = {key: value(key, text, types[key]) for key, text in pairs if key in types}
    choice = Choice(kind, options)
    try:
        choice.at(1)
    except ValueError as error:
        raise OptionError(f"--set for {kind.name}: {error}") from error
    return choice


def pair(setting: str) -> tuple[str, str]:
    """Key and value of a setting.

    Raises:
        OptionError: no equals sign.
    """
    key, equals, text = setting.partition("=")
    if not equals:
        raise OptionError(f"--set {setting}: is not of the form key=value, for example rank_cap=4")
    return key.strip(), text.strip()


def value(key: str, text: str, annotation: Any) -> Any:
    """What a setting says, in the type of its field.

    Raises:
        OptionError: another type, or a number without an end.
    """
    many, finite = typing.get_origin(annotation) is tuple, ConfigDict(allow_inf_nan=False)
    try:
        return TypeAdapter(annotation, config=finite).validate_python(text.split(",") if many else text)
    except ValidationError as error:
        raise OptionError(f"--set {key}={text}: {error.errors()[0]['msg'].lower()}") from error


def _nearest(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def budgets_of(text: str) -> tuple[int, ...]:
    """Budgets from "15,31,63", in rising order.

    Raises:
        OptionError: an entry that is no whole number of at least 1, or is there twice.
    """
    try:
        budgets = tuple(sorted(int(part) for part in text.split(",")))
    except ValueError:
        raise OptionError(f"--budgets {text}: give whole numbers with commas, for example 15,31,63") from None
    if budgets[0] < 1 or budgets[-1] > LARGEST:
        raise OptionError(f"--budgets {text}: a budget counts nonroot nodes and must be at least 1, at most {LARGEST}")
    refuse_twice(f"--budgets {text}", text.split(","))
    return budgets
