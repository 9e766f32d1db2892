"""R of a run without the prompts whose output loops: `python -m castsim.live.pair.without_loops RUN`.

A small target repeats itself under greedy decoding, and repeated text is easy to draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich import print as tell

from castsim.base.console import run_app
from castsim.live.pair.looping import loop_start
from castsim.runs.reading import Run, open_run
from castsim.scoring.policies import Choice
from castsim.scoring.tally import Plan, domains_of, score
from replay.policies.topn import TopN

BUDGETS = (15, 31, 63, 127)


def pooled(run: Run, prompts: Sequence[int]) -> list[float]:
    """Walked pooled R over some prompts: of the chain, then of the best-first tree at each of `BUDGETS`."""
    tally = score(run, Plan((Choice(TopN),), BUDGETS, "walked"), list(prompts))
    return (tally.committed.sum(axis=0) / tally.rounds.sum(axis=0)).tolist()


def main(run: Annotated[Path, typer.Argument(help="A dense run folder.")]) -> None:
    """Print R by domain over all prompts, and over those that do not loop."""
    opened = open_run(run)
    names = domains_of(opened, [])
    outputs = opened.sequences().select("prompt", "output_tokens").iter_rows()
    looping = {prompt for prompt, output in outputs if loop_start(output) is not None}
    tell("domain, prompts: R of the chain, of the tree at " + ", ".join(map(str, BUDGETS)) + " nodes")
    for domain in [*sorted(set(names.values())), "all"]:
        every = [p for p, name in names.items() if domain in (name, "all")]
        for label, chosen in (("all", every), ("not looping", [p for p in every if p not in looping])):
            figures = " ".join(f"{r:.3f}" for r in pooled(opened, chosen)) if chosen else "n/a"
            tell(f"{domain}, {len(chosen)} {label}: {figures}")


if __name__ == "__main__":
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.command()(main)
    run_app(app)
