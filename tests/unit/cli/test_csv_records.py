"""CSV files as people have them, messages without cells, outputs that are no inputs."""

import codecs
import csv
import time

import pytest
import typer

from jaxdp.cli import build_app
from jaxdp.cli.record_files import Records

SECRET = "Hildegard"


def columns_of(records):
    """All cells by column."""
    columns = {name: [] for name in records.names if name}
    with records.located():
        for chunk in records.chunks():
            for name, cells in chunk.items():
                columns[name].extend(cells)
    return columns


def read(tmp_path, content, encoding="utf-8"):
    path = tmp_path / "data.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return columns_of(Records(path, encoding))


PLAIN = {"town": ["Zürich", "A"], "age": ["1", "2"]}
TEXT = "town,age\nZürich,1\nA,2\n"
ACCEPTED = {
    "utf-8": (TEXT, "utf-8"),
    "mark": (codecs.BOM_UTF8 + TEXT.encode(), "utf-8"),
    "mark and its name": (codecs.BOM_UTF8 + TEXT.encode(), "UTF8"),
    "mark and quotes": (codecs.BOM_UTF8 + TEXT.replace("town", '"town"').encode(), "utf-8"),
    "latin": (TEXT.encode("latin-1"), "ISO-8859-1"),
    "windows": (TEXT.encode("cp1252"), "cp1252"),
    "wide": (TEXT.encode("utf-16"), "utf-16"),
    "wide by name": (codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"), "utf-16-le"),
    "line ends": (TEXT.replace("\n", "\r\n"), "utf-8"),
    "old line ends": (TEXT.replace("\n", "\r"), "utf-8"),
    "no line end": (TEXT[:-1], "utf-8"),
    "blank lines": ("\n\n" + TEXT.replace("\n", "\n\n") + "\n  \n\t\n", "utf-8"),
    "spaces": ("town, age\nZürich, 1\nA,2\n", "utf-8"),
    "quotes": ('"town","age"\n"Zürich","1"\n"A",2\n', "utf-8"),
    "quotes after spaces": ('town, "age"\n"Zürich", "1"\nA, 2\n', "utf-8"),
    "an index": (",town,age\n0,Zürich,1\n1,A,2\n", "utf-8"),
    "more commas": ("town,age,,\nZürich,1,,\nA,2,,\n", "utf-8"),
}


@pytest.mark.parametrize("name", ACCEPTED)
def test_files_as_programs_write_them(tmp_path, name):
    found = read(tmp_path, *ACCEPTED[name])
    assert {key: [cell.strip() for cell in cells] for key, cells in found.items()} == PLAIN


def test_cells_of_any_size_and_with_line_ends(tmp_path):
    usual, cell = csv.field_size_limit(), "x" * 300_000
    found = read(tmp_path, f'a,b\n{cell},"1\n2"\n"",\n')
    assert found == {"a": [cell, ""], "b": ["1\n2", ""]}
    assert csv.field_size_limit() == usual
    # A value that is missing in a file of one column is no blank line.
    assert read(tmp_path, 'a\n1\n""\n\n \n2\n') == {"a": ["1", "", "2"]}


def test_names_are_in_composed_form(tmp_path):
    assert [*read(tmp_path, "Gro\u0308\u00dfe,\u00a0b\n1,2\n")] == ["Gr\u00f6\u00dfe", "b"]


REFUSED = {
    "latin": (
        f"town,age\n{SECRET},ü\n".encode("latin-1"),
        "utf-8",
        "utf-8 without NUL, and line 2 is not: name",
    ),
    "wide": (f"town,age\n{SECRET},1\n".encode("utf-16"), "utf-8", "and line 1 is not: name"),
    "NUL": (f"a,b\n{SECRET},1\n\0,2\n", "utf-8", "without NUL, and line 3 is not"),
    "late": (f"a,b\n{SECRET},1\n".encode() * 9 + b"\xff\n", "utf-8", "and line 19 is not: name"),
    "wide without a mark": (f"town\n{SECRET}\n".encode("utf-16-le"), "utf-8", "name its --encod"),
    "narrow as wide": (
        f"town\n{SECRET}\n".encode(),
        "utf-16",
        "must be text in utf-16 .* line 1",
    ),
    "mark": (codecs.BOM_UTF8 + SECRET.encode(), "cp1252", "the mark of UTF-8: leave --encoding"),
    "no encoding": (SECRET, "utf-9", "--encoding must be an encoding of text, such as"),
    "no text": (SECRET, "hex", "--encoding must be an encoding of text, such as"),
    "empty": ("", "utf-8", "must begin with a header, .*, and has no line"),
    "blank": ("\n \n", "utf-8", "must begin with a header, .*, and has no line"),
    "semicolons": (f"town;age\n{SECRET};1,5\n", "utf-8", "its first line has semicolons"),
    "tabs": (f"town\tage\n{SECRET}\t1\n", "utf-8", "its first line has tabs"),
    "mixed": (f"town;age,b\n{SECRET};1;2\n", "utf-8", "has 1: its first line has semicolons"),
    "twice": (f"town,{SECRET},{SECRET}\n1,2,3\n", "utf-8", "columns 2 and 3 have one name"),
    "twice with spaces": ("a, a\n1,2\n", "utf-8", "columns 1 and 2 have one name"),
    "short": (f"a,b\n1,2\n{SECRET}\n", "utf-8", "ends in line 3 has 1"),
    "long": (f"a,b\n1,2,{SECRET}\n", "utf-8", "ends in line 2 has 3"),
    "open": (f'a,b\n1,2\n"{SECRET},2\n1,2\n1,2\n', "utf-8", "begins after line 2 has one"),
    "open and closed": (f'a,b\n"{SECRET},2\n1,2\n"x",2\n', "utf-8", "begins after line 1 has one"),
    "after a quote": (f'a,b\n"1"{SECRET},2\n', "utf-8", "a quote that begins a cell must end it"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_files_that_are_refused(tmp_path, name):
    content, encoding, said = REFUSED[name]
    with pytest.raises(ValueError, match=said) as refused:
        read(tmp_path, content, encoding)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


def test_tracebacks_have_no_local_variables():
    """Typer's own show them in some versions."""
    assert build_app(typer).pretty_exceptions_enable is False


def test_a_header_of_40_000_columns_is_checked_at_once(tmp_path):
    """Compared pair by pair it took 9 seconds."""
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{i}" for i in range(40_000)) + "\n")
    before = time.process_time()
    assert len(Records(path).names) == 40_000
    assert time.process_time() - before < 2.0
    path.write_text(",".join([*(f"c{i}" for i in range(40_000)), "c39999"]) + "\n")
    with pytest.raises(ValueError, match="columns 40000 and 40001 have one name"):
        Records(path)
