"""Profiles: parameters of the simulation, fitted to a run or to published statistics, with the error of each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from castsim.base.errors import OptionError, PlacedError, first_line
from castsim.base.textfile import read_json
from castsim.profiles.model import PARAMETERS, Model
from castsim.runs.manifest import Text

FOLDER = Path(__file__).parent / "shipped"
STATISTIC = ("statistic", "low", "high", "source", "error", "aim")  # what a row of `statistics` has at least


class ProfileError(PlacedError):
    """A profile that nothing can be simulated from."""


class Profile(BaseModel):
    """Everything in a profile's JSON.

    `statistics` are of fresh draws of the fitted model, `held_out` of models that were fitted without them.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["castsim-profile"] = "castsim-profile"
    version: Literal[1] = 1
    name: Text
    source: Text
    depth_max: int = Field(ge=1)
    tokens: int = Field(ge=2)  # of an output
    parameters: dict[str, float]
    borrowed_from: Text | None = None
    fitted: list[Text] = Field(default_factory=list)  # all others are borrowed
    statistics: list[dict[str, Any]] = Field(default_factory=list)
    held_out: list[dict[str, Any]] = Field(default_factory=list)
    effort: dict[str, int] = Field(default_factory=dict)

    def model(self) -> Model:
        """The parameters, checked.

        Raises:
            ProfileError: a missing or an unknown one, or a value out of range.
        """
        if missing := set(PARAMETERS) - set(self.parameters):
            raise ProfileError(self.name, f"parameter {min(missing)} is missing", "fit it again")
        if strange := set(self.parameters) - set(PARAMETERS):
            raise ProfileError(self.name, f"parameter {min(strange)} is unknown", "fit it again")
        try:
            return Model(**self.parameters)
        except ValueError as error:
            raise ProfileError(self.name, str(error), "fit it again") from error


def profile_names() -> list[str]:
    """Profiles that castsim carries."""
    return sorted(file.stem for file in FOLDER.glob("*.json"))


def open_profile(name: str) -> Profile:
    """A profile by name, or a file that `castsim fit-profile` wrote.

    Raises:
        OptionError: neither.
        ProfileError: a file that is no profile.
    """
    path = Path(name) if Path(name).is_file() else FOLDER / f"{name}.json"
    if not path.is_file() or (path.parent == FOLDER and name not in profile_names()):
        known = ", ".join(profile_names())
        raise OptionError(f"--profile {name}: is no file and no profile by name; there are {known}")
    try:
        profile = Profile.model_validate(read_json(path))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "document"
        raise ProfileError(path, f"{place}: {first['msg'].lower()}", "fit it again") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ProfileError(path, f"is no profile's JSON ({first_line(error)})", "fit it again") from error
    profile.model()
    for rows in (profile.statistics, profile.held_out):
        _check_rows(path, rows)
    return profile


def _check_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Statistics are read by name, in any order, so each stands once and has all that is asked of it."""
    for number, row in enumerate(rows):
        if missing := [name for name in STATISTIC if name not in row]:
            raise ProfileError(path, f"row {number} of its statistics has no {missing[0]}", "fit it again")
    count = Counter(str(row["statistic"]) for row in rows)
    if twice := [name for name, times in count.items() if times > 1]:
        raise ProfileError(path, f"has two rows of the statistic {twice[0][:60]!a}", "keep one")
