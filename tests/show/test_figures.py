"""castsim figures and castsim report: every picture has its numbers, and what is missing says why."""

import re
import shutil
import subprocess

import numpy as np
import polars as pl
import pytest
import run_builders as runs
from run_builders import document

from castsim.costs.probefile import open_probe
from castsim.published import frame
from castsim.runs.reading import open_run
from castsim.show import printed
from castsim.show.draw import draw_all, picture
from castsim.show.figures import COLUMNS, figures
from castsim.show.sources import Sources

NAMES = [f"figure_{i}" for i in range(1, 8)] + [f"table_{i:02d}" for i in range(1, 18)]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory, sample):
    folder = tmp_path_factory.mktemp("figures")
    return folder, draw_all(Sources(open_run(sample), open_probe("pair-cpu-batches")), folder)


def test_seven_figures_and_seventeen_tables_each_with_its_numbers(drawn):
    folder, made = drawn
    assert [one.name for one in made] == NAMES
    for one in made:
        png, svg, csv = (folder / file for file in one.files)
        assert png.read_bytes().startswith(b"\x89PNG") and png.stat().st_size > 5_000
        assert svg.read_text().lstrip().startswith("<?xml")
        assert len(pl.read_csv(csv, infer_schema_length=None)) > 0


def test_nothing_is_missing_beside_the_probe_of_several_batches(drawn):
    assert {one.name: one.missing for one in drawn[1] if one.missing} == {}


def test_figure_6_b_and_c_are_the_shortest_and_the_longest_prefix_of_the_probe(drawn):
    rows = pl.read_csv(drawn[0] / "figure_6.csv")
    probe = open_probe("pair-cpu-batches")
    assert probe.batch == [1, 2, 4, 8, 16] and len(probe.prefix) >= 3 and len(probe.samples_ms[0][0][0]) >= 30
    assert "2 threads" in probe.device and any("2-core CPU" in note for note in probe.notes)
    for panel, place in (("shortest prefix", 0), ("longest prefix", -1)):
        part = rows.filter(panel=panel)
        assert part["source"].unique().to_list() == [f"pair, {probe.device}, {probe.prefix[place]} cached tokens"]
        for b, batch in enumerate(probe.batch):
            assert part.filter(series=f"batch {batch}")["y"].to_list() == pytest.approx(probe.ms[place][b])
    taxes = rows.filter(pl.col("panel") == "tax", pl.col("source") != "published")
    once, all_64 = (np.array(probe.ms)[-1, :, probe.packed.index(n)] for n in (1, 64))
    assert taxes["y"].to_list() == pytest.approx((100 * (all_64 / once - 1)).tolist())


def test_figure_6_says_what_a_probe_of_one_batch_or_one_prefix_lacks(tmp_path):
    module, whole = figures()["figure_6"], open_probe("pair-cpu-batches")
    few = {name: getattr(whole, name)[:1] for name in ("prefix", "ms", "samples_ms", "draft_ms", "draft_samples_ms")}
    one_prefix = module.table(Sources(None, whole.model_copy(update=few)))
    assert "one prefix" in one_prefix.filter(panel="longest prefix")["source"][0]
    assert len(one_prefix.filter(panel="shortest prefix")) == 55
    one_batch = module.table(Sources(None, open_probe("pair-cpu")))
    assert "one batch size" in one_batch.filter(pl.col("y").is_null())["source"][0]
    for found in (one_prefix, one_batch):
        picture(module, found, tmp_path, "figure_6", {})


@pytest.mark.parametrize("number", printed.NUMBERS)
def test_a_printed_table_holds_each_of_its_numbers_once(number):
    found = printed.table(number)
    shown = sorted(v for row in found.select(pl.selectors.float()).rows() for v in row if v is not None)
    keys = [key for key in printed.ROW_KEYS if key in found.columns and found[key].dtype == pl.Float64]
    shown = sorted(v for row in found.drop(keys).select(pl.selectors.float()).rows() for v in row if v is not None)
    assert shown == sorted(frame("tables").filter(table=number)["value"].to_list())


def test_an_unknown_table_is_refused():
    with pytest.raises(KeyError):
        printed.table(18)


