"""Options that exclude each other, do nothing or stand twice: one line, and nothing is done."""

import typing

import pytest
import run_builders as runs
import typer

from castsim.base.errors import OptionError
from castsim.cli import app as cli
from castsim.cli import exclusive


def verbs():
    """The commands by name."""
    return typer.main.get_command(cli.build()).commands


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
        (["live", "--strict"], "--strict: has no effect without --probe"),
        (["width", "--emit", "json", "--force"], "--force: has no effect with --emit json"),
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


LISTS = [
    (["serve", "--rate", "2,2"], "--rate 2,2: 2 is there twice"),
    (["serve", "--rate", "2, 8,2.0"], "2 is there twice"),  # the same number in other words
    (["serve", "--concurrency", "8,8"], "--concurrency 8,8: 8 is there twice"),
    (["serve", "--policy", "chain", "--policy", "chain"], "--policy chain,chain: chain is there twice"),
    (["serve", "--assume", "hold", "--assume", "hold"], "--assume hold,hold: hold is there twice"),
    (["allocate", "--per-request", "4,4"], "--per-request 4,4: 4 is there twice"),
    (["replay", "--budgets", "31,15,31"], "--budgets 31,15,31: 31 is there twice"),
    (["replay", "--policy", "topN,chain", "--policy", "topN"], "--policy topN,chain,topN: topN is there twice"),
    (["replay", "--domain", "gsm8k", "--domain", "gsm8k"], "--domain gsm8k,gsm8k: gsm8k is there twice"),
    (["live", "--budgets", "31,31"], "--budgets 31,31: 31 is there twice"),
    (["check", "--budgets", "31,031"], "31 is there twice"),
    (["width", "--budgets", "31,31"], "--budgets 31,31: 31 is there twice"),
    (["forecast", "--budgets", "31,31"], "--budgets 31,31: 31 is there twice"),
    (["probe", "--packed", "1,64,64"], "--packed 1,64,64: 64 is there twice"),
    (["probe", "--prefix", "64,64"], "--prefix 64,64: 64 is there twice"),
    (["probe", "--batch", "1,1"], "--batch 1,1: 1 is there twice"),
    (["fit-profile", "--published", "a,a"], "--published a,a: a is there twice"),
    (["import", "x.npz", "--out", "y", "--eos", "0", "--eos", "0"], "--eos 0,0: 0 is there twice"),
]


@pytest.mark.parametrize(("arguments", "words"), LISTS)
def test_a_value_of_a_list_is_given_once(castsim, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert words in refused(castsim, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_every_option_that_takes_a_list_has_its_example_above():
    tried = {(arguments[0], word) for arguments, _ in LISTS for word in arguments if word.startswith("--")}
    tried |= {(verb, o) for verb in verbs() for o in ("--domain", "--policy") if ("replay", o) in tried}
    for name, command in verbs().items():
        for param in command.params:
            if param.multiple or "," in str(param.metavar):
                option = param.opts[0]
                assert option in ("--set", "--fact", "--overhead") or (name, option) in tried, (name, option)


def test_a_number_has_an_end(castsim):
    """Of every option of every verb that takes a number."""
    words, tried = {"generate": ["hi"], "import": ["x.npz", "--out", "y"]}, 0
    callbacks = {c.name or c.callback.__name__: c.callback for c in cli.build().registered_commands}
    for name, command in verbs().items():
        hints = typing.get_type_hints(callbacks[name])
        for param in command.params:
            if hints.get(param.name) in (float, float | None):
                tried += 1
                for text in ("inf", "nan"):
                    assert f"{param.opts[0]}" in refused(castsim, name, *words.get(name, []), param.opts[0], text)
    assert tried > 10
    for text in ("inf", "nan"):
        asked = ("replay", "--policy", "perround", "--probe", "pair-cpu", "--set", f"rate={text}")
        assert f"--set rate={text}" in refused(castsim, *asked)


def test_numbers_that_are_no_list_may_repeat(castsim):
    assert runs.document(castsim, "forecast", "--overhead", "1,1", "--budgets", "15")["overhead_ms"] == [1, 1]


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
    return verbs()["width"].make_context("width", ["--emit", "json", "--draft-ms", "0"])


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
