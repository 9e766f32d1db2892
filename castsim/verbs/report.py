"""castsim report."""

from __future__ import annotations

from pathlib import Path

from castsim import __version__, arguments, show
from castsim.pricing.probefile import open_probe
from castsim.runlog import open_run
from castsim.sample import sample_run
from castsim.verbs import document_head


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
    show.check_target(json_to, "--json")
    show.check_target(out, "--out")
    opened, known = open_run(run or sample_run()), open_probe(probe)
    from castsim.report import report_page

    with show.progress("report") as done:
        page = report_page(opened, known, probe, seed, done)
    show.write_text(out, page, "--out")
    note = f"{out}: {len(page) / 1e6:.1f} MB, needs no network."
    show.emit({**document_head("report", opened), "version": __version__, "out": str(out)}, [], [note], json_to)
