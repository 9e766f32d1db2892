"""castsim fit-profile."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import typer

from castsim import __version__
from castsim.base import terminal
from castsim.base.errors import OptionError
from castsim.cli import arguments
from castsim.cli.exclusive import refuse
from castsim.profiles.fit_profile import fitted_published, of_run
from castsim.profiles.profile import Profile, open_profile, profile_names
from castsim.profiles.search import Effort
from castsim.profiles.targets import published_profiles
from castsim.runs.reading import open_run
from castsim.show.tables.profile_table import profile_tables, summary_table

WANTED = "give a run to fit to, or --published with names or all"


def fit_profile(
    context: typer.Context,
    run: arguments.FittedRun = None,
    published: arguments.PublishedNames = None,
    out: arguments.ProfileOut = Path("profile.json"),
    rows: arguments.FitRows = 32_768,
    steps: arguments.FitSteps = 8,
    jobs: arguments.Jobs = 1,
    seed: arguments.FitSeed = 1,
    json_to: arguments.Json = None,
) -> None:
    """Fit the simulation to a recorded run, or to published statistics, and say how far off each one stays.

    \b
    castsim fit-profile RUN --out mine.json
    castsim fit-profile RUN --rows 1024 --steps 1 --out rough.json
    castsim fit-profile --published all --jobs 2 --out profiles
    """
    terminal.check_target(json_to, "--json")
    if (run is None) == (published is None):
        raise OptionError(f"castsim fit-profile: {WANTED}")
    if run is not None:
        refuse(context, "a run to fit to, which one process does", "--jobs")
    effort = Effort(rows, steps, seed)
    if run is not None:
        terminal.check_target(out, "--out")
        with terminal.progress("fit-profile") as done:
            made = [of_run(open_run(run), out.stem, effort, done)]
        terminal.write_text(out, _text(made[0]), "--out")
    else:
        made = _published(str(published), out, effort, jobs)
    document = {"verb": "fit-profile", "version": __version__, "profiles": [p.model_dump(mode="json") for p in made]}
    tables = profile_tables(made[0]) if len(made) == 1 else [summary_table(made)]
    terminal.emit(document, tables, [f"Effort: {dataclasses.asdict(effort)}.", f"Written: {out}"], json_to)


def _published(text: str, out: Path, effort: Effort, jobs: int) -> list[Profile]:
    """Each profile is written when it is fitted, so that a long fit that breaks off keeps what it has."""
    names = list(published_profiles()) if text == "all" else [name.strip() for name in text.split(",")]
    if out.suffix or (out.exists() and not out.is_dir()):
        raise OptionError(f"--out {out}: with --published name a folder for the profiles")
    known = {name: open_profile(name) for name in profile_names()}
    made = []
    with terminal.progress("fit-profile") as done:
        for profile in fitted_published(names, known, effort, jobs, done):
            out.mkdir(parents=True, exist_ok=True)
            terminal.write_text(out / f"{profile.name}.json", _text(profile), "--out")
            made.append(profile)
    return made


def _text(profile: Profile) -> str:
    return profile.model_dump_json(indent=1) + "\n"
