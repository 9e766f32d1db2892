"""castsim report."""

from __future__ import annotations

from pathlib import Path

from castsim import __version__
from castsim.base import terminal
from castsim.cli import arguments
from castsim.cli.common import document_head
from castsim.costs.probefile import open_probe
from castsim.runs.reading import open_run
from castsim.runs.sample import sample_run


def report(
    run: arguments.RunFolder = None,
    out: arguments.ReportOut = Path("report.html"),
    probe: arguments.ProbeName = "pair-cpu",
    seed: arguments.Seed = 0,
    json_to: arguments.Json = None,
) -> None:
    """One self-contained HTML page on a run: facts, R, pictures, how wide, and what a reader must know.

    \b
    castsim report RUN --out report.html
    """
    terminal.check_target(json_to, "--json")
    terminal.check_target(out, "--out")
    opened, known = open_run(run or sample_run()), open_probe(probe)
    from castsim.show.report import report_page

    with terminal.progress("report") as done:
        page = report_page(opened, known, probe, seed, done)
    terminal.write_text(out, page, "--out")
    note = f"{out}: {len(page) / 1e6:.1f} MB, needs no network."
    terminal.emit({**document_head("report", opened), "version": __version__, "out": str(out)}, [], [note], json_to)
