"""castsim import."""

from __future__ import annotations

import typer

from castsim.base import terminal
from castsim.cli import arguments
from castsim.cli.common import document_head
from castsim.cli.exclusive import refuse
from castsim.runs.foreign import ImportOptions, import_run, told_facts
from castsim.runs.reading import open_run


def import_log(
    context: typer.Context,
    file: arguments.ForeignFile,
    out: arguments.Out,
    sequences: arguments.SequencesFile = None,
    eos: arguments.EosIds = None,
    domain: arguments.Domain = "unknown",
    per_domain: arguments.PerDomain = None,
    fact: arguments.FactPairs = None,
    json_to: arguments.Json = None,
) -> None:
    """Make a run folder from another program's log.

    \b
    castsim import tiny_dense.npz --out tiny --eos 0 --fact vocab_size=4096
    """
    terminal.check_target(json_to, "--json")
    if file.suffix.lower() in (".jsonl", ".pt"):
        refuse(context, f"{file.name}, which holds its own sequences", "--sequences")
    if file.suffix.lower() in (".jsonl", ".npz"):
        refuse(context, f"{file.name}, whose prompts name their domains", "--domain")
    options = ImportOptions(sequences, domain, tuple(eos or ()), per_domain, told_facts(fact or []))
    with terminal.progress("import") as done:
        import_run(file, out, options, done)
    made = open_run(out)
    grid = terminal.table(f"{out}", "layout", "prompts", "rounds", "L", "K", "domains")
    facts = made.facts
    cells = (
        made.manifest.prompts,
        made.manifest.rounds,
        facts.depth_max,
        facts.rank_kept,
        ", ".join(made.manifest.domains),
    )
    grid.add_row(facts.layout, *map(str, cells))
    rows = terminal.table("Rows of the file", *(name.replace("_", " ") for name in facts.imported))
    rows.add_row(*map(str, facts.imported.values()))
    terminal.emit(document_head("import", made), [grid, rows], facts.notes, json_to)
