"""A command line's last word: errors become one line on stderr and an exit code."""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Sequence
from typing import TextIO

import typer

from castsim.base.errors import CastsimError, OptionError, WorkerError


def run_app(app: typer.Typer) -> None:
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
