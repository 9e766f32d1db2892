"""Tables of times: rows in any order, none twice, none missing; masses too."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_builders import document

from castsim.advice.acceptance import MassError, of_file, published
from castsim.costs.probefile import ProbeError, open_probe

CELLS = list(itertools.product([64, 1024], [1, 4], [1, 16, 32, 64]))  # prefix, batch, packed


def rows_of(cells):
    return [f"{x},{b},{n},{5 + x / 512 + b / 8 + n / 16},{2 + x / 1024}" for x, b, n in cells]


def probed(path, rows):
    path.write_text("\n".join(["prefix,batch,packed,ms,draft_ms", *rows]) + "\n", encoding="utf-8")
    return open_probe(str(path))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tables")


@given(st.permutations(CELLS))
def test_a_permuted_table_is_the_probe_of_the_sorted_one(folder, cells):
    assert probed(folder / "probe.csv", rows_of(cells)) == probed(folder / "probe.csv", rows_of(CELLS))


@given(*(st.permutations(axis) for axis in ([64, 1024], [1, 4], [1, 16, 32, 64])))
def test_a_permuted_probe_file_is_the_sorted_one(folder, prefix, batch, packed):
    """Each axis, with the times, drafter times and samples that lie along it."""
    times = {(x, b, n): 5 + x / 512 + b / 8 + n / 16 for x, b, n in CELLS}

    def written(prefix, batch, packed):
        ms = [[[times[x, b, n] for n in packed] for b in batch] for x in prefix]
        found = {
            "prefix": prefix,
            "batch": batch,
            "packed": packed,
            "ms": ms,
            "samples_ms": [[[[t, t + 1] for t in cell] for cell in row] for row in ms],
            "draft_ms": [[x + b for b in batch] for x in prefix],
        }
        (folder / "probe.json").write_text(json.dumps(found), encoding="utf-8")
        return open_probe(str(folder / "probe.json"))

    assert written(prefix, batch, packed) == written([64, 1024], [1, 4], [1, 16, 32, 64])


@given(st.sampled_from(CELLS))
def test_a_point_that_is_missing_or_there_twice_is_named(folder, cell):
    place = "prefix {}, batch {}, packed {}".format(*cell)
    with pytest.raises(ProbeError, match=f"there is no row of {place}"):
        probed(folder / "probe.csv", rows_of([c for c in CELLS if c != cell]))
    with pytest.raises(ProbeError, match=f"there are two rows of {place}"):
        probed(folder / "probe.csv", rows_of([*CELLS, cell]))


def test_two_drafter_times_of_one_prefix_are_refused(folder):
    rows = [*rows_of(CELLS[:-1]), "1024,4,64,12,9"]
    with pytest.raises(ProbeError, match="prefix 1024, batch 4 has two values of draft_ms"):
        probed(folder / "probe.csv", rows)


def test_a_shuffled_table_gives_the_same_answer(castsim, folder):
    """Of the command, not of the reader alone."""
    shuffled = np.random.default_rng(0).permutation(len(CELLS))
    answers = []
    for order in (range(len(CELLS)), shuffled):
        probed(folder / "probe.csv", rows_of(CELLS[i] for i in order))
        asked = ("width", "--probe", folder / "probe.csv", "--masses", "qwen3-8b-gsm8k", "--prefix", "512")
        answers.append(document(castsim, *asked))
    assert answers[0] == answers[1]


@given(st.permutations(range(1, 41)))
def test_masses_in_any_order_are_the_same(folder, ranks):
    mass = published("qwen3-8b-gsm8k", None, None, 40).mass
    file = folder / "masses.csv"
    for header, rows in (
        ("rank,mass", [f"{r},{mass[r - 1]}" for r in ranks]),
        ("mass", [str(mass[r - 1]) for r in ranks]),
    ):
        file.write_text("\n".join([header, *rows]), encoding="utf-8")
        assert of_file(file, 40).mass.tolist() == mass.tolist()


@pytest.mark.parametrize(
    ("ranks", "said"), [([1, 2, 2, *range(4, 20)], "two rows of rank 2"), ([1, 2, *range(4, 20)], "no row of rank 3")]
)
def test_a_rank_that_is_missing_or_there_twice_is_named(folder, ranks, said):
    file = folder / "masses.csv"
    file.write_text("rank,mass\n" + "\n".join(f"{r},{1 / r}" for r in ranks), encoding="utf-8")
    with pytest.raises(MassError, match=said):
        of_file(file, 16)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_table_of_a_spreadsheet_is_read(folder, encoding):
    """A byte-order mark, semicolons and decimal commas."""
    text = "\n".join(["prefix,batch,packed,ms,draft_ms", *rows_of(CELLS)]).replace(",", ";").replace(".", ",")
    (folder / "sheet.csv").write_bytes(text.encode(encoding))
    found = open_probe(str(folder / "sheet.csv"))
    assert found.curve().ms.tolist() == probed(folder / "probe.csv", rows_of(CELLS)).curve().ms.tolist()


PROBE = {"packed": [1, 16, 64], "ms": [10, 11, 14], "draft_ms": 2}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("p.json", json.dumps({**PROBE, "samples_ms": [[[[], [], []]]]}), "samples_ms must hold a time of each point"),
        ("p.json", '{"packed": [1, 8], "packed": [1, 16], "ms": [10, 11]}', "it says 'packed' twice: keep one"),
        ("p.json", json.dumps({**PROBE, "packed": [1, 16, 10**11]}), "ends at 100000000000 packed tokens"),
        ("p.json", json.dumps({"packed": [8], "ms": [10]}), "has one packed count"),
        ("p.csv", "packed,ms\n8,10\n", "has one packed count"),
        ("p.csv", "packed,ms\n1.5,10\n16,11\n", "packed.0: input should be a valid integer"),
        ("p.csv", "packed;ms\n1;10\n1,024;11\n", "packed.1: input should be a valid integer"),
        ("p.csv", "packed,ms\n", "it has no rows"),
        ("p.csv", "packed,ms\n1,true\n16,true\n", "is no table of times"),
        ("p.csv", "packed,ms,ms\n1,10,11\n16,11,12\n", "it has two columns ms: keep one"),
    ],
)
def test_what_is_no_curve_is_one_line_that_says_why(tmp_path, name, text, said):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ProbeError, match=said) as error:
        open_probe(str(tmp_path / name))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["p.csv", "p.CSV", "p.tsv", "P.Tsv"])
def test_a_table_is_known_by_its_ending_in_any_case(tmp_path, name):
    tab = name.lower().endswith("tsv")
    (tmp_path / name).write_text("packed,ms\n1,10\n16,11\n\n".replace(",", "\t" if tab else ","))
    assert open_probe(str(tmp_path / name)).packed == [1, 16]


@pytest.mark.parametrize("text", ["0.5", '{"mass": [0.5]}', "null", '"0.5"', "[true, true]", "[[0.5]]", "[" * 50_000])
def test_masses_that_are_no_list_of_numbers_are_one_line(tmp_path, text):
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(MassError, match=r"m\.json") as error:
        of_file(tmp_path / "m.json", 100)
    assert "\n" not in str(error.value)
