"""Files of spreadsheets and other programs: encodings, separators, order of rows."""

import gzip
import itertools

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from castsim.base.textfile import on_grid, read_json, read_lines, read_table, read_text, write_whole

TEXT = "packed,ms\n1,10.5\n16,12.25\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_every_encoding_that_names_itself_is_read(tmp_path, encoding):
    file = tmp_path / "t.csv"
    file.write_bytes(TEXT.replace("ms", "mś").encode(encoding))
    assert read_text(file) == TEXT.replace("ms", "mś")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_named(tmp_path, encoding):
    file = tmp_path / "t.csv"
    file.write_bytes(TEXT.encode(encoding))
    with pytest.raises(ValueError, match="UTF-16 without a byte-order mark"):
        read_text(file)


def test_another_encoding_is_refused_with_its_line(tmp_path):
    file = tmp_path / "t.csv"
    file.write_bytes("packed,ms\n1,2\nGröße,3\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"line 3 is no UTF-8 text: save it as UTF-8"):
        read_text(file)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        TEXT.replace(",", ";"),
        TEXT.replace(",", "\t"),
        TEXT.replace(",", ";").replace(".", ","),
        "sep=;\n" + TEXT.replace(",", ";").replace(".", ","),
        TEXT.replace("\n", "\r\n"),
        TEXT.replace(",", " , "),
        TEXT.replace("\n", "\r"),
        TEXT + "\n  \n\n",
        TEXT.replace("\n", "\r\n") + "\r\n,\r\n",
        "\n\n" + TEXT,
    ],
    ids=[
        *["commas", "semicolons", "tabs", "decimal commas", "sep line", "CRLF", "blanks"],
        *["CR", "empty rows behind", "rows without cells", "empty rows before"],
    ],
)
def test_a_table_is_the_same_with_any_separator(tmp_path, text):
    file = tmp_path / "t.csv"
    file.write_bytes(text.encode())
    found = read_table(file).cast(pl.Float64)
    assert found.to_dict(as_series=False) == {"packed": [1.0, 16.0], "ms": [10.5, 12.25]}


def test_an_empty_row_between_others_is_a_missing_cell(tmp_path):
    """Else the masses behind it would move up by a rank."""
    file = tmp_path / "t.csv"
    file.write_text("mass\n0.9\n\n0.7\n\n\n")
    assert read_table(file)["mass"].to_list() == [0.9, None, 0.7]


def test_a_grid_without_rows_is_refused():
    with pytest.raises(ValueError, match="it has no rows"):
        on_grid(pl.DataFrame(schema=["packed", "ms"]), ["packed"])


@pytest.mark.parametrize("name", ["ms", "packed"])
def test_a_table_with_two_columns_of_one_name_is_refused(tmp_path, name):
    file = tmp_path / "t.csv"
    file.write_text(TEXT.replace("\n", ",1\n").replace(",1", f",{name}", 1))
    with pytest.raises(ValueError, match=f"two columns {name}: keep one"):
        read_table(file)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (gzip.compress(TEXT.encode()), "packed by gzip: unpack it"),
        (b"\x28\xb5\x2f\xfd\x04", "packed by zstd"),
        (b"PK\x03\x04\x14", "workbook of a spreadsheet.*save it as CSV"),
        (b"PAR1\x15", "is a Parquet file"),
    ],
)
@pytest.mark.parametrize("read", [read_text, read_lines, read_table, read_json])
def test_what_is_packed_is_told_as_that(tmp_path, read, raw, said):
    (tmp_path / "t.csv").write_bytes(raw)
    with pytest.raises(ValueError, match=said):
        read(tmp_path / "t.csv")


@given(st.permutations(list(itertools.product([0, 1024], [1, 2], [1, 8, 16]))))
def test_rows_in_any_order_give_the_same_grid(order):
    table = pl.DataFrame(order, schema=["prefix", "batch", "packed"], orient="row")
    rows, values = on_grid(table, ["prefix", "batch", "packed"])
    assert rows.rows() == sorted(order)
    assert values == {"prefix": [0, 1024], "batch": [1, 2], "packed": [1, 8, 16]}


def test_a_point_that_is_twice_or_missing_is_named():
    table = pl.DataFrame({"prefix": [8, 0, 8], "packed": [1, 1, 4]})
    with pytest.raises(ValueError, match=r"there is no row of prefix 0, packed 4$"):
        on_grid(table, ["prefix", "packed"])
    with pytest.raises(ValueError, match=r"there are two rows of prefix 8, packed 4$"):
        on_grid(pl.concat([table, table[2:]]), ["prefix", "packed"])
    with pytest.raises(ValueError, match="column packed has an empty cell"):
        on_grid(pl.DataFrame({"packed": [1, None]}), ["packed"])


LINES = ['{"prompt": "Größe"}', '{"prompt": "a\u2028b"}', '{"prompt": "c"}']


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_lines_are_those_of_any_encoding_that_names_itself(tmp_path, encoding):
    file = tmp_path / "t.jsonl"
    file.write_bytes("\n".join(LINES).encode(encoding))
    assert read_lines(file) == LINES


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_last_line_that_is_torn_inside_a_letter_leaves_the_others_whole(tmp_path, encoding):
    file = tmp_path / "t.jsonl"
    file.write_bytes("\n".join([*LINES, "é"]).encode(encoding)[:-1])
    assert read_lines(file) == [*LINES, ""]


def test_lines_of_utf_16_without_a_mark_are_named(tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_bytes("\n".join(LINES).encode("utf-16-le"))
    with pytest.raises(ValueError, match="UTF-16 without a byte-order mark"):
        read_lines(file)


def test_json_that_says_one_thing_twice_is_refused(tmp_path):
    file = tmp_path / "t.json"
    file.write_text('{"a": {"b": 1, "c": 2, "b": 3}}', encoding="utf-8")
    with pytest.raises(ValueError, match="it says 'b' twice: keep one"):
        read_json(file)
    file.write_text('{"a": {"b": 1}, "b": 3}', encoding="utf-8-sig")
    assert read_json(file) == {"a": {"b": 1}, "b": 3}


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    write_whole(tmp_path / "t", "é \udcff")
    assert (tmp_path / "t").read_bytes() == "é \\udcff".encode()
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        write_whole(tmp_path / "folder", "text")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "t"]
