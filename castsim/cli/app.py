"""The command line: its verbs, and how their errors are told."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from castsim import __version__
from castsim.base.console import run_app
from castsim.cli.allocate import allocate
from castsim.cli.calibrate import calibrate
from castsim.cli.check import check
from castsim.cli.exclusive import Command
from castsim.cli.figures import figures
from castsim.cli.fit_profile import fit_profile
from castsim.cli.forecast import forecast_verb
from castsim.cli.generate import generate
from castsim.cli.import_log import import_log
from castsim.cli.live import live
from castsim.cli.policies import policies
from castsim.cli.probe import probe
from castsim.cli.record import record
from castsim.cli.replay import replay
from castsim.cli.report import report
from castsim.cli.report_profile import report_profile
from castsim.cli.serve import serve_verb
from castsim.cli.simulate import simulate
from castsim.cli.width import width
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
    run_app(build())
