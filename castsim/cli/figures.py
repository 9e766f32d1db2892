"""castsim figures."""

from __future__ import annotations

from pathlib import Path

import typer

from castsim import __version__
from castsim.base import terminal
from castsim.base.errors import OptionError
from castsim.cli import arguments
from castsim.costs.probefile import open_probe
from castsim.runs.reading import open_run
from castsim.runs.sample import sample_run
from castsim.show.draw import draw_all
from castsim.show.sources import Sources


def figures(
    run: arguments.FigureRun = None,
    probe: arguments.ProbeName = "pair-cpu-batches",
    out: arguments.FigureOut = Path("figures/out"),
    json_to: arguments.Json = None,
) -> None:
    """Draw the paper's figures and tables, from published data and beside them from a run and a probe.

    Each is a PNG, an SVG and the CSV behind both. What cannot be drawn says why on its page.

    \b
    castsim figures
    castsim figures --run RUN --probe probe.json
    """
    terminal.check_target(json_to, "--json")
    if out.exists() and not out.is_dir():
        raise OptionError(f"--out {out}: is a file; name a folder")
    sources = Sources(open_run(run or sample_run()), open_probe(probe))
    with terminal.progress("figures") as done:
        made = draw_all(sources, out, done)
    grid = terminal.table(f"{out}", "name", "what", "left out")
    for column in grid.columns[1:]:
        column.justify = "left"
    for one in made:
        grid.add_row(one.name, one.title, one.missing or "")
    document = {"verb": "figures", "version": __version__, "out": str(out), "made": [vars(m) for m in made]}
    terminal.emit(document, [grid], [f"{len(made)} figures and tables, each as PNG, SVG and CSV."], json_to)
    if not made:
        raise typer.Exit(2)
