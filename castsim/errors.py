"""What a user can put right: one line that says what, where and what to do. The command line exits with 2 on these."""

from __future__ import annotations

from pathlib import Path


def first_line(error: BaseException) -> str:
    """What an error of another library says, in one line."""
    return next(iter(str(error).splitlines()), type(error).__name__)


class CastsimError(Exception):
    """Base of all errors that are about the input, not about castsim."""


class OptionError(CastsimError):
    """A command-line value that no policy or verb can take."""


class RunLogError(CastsimError):
    """A run folder that cannot be relied on.

    Attributes:
        file, problem: the file at fault, and what is wrong.
        row_group, row: where in a Parquet file, counted from 0; None where the fault is the file's.
    """

    def __init__(
        self, file: Path, problem: str, remedy: str, *, row_group: int | None = None, row: int | None = None
    ) -> None:
        place = "" if row is None else f", row group {row_group}, row {row}"
        super().__init__(f"{file}{place}: {problem}; {remedy}")
        self.file, self.problem, self.row_group, self.row = file, problem, row_group, row


class ForeignError(CastsimError):
    """A file of another program that cannot be imported."""

    def __init__(self, file: Path, problem: str, remedy: str) -> None:
        super().__init__(f"{file}: {problem}; {remedy}")
        self.file = file
