"""Options that exclude each other, do nothing or stand twice: one line, and nothing is done."""

import pytest
import run_builders as runs

from castsim.base.errors import OptionError
from castsim.cli import app as cli
from castsim.cli import exclusive


def refused(castsim, *arguments):
    code, out, err = castsim(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), (arguments, out, err)
    return err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", "--draft-ms", "3"], "--draft-ms: has no effect without --probe"),
        (["replay", "--overhead", "0"], "--overhead: has no effect without --probe"),  # also where it is the default
        (["replay", "--prefix", "64"], "--prefix: has no effect without --probe"),
        (["replay", "--assume", "hold"], "--assume: has no effect without --probe"),
        (["replay", "--strict"], "--strict: has no effect without --probe"),
        (["replay", "--jobs", "2", "--backend", "dask", "--scheduler", "tcp://127.0.0.1:1"], "--jobs: has no effect"),
        (["allocate", "--jobs", "1", "--backend", "dask", "--scheduler", "tcp://127.0.0.1:1"], "--jobs: has no effect"),
        (["simulate", "--budget", "31"], "--budget: has no effect without --sparse"),
        (["fit-profile", "RUN", "--jobs", "2"], "--jobs: has no effect with a run"),
        (["record", "--budget", "63"], "--budget: has no effect without --sparse"),
        (["record", "--top-k", "5"], "--top-k: has no effect with --temperature 0, which is greedy"),
        (["record", "--temperature", "0", "--top-p", "0.9"], "--top-p: has no effect"),
        (["record", "--raw", "--thinking"], "--thinking: has no effect with --raw"),
        (["live", "--top-k", "5"], "--top-k: has no effect"),
        (["live", "--verifier", "recursive"], "--verifier: has no effect with --temperature 0"),
        (["live", "--raw", "--thinking"], "--thinking: has no effect with --raw"),
        (["check", "--raw", "--thinking"], "--thinking: has no effect with --raw"),
        (["generate", "hi", "--top-p", "1"], "--top-p: has no effect"),
        (["generate", "hi", "--verifier", "direct"], "--verifier: has no effect"),
        (["generate", "hi", "--raw", "--thinking"], "--thinking: has no effect with --raw"),
        (["generate", "hi", "--policy", "ar", "--budget", "63"], "--budget: has no effect with --policy ar"),
        (["generate", "hi", "--policy", "ar", "--rank-kept", "4"], "--rank-kept: has no effect with --policy ar"),
        (["generate", "hi", "--policy", "ar", "--set", "rank_cap=2"], "--set: has no effect with --policy ar"),
        (
            ["generate", "hi", "--policy", "ar", "--temperature", "1", "--verifier", "direct"],
            "--verifier: has no effect with --policy ar",
        ),
        (["probe", "--random-weights", "--config", "c.json", "--target", "pair"], "--target: has no effect with"),
        (
            ["probe", "--random-weights", "--config", "c.json", "--drafter-config", "d.json", "--drafter", "pair-dart"],
            "--drafter: has no effect with --drafter-config",
        ),
        (["import", "log.jsonl", "--out", "RUN", "--sequences", "s.json"], "--sequences: has no effect with log.jsonl"),
        (["import", "log.pt", "--out", "RUN", "--sequences", "s.json"], "--sequences: has no effect with log.pt"),
        (["import", "log.npz", "--out", "RUN", "--domain", "gsm8k"], "--domain: has no effect with log.npz"),
        (["import", "log.jsonl", "--out", "RUN", "--domain", "gsm8k"], "--domain: has no effect with log.jsonl"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(castsim, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert words in refused(castsim, *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", [c.name or c.callback.__name__ for c in cli.build().registered_commands])
def test_an_option_of_one_value_is_given_once(castsim, verb):
    words = {"generate": ["hi"], "import": ["x.npz", "--out", "y"]}.get(verb, [])
    assert "--json: takes one value and is given 2 times" in refused(castsim, verb, *words, "--json", "-", "--json=-")


def test_a_repeated_flag_or_a_list_is_no_contradiction(castsim, tmp_path):
    small = runs.write(tmp_path / "small", [runs.prompts([9, 5, 12, 2])])
    found = runs.document(castsim, "replay", small, "--policy", "topN", "--policy", "chain", "--budgets", "5")
    assert {row["policy"] for row in found["results"]} == {"topN", "chain"}
    assert castsim("live", "--no-ar", "--no-ar", "--top-k", "1")[2].startswith("castsim: --top-k")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", "--set", "rank_cap=2", "--set", "rank_cap=3"], "--set rank_cap: is given twice"),
        (["serve", "--set", "every=2", "--set", "every = 8"], "--set every: is given twice"),
        (["import", "x.npz", "--out", "y", "--fact", "dtype=a", "--fact", "dtype=b"], "--fact dtype: is given twice"),
    ],
)
def test_a_key_is_given_once(castsim, arguments, words):
    assert words in refused(castsim, *arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["replay", "--json", "x", "--csv", "./x"], "--json x: is the file of --csv too"),
        (["calibrate", "--json", "x.png", "--plot", "x.png"], "--json x.png: is the file of --plot too"),
        (["report", "--out", "page.html", "--json", "page.html"], "--json page.html: is the file of --out too"),
        (["width", "--json", "w.png", "--plot", "w.png"], "--json w.png: is the file of --plot too"),
        (["probe", "--out", "p.json", "--json", "p.json"], "--json p.json: is the file of --out too"),
        (["report", "--probe", "read.json", "--json", "read.json"], "--json read.json: is the file of --probe too"),
        (["fit-profile", "RUN", "--json", "link.json", "--out", "read.json"], "is the file of --out too"),
        (["import", "read.json", "--out", "RUN", "--json", "read.json"], "--json read.json: is the file of FILE too"),
    ],
)
def test_a_file_has_one_purpose(castsim, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "read.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("read.json")
    assert words in refused(castsim, *arguments)
    assert (tmp_path / "read.json").read_text() == "{}"


@pytest.fixture
def context():
    """The context of `castsim width --emit json --draft-ms 0`, as its verb would get it."""
    import typer

    verb = typer.main.get_command(cli.build()).commands["width"]
    return verb.make_context("width", ["--emit", "json", "--draft-ms", "0"])


def test_what_was_given_is_told_from_a_default(context):
    assert exclusive.given(context, "--emit") and exclusive.given(context, "--draft-ms")
    assert not exclusive.given(context, "--seed") and not exclusive.given(context, "--published")


def test_the_helpers_refuse_what_was_given_and_nothing_else(context):
    exclusive.refuse(context, "--published", "--plot", "--seed")
    exclusive.refuse_idle(context, "--emit", "--draft-ms")
    exclusive.refuse_idle(context, "--live", "--plot")
    exclusive.refuse_together(context, "--plot", "--emit")
    exclusive.refuse_all_but(context, "--emit json", "--draft-ms")
    exclusive.refuse_sampling(context, 1.0, "--draft-ms")
    for call in (
        lambda: exclusive.refuse(context, "--published", "--plot", "--draft-ms"),
        lambda: exclusive.refuse_idle(context, "--live", "--draft-ms"),
        lambda: exclusive.refuse_together(context, "--emit", "--draft-ms"),
        lambda: exclusive.refuse_all_but(context, "--published", "--emit", "--json"),
        lambda: exclusive.refuse_sampling(context, 0.0, "--draft-ms"),
    ):
        with pytest.raises(OptionError, match="--draft-ms: has no effect with"):
            call()
