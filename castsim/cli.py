"""The command line: parse, call one function, print."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from castsim import __version__, arguments, show
from castsim.diagnose import CALIBRATE_NOTE, diagnose, rank_cap_loss, summary
from castsim.errors import CastsimError, OptionError
from castsim.foreign import ImportOptions, import_run, told_facts
from castsim.options import budgets_of, choose, option_fields
from castsim.results import caveats, results
from castsim.runlog import Run, open_run
from castsim.sample import sample_run
from castsim.score import Mode, Plan, domains_of, score
from replay import load_policies

MODES: dict[str, Mode] = {"walked": "walked", "per-round": "per_round", "chain-rounds": "chain_rounds"}


def replay(
    run: arguments.RunFolder = None,
    policy: arguments.Policies = None,
    setting: arguments.Settings = None,
    budgets: arguments.Budgets = "15,31,47,63,95,127",
    mode: arguments.ScoreMode = None,
    domain: arguments.Domains = None,
    jobs: arguments.Jobs = 1,
    seed: arguments.Seed = 0,
    json_to: arguments.Json = None,
    csv_to: arguments.Csv = None,
) -> None:
    """Committed round length R of tree policies on a recorded run, beside the chain.

    \b
    castsim replay --policy topN
    castsim replay RUN --policy topN,spine --set rank_cap=4 --budgets 31,63 --json -
    """
    show.check_target(json_to, "--json")
    show.check_target(csv_to, "--csv")
    opened = open_run(run or sample_run())
    walked = "walked" if opened.facts.layout == "dense" else "per-round"
    if (chosen := walked if mode is None else mode) not in MODES:
        raise OptionError(f"--mode {chosen}: there are {', '.join(MODES)}")
    plan = Plan(tuple(choose(policy or ["topN"], setting or [])), budgets_of(budgets), MODES[chosen])
    names = domains_of(opened, domain or [])
    with show.progress("replay") as done:
        tally = score(opened, plan, _chosen(names, domain), jobs, done)
    rows = results(opened, plan, tally, names, seed)
    notes = caveats(opened, plan)
    show.emit({**_head("replay", opened), "caveats": notes, "results": rows}, show.replay_tables(rows), notes, json_to)
    if csv_to is not None:
        show.write_text(csv_to, show.csv_of(rows), "--csv")


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
    if plot is not None and plot.suffix not in (".png", ".svg", ".pdf"):
        raise OptionError(f"--plot {plot}: name a .png, .svg or .pdf file")
    notes = list(opened.facts.notes)
    if rank_cap > opened.facts.rank_kept:
        rank_cap = opened.facts.rank_kept
        notes.append(f"The rank cap is {rank_cap} here, as many ranks as the run keeps.")
    notes.append(CALIBRATE_NOTE)
    names = domains_of(opened, domain or [])
    with show.progress("calibrate") as done:
        found = diagnose(opened, _chosen(names, domain), names, rank_cap, done)
    domains = {name: summary(part, rank_cap) for name, part in found.items()}
    with show.progress("rank cap") as done:
        loss = rank_cap_loss(opened, _chosen(names, domain), names, rank_cap, done)
    document = {
        **_head("calibrate", opened),
        "caveats": notes,
        "rank_cap": rank_cap,
        "domains": domains,
        "rank_cap_loss": loss,
    }
    show.emit(document, show.calibrate_tables(domains, loss), notes, json_to)
    if plot is not None:
        from castsim.plots import calibrate_figure

        calibrate_figure(domains, opened.folder.name, plot)


def import_log(
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
    castsim import tiny_dense.npz --out logs/tiny --eos 0 --fact vocab_size=4096
    """
    show.check_target(json_to, "--json")
    options = ImportOptions(sequences, domain, tuple(eos or ()), per_domain, told_facts(fact or []))
    with show.progress("import") as done:
        import_run(file, out, options, done)
    made = open_run(out)
    grid = show.table(f"{out}", "layout", "prompts", "rounds", "L", "K", "domains")
    facts = made.facts
    cells = (
        made.manifest.prompts,
        made.manifest.rounds,
        facts.depth_max,
        facts.rank_kept,
        ", ".join(made.manifest.domains),
    )
    grid.add_row(facts.layout, *map(str, cells))
    show.emit(_head("import", made), [grid], facts.notes, json_to)


def policies(json_to: arguments.Json = None) -> None:
    """The tree policies and their options.

    \b
    castsim policies
    """
    grid = show.table("Policies", "policy", "what it does", "options")
    grid.columns[1].justify = "left"
    grid.columns[1].no_wrap, grid.columns[1].max_width = False, 72
    listed = []
    for name, kind in load_policies().items():
        options = {f.name: f.default for f in option_fields(kind)}
        what = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
        listed.append({"policy": name, "what": what, "options": options, "nested": kind.nested})
        grid.add_row(name, what, ", ".join(f"{k}={v}" for k, v in options.items() if v != ()) or "-")
    show.emit({"verb": "policies", "version": __version__, "policies": listed}, [grid], [], json_to)


def _head(verb: str, run: Run) -> dict[str, Any]:
    manifest = run.manifest
    about = {"path": str(run.folder), "digest": manifest.digest, "prompts": manifest.prompts, "rounds": manifest.rounds}
    return {
        "verb": verb,
        "version": __version__,
        "run": {**about, "domains": manifest.domains, **run.facts.model_dump(mode="json")},
    }


def _chosen(names: dict[int, str], domain: list[str] | None) -> list[int] | None:
    return list(names) if domain else None  # None reads shards without a filter


def _version(wanted: bool) -> None:
    if wanted:
        print(f"castsim {__version__}")
        raise typer.Exit


def _about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Which candidates of a one-pass drafter to verify, and how many: answered from a recorded run."""


def build() -> typer.Typer:
    """The application; its help lists the policies that are there."""
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, add_completion=False)
    app.callback()(_about)
    app.command(epilog=f"Policies: {', '.join(load_policies())}. Their options: castsim policies.")(replay)
    app.command()(calibrate)
    app.command("import")(import_log)
    app.command()(policies)
    return app


def main() -> None:
    """Entry point. What the user can put right is one line on stderr and exit code 2."""
    try:
        code = build()(sys.argv[1:] or ["--help"], standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has gone: print no more
        sys.exit(1)  # as typer does where it meets this first
    except typer.TyperException as error:
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        text += "; see castsim --help"
    except CastsimError as error:
        text = str(error)
    except MemoryError:
        text = "out of memory; give smaller budgets or options, or fewer --jobs"
    except OSError as error:
        text = f"{error.filename or 'output'}: {error.strerror}; name another place"
    line = "".join(c if c.isprintable() else " " for c in text)  # one line, and no control codes from a log
    print(f"castsim: {line}", file=sys.stderr)
    sys.exit(2)