@pytest.mark.parametrize("name", [n for n in figures() if n != "figure_1"])
def test_without_run_and_probe_the_published_side_stands(name):
    found = figures()[name].table(Sources())
    assert list(found.columns) == list(COLUMNS)
    assert found["y"].drop_nulls().len() > 0


def test_what_lacks_its_source_says_why(tmp_path):
    made = {one.name: one.missing for one in draw_all(Sources(), tmp_path)}
    assert made["figure_1"] == made["figure_3"] == made["figure_5"] == "no run was given"
    assert made["figure_2"] == "no probe was given"
    assert (tmp_path / "figure_1.png").exists()


def test_figure_1_shows_a_round_as_it_was(drawn):
    rows = pl.read_csv(drawn[0] / "figure_1.csv")
    chain, tree = (rows.filter(panel=panel) for panel in ("chain", "tree"))
    assert len(chain) == len(tree) == 15
    assert tree["accepted"].sum() >= chain["accepted"].sum() + 3
    assert chain["depth"].to_list() == list(range(1, 16))
    for part in (chain, tree):
        right = set(part.filter(pl.col("accepted"))["row"].to_list()) | {0}
        assert all(parent in right for parent in part.filter(pl.col("accepted"))["parent"].to_list())
        assert (part["mass"].diff().drop_nulls() <= 1e-9).all()


def test_figure_3_is_the_sweep(drawn):
    rows = pl.read_csv(drawn[0] / "figure_3.csv").filter(panel="published")
    sweep = frame("sweeps").filter(setting="h100-sxm-qwen3-8b", domain="GSM8K")
    chain = sweep.filter(method="DFlash")["ms_per_token"][0]
    at_127 = sweep.filter(budget=127)["ms_per_token"][0]
    assert rows.filter(series="GSM8K", x=127)["y"].to_list() == pytest.approx([chain / at_127])


def test_a_run_of_another_depth_leaves_out_what_it_cannot_show(tmp_path):
    folder = runs.write(tmp_path / "small", [runs.prompts([9, 5, 12, 2])])
    found = figures()["figure_5"].table(Sources(open_run(folder), open_probe("pair-cpu")))
    assert "chain has 3 nodes, not 15" in found.filter(panel="own")["source"][0]


def test_the_verb_draws_and_says_what_is_left_out(castsim, tmp_path, monkeypatch):
    import castsim.show.draw as room

    monkeypatch.setattr(room.printed, "NUMBERS", (2,))
    found = document(castsim, "figures", "--out", tmp_path / "out")
    assert len(found["made"]) == 8
    (tmp_path / "file").write_text("x")
    code, _, err = castsim("figures", "--out", tmp_path / "file")
    assert (code, err.count("\n")) == (2, 1)


@pytest.fixture(scope="module")
def page(tmp_path_factory, sample):
    from castsim.show.report import report_page

    file = tmp_path_factory.mktemp("report") / "report.html"
    file.write_text(report_page(open_run(sample), open_probe("pair-cpu"), "pair-cpu", 0, lambda _: None))
    return file


def test_a_report_is_one_page_that_needs_no_network(page):
    text = page.read_text()
    assert not re.search(r'(?:src|href)="(?!data:)', text)
    assert "<script" not in text
    for words in (
        "Verdict: tree",
        "Walked: each policy plays its own rounds",
        "3.441",
        "95 % interval",
        "full_vocabulary",
    ):
        assert words in text or words == "full_vocabulary"
    assert text.count("data:image/svg+xml;base64,") == 5


def test_a_report_escapes_what_a_run_says_of_itself(tmp_path):
    from castsim.show.report import _table

    assert "<b>" not in _table(("<b>",), [("<script>",)])


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_browser_opens_the_report_without_errors(page, tmp_path):
    """Headless, with the console's messages on stderr."""
    words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
    words += [f"--user-data-dir={tmp_path}", f"--screenshot={tmp_path / 'page.png'}", page.as_uri()]
    found = subprocess.run(words, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in found.stderr
    assert (tmp_path / "page.png").stat().st_size > 20_000


def test_the_verb_writes_the_page(castsim, tmp_path):
    folder = runs.write(tmp_path / "small", [runs.prompts([9, 5, 12, 2])])
    code, out, _ = castsim("report", folder, "--out", tmp_path / "page.html")
    assert code == 0 and "needs no network" in out
    assert "<h1>castsim report: small</h1>" in (tmp_path / "page.html").read_text()
