"""The command line: its verbs, and how their errors are told."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated, TextIO

import typer

from castsim import __version__
from castsim.errors import CastsimError, OptionError, WorkerError
from castsim.verbs.allocate import allocate
from castsim.verbs.calibrate import calibrate
from castsim.verbs.check import check
from castsim.verbs.exclusive import Command
from castsim.verbs.figures import figures
from castsim.verbs.fit_profile import fit_profile
from castsim.verbs.forecast import forecast_verb
from castsim.verbs.generate import generate
from castsim.verbs.import_log import import_log
from castsim.verbs.live import live
from castsim.verbs.policies import policies
from castsim.verbs.probe import probe
from castsim.verbs.record import record
from castsim.verbs.replay import replay
from castsim.verbs.report import report
from castsim.verbs.report_profile import report_profile
from castsim.verbs.serve import serve_verb
from castsim.verbs.simulate import simulate
from castsim.verbs.width import width
from replay import load_policies


def _version(wanted: bool) -> None:
    if wanted:
        print(f"castsim {__version__}")
        raise typer.Exit


def _about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Which candidates of a one-pass drafter to verify, and how many: answered from a recorded run."""


def build() -> typer.Typer:
    """The application; its help lists the policies that are there."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.callback()(_about)
    verb = partial(app.command, cls=Command)
    verb(epilog=f"Policies: {', '.join(load_policies())}. Their options: castsim policies.")(replay)
    verb()(record)
    verb()(live)
    verb()(generate)
    verb()(check)
    verb()(probe)
    verb()(width)
    verb("forecast")(forecast_verb)
    verb()(simulate)
    verb()(allocate)
    verb("serve")(serve_verb)
    verb()(figures)
    verb()(report)
    verb("fit-profile")(fit_profile)
    verb("report-profile")(report_profile)
    verb()(calibrate)
    verb("import")(import_log)
    verb()(policies)
    return app


def main() -> None:
    """Entry point."""
    serve(build())


def serve(app: typer.Typer) -> None:
    """Run an application on the command line; what the user can put right is one line on stderr and exit code 2, and a
    worker that gave out is one with exit code 1.
    """
    status = 2
    for stream in (sys.stdout, sys.stderr):
        _take_any_letter(stream)
    try:
        _check_letters(sys.argv[1:])
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: print no more
        sys.exit(1)  # as typer does where it meets this first
    except typer.TyperException as error:
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        text += "; see castsim --help"
    except CastsimError as error:
        text, status = str(error), 1 if isinstance(error, WorkerError) else 2
    except MemoryError:
        text = "out of memory; give smaller budgets or options, or fewer --jobs"
    except OSError as error:
        text = f"{error.filename or 'output'}: {error.strerror}; name another place"
    line = "".join(c if c.isprintable() else " " for c in text)  # one line, and no control codes from a log
    print(f"castsim: {line}", file=sys.stderr)
    sys.exit(status)


def _take_any_letter(stream: TextIO) -> None:
    """Let names of any script be printed: as UTF-8 where no locale is set, with backslashes for what another lacks."""
    if isinstance(stream, io.TextIOWrapper):
        unset = codecs.lookup(stream.encoding).name == "ascii"
        stream.reconfigure(encoding="utf-8" if unset else stream.encoding, errors="backslashreplace")


def _check_letters(arguments: Sequence[str]) -> None:
    """Refuse arguments that Python could not decode: no other library finds a file by such a name."""
    for text in arguments:
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            name = os.fsencode(text).decode("utf-8", "backslashreplace")
            coded = sys.getfilesystemencoding()
            raise OptionError(f"{name}: holds letters that are no {coded}; set PYTHONUTF8=1, or give another name")
