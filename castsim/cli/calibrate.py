"""castsim calibrate."""

from __future__ import annotations

from castsim.base import terminal
from castsim.cli import arguments
from castsim.cli.common import chosen_prompts, document_head
from castsim.runs.reading import open_run
from castsim.runs.sample import sample_run
from castsim.scoring.calibrate import CALIBRATE_NOTE, diagnose, rank_cap_loss, summary
from castsim.scoring.tally import domains_of
from castsim.show.plots import check_plot
from castsim.show.tables.calibrate_table import calibrate_tables


def calibrate(
    run: arguments.RunFolder = None,
    domain: arguments.Domains = None,
    rank_cap: arguments.RankCap = 8,
    plot: arguments.Plot = None,
    json_to: arguments.Json = None,
) -> None:
    """How far the drafter's probabilities can be trusted: reliability, rejections, rank cap, mass curve.

    \b
    castsim calibrate --plot calibration.png
    """
    terminal.check_target(json_to, "--json")
    terminal.check_target(plot, "--plot")
    opened = open_run(run or sample_run())
    check_plot(plot)
    notes = list(opened.facts.notes)
    if rank_cap > opened.facts.rank_kept:
        rank_cap = opened.facts.rank_kept
        notes.append(f"The rank cap is {rank_cap} here, as many ranks as the run keeps.")
    notes.append(CALIBRATE_NOTE)
    names = domains_of(opened, domain or [])
    with terminal.progress("calibrate") as done:
        found = diagnose(opened, chosen_prompts(names, domain), names, rank_cap, done)
    domains = {name: summary(part, rank_cap) for name, part in found.items()}
    with terminal.progress("rank cap") as done:
        loss = rank_cap_loss(opened, chosen_prompts(names, domain), names, rank_cap, done)
    document = {
        **document_head("calibrate", opened),
        "caveats": notes,
        "rank_cap": rank_cap,
        "domains": domains,
        "rank_cap_loss": loss,
    }
    terminal.emit(document, calibrate_tables(domains, loss), notes, json_to)
    if plot is not None:
        from castsim.show.plots.calibrate_plot import calibrate_figure

        calibrate_figure(domains, opened.folder.name, plot)
