"""One self-contained page on a run: facts, R, pictures, the width answer, caveats. No network, no script."""

from __future__ import annotations

import base64
import html
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from castsim import __version__
from castsim.advice.acceptance import of_run
from castsim.advice.per_round import per_round_rows
from castsim.advice.verdict import Question, answer
from castsim.base import terminal
from castsim.base.errors import OptionError
from castsim.costs.context import context_of, run_contexts
from castsim.costs.curve import require_cost
from castsim.costs.probefile import Probe
from castsim.runs.reading import Run
from castsim.scoring.policies import Choice
from castsim.scoring.replay import caveats, results
from castsim.scoring.tally import Plan, domains_of, score
from castsim.show.draw import SIZES, picture
from castsim.show.figures import figures
from castsim.show.plots.width_plot import width_figure
from castsim.show.sources import Sources
from castsim.show.tables.replay_table import REPLAY_COLUMNS
from replay.policies.topn import TopN
from replay.width import Overhead

WIDTHS = (15, 31, 47, 63, 95, 127)
PICTURES = ("figure_1", "figure_4", "figure_3", "figure_5")
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { text-align: right; padding: 0.15rem 0.7rem; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; } img { max-width: 100%; height: auto; }
.facts td { text-align: left; } .verdict { background: #eef6f2; padding: 0.6rem 1rem; border-left: 4px solid #009e73; }
"""


def report_page(run: Run, probe: Probe, name: str, seed: int, done: Callable[[float], None]) -> str:
    """The page as HTML."""
    facts = _facts(run)
    plan = Plan((Choice(TopN),), WIDTHS, "walked" if run.facts.layout == "dense" else "per_round")
    names = domains_of(run, [])
    tally = score(run, plan, None, done=lambda share: done(share / 3))
    rows = results(run, plan, tally, names, seed)
    pictures = _pictures(run, probe)
    done(2 / 3)
    width = _width(run, probe, name, seed)
    done(1.0)
    title = f"castsim report: {run.folder.name}"
    body = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>castsim {__version__}, run digest {run.manifest.digest[:16]}</p>",
        "<h2>The run</h2>",
        _table(("fact", "value"), facts, "facts"),
        "<h2>Committed round length R</h2>",
        _table(REPLAY_COLUMNS, [_replay_row(row) for row in rows if row["domain"] == "all"]),
        _list(caveats(run, plan)),
        *width,
        "<h2>Pictures</h2>",
        *pictures,
    ]
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n' + "\n".join(body) + "\n</body></html>\n"


def _facts(run: Run) -> list[tuple[str, str]]:
    known = run.facts.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    shown = {
        key: ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        for key, value in known.items()
    }
    counts = {
        "prompts": run.manifest.prompts,
        "rounds": run.manifest.rounds,
        "domains": ", ".join(run.manifest.domains),
    }
    return [(str(key).replace("_", " "), str(value)) for key, value in (counts | shown).items()]


def _replay_row(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["policy"],
        str(row["budget"]),
        terminal.number(row["committed_pooled"], "{:.3f}"),
        terminal.number(row["committed_per_prompt"], "{:.3f}"),
        terminal.interval(row["ci95"], "{:.2f}"),
        terminal.number(row["gain_over_chain"], "{:+.1%}"),
        terminal.interval(row["gain_over_chain_ci95"], "{:+.1%}"),
        terminal.number(row["nodes"], "{:.1f}"),
        str(row["rounds"]),
        str(row["censored"]),
    )


def _width(run: Run, probe: Probe, name: str, seed: int) -> list[str]:
    """The width answer with its picture, or why there is none."""
    heading = f"<h2>Width, by probe {html.escape(name)}</h2>"
    try:
        context = context_of(probe.curve(), None, run_contexts(run), True, own=True)
        cost = require_cost(probe.curve(), context, 1, None, Overhead(), "least_squares")
        grid = tuple(n for n in WIDTHS if n <= cost.most) or (cost.most,)
        asked = Question(name, probe, cost, grid, context, 1, seed)
        found = of_run(run, None, grid, TopN.rank_cap, grid[-1])
        document = answer(asked, found, per_round_rows(run, None, cost, found, grid[-1], TopN.rank_cap, seed))
    except (OptionError, ValueError) as error:
        return [heading, f"<p>No answer: {html.escape(str(error))}</p>"]
    rows = [
        (
            row["policy"],
            f"{row['budget']:.4g}",
            f"{row['committed']:.3f}",
            terminal.number(row["round_ms"], "{:.2f}"),
            terminal.number(row["ms_per_token"], "{:.3f}"),
            terminal.number(row["speedup_over_ar"], "{:.2f}x"),
            terminal.number(row["gain_over_chain"], "{:+.1%}"),
            terminal.interval(row["gain_over_chain_ci95"], "{:+.1%}"),
        )
        for row in document["widths"]
    ]
    first, *others = document["caveats"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "width.svg"
        width_figure(document, file)
        image = _image(file, "Cost, threshold and gain over width")
    heads = ("policy", "N", "R", "round ms", "ms/token", "over AR", "gain over chain", "95 % interval")
    return [heading, f'<p class="verdict">{html.escape(first)}</p>', _table(heads, rows), image, _list(others)]


def _pictures(run: Run, probe: Probe) -> list[str]:
    sources, made = Sources(run, probe), []
    with tempfile.TemporaryDirectory() as folder:
        for name in PICTURES:
            module = figures()[name]
            picture(module, module.table(sources), Path(folder), name, SIZES)
            made.append(_image(Path(folder) / f"{name}.svg", module.TITLE))
    return made


def _image(file: Path, alt: str) -> str:
    data = base64.b64encode(file.read_bytes()).decode()
    return f'<p><img alt="{html.escape(alt)}" src="data:image/svg+xml;base64,{data}"></p>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return f'<table class="{kind}">' + line(heads, "th") + "".join(line(row, "td") for row in rows) + "</table>"


def _list(lines: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{html.escape(line)}</li>" for line in lines) + "</ul>"
