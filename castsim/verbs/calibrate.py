"""castsim calibrate."""

from __future__ import annotations

from castsim import arguments, show
from castsim.diagnose import CALIBRATE_NOTE, diagnose, rank_cap_loss, summary
from castsim.plots import check_plot
from castsim.runlog import open_run
from castsim.sample import sample_run
from castsim.score import domains_of
from castsim.tables.calibrate import calibrate_tables
from castsim.verbs import chosen_prompts, document_head


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
    show.check_target(json_to, "--json")
    show.check_target(plot, "--plot")
    opened = open_run(run or sample_run())
    check_plot(plot)
    notes = list(opened.facts.notes)
    if rank_cap > opened.facts.rank_kept:
        rank_cap = opened.facts.rank_kept
        notes.append(f"The rank cap is {rank_cap} here, as many ranks as the run keeps.")
    notes.append(CALIBRATE_NOTE)
    names = domains_of(opened, domain or [])
    with show.progress("calibrate") as done:
        found = diagnose(opened, chosen_prompts(names, domain), names, rank_cap, done)
    domains = {name: summary(part, rank_cap) for name, part in found.items()}
    with show.progress("rank cap") as done:
        loss = rank_cap_loss(opened, chosen_prompts(names, domain), names, rank_cap, done)
    document = {
        **document_head("calibrate", opened),
        "caveats": notes,
        "rank_cap": rank_cap,
        "domains": domains,
        "rank_cap_loss": loss,
    }
    show.emit(document, calibrate_tables(domains, loss), notes, json_to)
    if plot is not None:
        from castsim.plots.calibrate import calibrate_figure

        calibrate_figure(domains, opened.folder.name, plot)
