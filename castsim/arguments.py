"""Arguments and options of the command line, each described once; the same name means the same in every verb."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

RunFolder = Annotated[
    Path | None, Argument(metavar="[RUN]", help="Run folder; the sample run if left out.", show_default=False)
]
Policies = Annotated[
    list[str] | None, Option("--policy", metavar="NAMES", help="Policies with commas, or all.", show_default="topN")
]
Settings = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="Option of the policies; repeatable.", show_default=False),
]
Budgets = Annotated[str, Option(metavar="N,N,...", help="Nonroot nodes of the trees.")]
ScoreMode = Annotated[
    str | None,
    Option(
        "--mode", metavar="MODE", help="walked, per-round or chain-rounds.", show_default="walked if the log is dense"
    ),
]
Domains = Annotated[
    list[str] | None,
    Option("--domain", metavar="NAME", help="Only prompts of this domain; repeatable.", show_default=False),
]
Jobs = Annotated[int, Option(metavar="N", min=1, help="Processes.")]
Seed = Annotated[int, Option(metavar="N", min=0, help="Seed of the bootstrap.")]
RankCap = Annotated[int, Option(metavar="N", min=1, help="Ranks that a tree would use.")]
Json = Annotated[
    str | None,
    Option("--json", metavar="FILE", help="Write JSON there; - prints it and nothing else.", show_default=False),
]
Csv = Annotated[Path | None, Option("--csv", metavar="FILE", help="Write the results as CSV.", show_default=False)]
Plot = Annotated[Path | None, Option(metavar="FILE", help="Draw as PNG, SVG or PDF.", show_default=False)]

ForeignFile = Annotated[Path, Argument(metavar="FILE", help="Foreign log: .npz, .pt or .jsonl.")]
Out = Annotated[Path, Option(metavar="RUN", help="Run folder to make.")]
SequencesFile = Annotated[
    Path | None, Option(metavar="FILE", help="Prompts and outputs of an .npz.", show_default="STEM_sequences.json")
]
EosIds = Annotated[list[int] | None, Option(metavar="ID", help="End-of-sequence id; repeatable.", show_default=False)]
Domain = Annotated[str, Option(metavar="NAME", help="Domain, where the log names none.")]
PerDomain = Annotated[int | None, Option(metavar="N", min=1, help="Keep so many prompts a domain.", show_default=False)]
FactPairs = Annotated[
    list[str] | None,
    Option(
        "--fact",
        metavar="KEY=VALUE",
        help="For the manifest: target, drafter, dtype, licence, vocab_size; repeatable.",
        show_default=False,
    ),
]
