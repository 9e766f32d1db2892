"""castsim report-profile."""

from __future__ import annotations

from castsim import __version__
from castsim.base import terminal
from castsim.cli import arguments
from castsim.profiles.profile import open_profile, profile_names
from castsim.profiles.report_profile import report
from castsim.show.tables.profile_table import errors_table, report_tables


def report_profile(
    profile: arguments.ReportedProfile = "all",
    rows: arguments.FitRows = 65_536,
    seed: arguments.ReportSeed = 2026,
    json_to: arguments.Json = None,
) -> None:
    """Fresh rounds of a profile beside what was published, statistic by statistic; all profiles' errors in one table.

    \b
    castsim report-profile qwen3-8b-gsm8k
    castsim report-profile all
    """
    terminal.check_target(json_to, "--json")
    names = profile_names() if profile == "all" else [profile]
    found = []
    with terminal.progress("report-profile") as done:
        for number, name in enumerate(names, start=1):
            found.append(report(open_profile(name), rows, seed))
            done(number / len(names))
    tables = report_tables(found[0]) if len(found) == 1 else [errors_table(found)]
    notes = [
        "Errors of R and masses in per cent of the published value, of shares in points; 0 inside a printed range or "
        "rounding. held out: of fits that did not see the statistic.",
        "R pooled is held against Blackwell's sweeps, R per prompt against H100 SXM's: castsim/profiles/targets.py.",
    ]
    document = {"verb": "report-profile", "version": __version__, "profiles": found, "caveats": notes}
    terminal.emit(document, tables, notes, json_to)
