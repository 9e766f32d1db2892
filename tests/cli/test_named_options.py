"""A verb's messages name its own options, and those of another verb only behind that verb's name."""

import json
import re

import pytest
import typer
from run_builders import document

from castsim.cli import app as cli

VERBS = typer.main.get_command(cli.build()).commands
SERVE = ("serve", "--requests", "9", "--policy", "chain", "--concurrency", "9")
REPLAY = ("replay", "--policy", "costaware", "--budgets", "15")


def probe(path, packed=(1, 32, 64), prefix=(0, 4096), batch=(1, 16), draft=True):
    ms = [[[10 + n / 1e3 for n in packed] for _ in batch] for _ in prefix]
    found = {"packed": packed, "prefix": prefix, "batch": batch, "ms": ms}
    if draft:
        found["draft_ms"] = [[1.0] * len(batch)] * len(prefix)
    path.write_text(json.dumps(found), encoding="utf-8")
    return path


def foreign_options(verb, text):
    """The options in a text that neither the verb has nor the verb named before them."""
    own, named = set(), verb
    for other, option in re.findall(r"castsim ([a-z-]+)|(--[a-z][a-z-]*)", text.replace("castsim:", "")):
        named = other if other in VERBS else named
        if option and option not in {name for param in VERBS[named].params for name in param.opts}:
            own.add(option)
        named = named if other else verb
    return own


def test_an_option_of_another_verb_is_found():
    assert foreign_options("serve", "castsim: name one with --prefix, or --assume hold") == {"--prefix"}
    assert foreign_options("serve", "measure it with castsim probe --prefix") == set()


@pytest.mark.parametrize("asked", [SERVE, REPLAY, ("width", "--budgets", "15"), ("forecast", "--budgets", "15")])
@pytest.mark.parametrize(
    "changes",
    [
        {"prefix": (9000, 9999)},
        {"prefix": (9000,)},
        {"batch": (1, 8)},
        {"batch": (8, 16)},
        {"draft": False},
        {"packed": (1, 4, 8)},
    ],
    ids=lambda changes: "".join(changes),
)
def test_messages_about_a_probe_name_options_of_the_verb(castsim, tmp_path, asked, changes):
    code, out, err = castsim(*asked, "--probe", probe(tmp_path / "probe.json", **changes))
    assert code == 0 or (code, err.count("\n")) == (2, 1)
    assert foreign_options(asked[0], out + err) == set()


def test_serve_says_what_it_has(castsim, tmp_path):
    *_, err = castsim(*SERVE, "--probe", probe(tmp_path / "a.json", prefix=(9000, 9999)))
    assert "measure there, or let the nearest stand with --assume hold" in err
    *_, err = castsim(*SERVE, "--probe", probe(tmp_path / "b.json", batch=(1, 8)))
    assert "give a smaller --concurrency" in err


def test_a_report_names_no_option_for_prices(castsim, tmp_path):
    page = tmp_path / "report.html"
    for name, changes in (("a", {"prefix": (9000, 9999)}), ("b", {"draft": False})):
        assert castsim("report", "--out", page, "--probe", probe(tmp_path / f"{name}.json", **changes))[0] == 0
        assert foreign_options("report", page.read_text(encoding="utf-8")) <= {"--font"}, name


def test_width_and_forecast_still_name_theirs(castsim):
    assert any("--overhead puts it in" in line for line in document(castsim, "width", "--budgets", "15")["caveats"])
