"""What a user can put right: one line that says what, where and what to do. The command line exits with 2 on these, and
with 1 where the machine gave out.
"""

from __future__ import annotations

from pathlib import Path


def first_line(error: BaseException) -> str:
    """What an error of another library says, in one line."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def in_one_line(error: BaseException) -> str:
    """All that a foreign error says, for those whose first line is only a heading; cut where it grows long."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= 160 else words[:157] + "..."


class CastsimError(Exception):
    """Base of all errors that are about the input, not about castsim."""


class OptionError(CastsimError):
    """A command-line value that no policy or verb can take."""


class WorkerError(CastsimError):
    """A worker process or a cluster that gave out: no fault of the input, so the command line exits with 1."""


class RunLogError(CastsimError):
    """A run folder that cannot be relied on.

    Its arguments are kept as they are, so that it can cross from a worker to the parent process.

    Attributes:
        file, problem: the file at fault, and what is wrong.
        row_group, row: where in a Parquet file, counted from 0; None where the fault is the file's.
    """

    def __init__(
        self, file: Path, problem: str, remedy: str, row_group: int | None = None, row: int | None = None
    ) -> None:
        super().__init__(file, problem, remedy, row_group, row)
        self.file, self.problem, self.remedy, self.row_group, self.row = file, problem, remedy, row_group, row

    def __str__(self) -> str:
        place = "" if self.row is None else f", row group {self.row_group}, row {self.row}"
        return f"{self.file}{place}: {self.problem}; {self.remedy}"


class PlacedError(CastsimError):
    """What is wrong with a file, a line or a model, and what to do about it.

    Attributes:
        place, problem, remedy: kept as they are, so that the error can cross from a worker to the parent process.
    """

    def __init__(self, place: object, problem: str, remedy: str) -> None:
        super().__init__(place, problem, remedy)
        self.place, self.problem, self.remedy = place, problem, remedy

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}; {self.remedy}"


class ForeignError(PlacedError):
    """A file of another program that cannot be imported."""


class PromptError(PlacedError):
    """A prompts file, or a prompt, that cannot be used."""


class ModelError(PlacedError):
    """A model, or a file of one, that cannot be used."""
