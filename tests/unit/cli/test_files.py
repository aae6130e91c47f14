"""Dialects, gzip, Parquet, files larger than a chunk; `check`."""

import csv
import gzip
import json
import re
import tomllib
import tracemalloc

import pytest

import jaxdp as dp
from jaxdp.cli import record_files
from jaxdp.cli.record_files import Records

SECRET = "Hildegard"
PLAN = """
rho = 1e8
missing = "drop"
ledger = "{ledger}"

[columns.region]
categories = ["N", "S"]
other = true

[columns.size]
bins = [0, 1.5, 10]

[[release]]
statistic = "count"
by = ["region", "size"]

[[release]]
statistic = "count"
column = "spent"
missing = "drop"

[[release]]
statistic = "mean"
column = "spent"
lower = 0
upper = 10
"""
ROWS = [["N", "1,4", "2,5"], ["S", "1,5", "0,25"], ["N", "10", "NA"], ["", "0,5", "7"]]


@pytest.fixture
def files(tmp_path):
    dp.Ledger(tmp_path / "ledger", dp.ZCDP(0.0, 3e8))
    (tmp_path / "plan.toml").write_text(PLAN.format(ledger=tmp_path / "ledger"))
    return tmp_path


def written(path, delimiter=";", encoding="utf-8-sig", opener=open, repeat=1):
    with opener(path, "wt", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(["region", "size", "spent"])
        writer.writerows(ROWS * repeat)


def numbers(told):
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)["rows"]
    return [round(row["value"], 2) for row in rows]


EXPECTED = [1, 1, 0, 1, 1, 0, 3, 3.25]


def test_semicolons_and_decimal_commas_and_gzip(run, files):
    dialect = ["--delimiter", ";", "--decimal", ","]
    for name, options, keys in (
        ("data.csv", dialect, {}),
        ("data.csv.gz", dialect, {"opener": gzip.open}),
        ("tabs.tsv", ["--delimiter", "tab", "--decimal", ","], {"delimiter": "\t"}),
    ):
        written(files / name, **keys)
        told = run("release", files / name, "--plan", files / "plan.toml", *options, "--json")
        assert numbers(told) == EXPECTED
    written(files / "data.csv")
    told = run("release", files / "data.csv", "--plan", files / "plan.toml")
    assert told.exit_code == 2
    assert 'semicolons, and cells must be separated by commas: add --delimiter ";"' in told.stderr


@pytest.mark.parametrize(
    ("mark", "options", "said"),
    [
        (",", ["--decimal", ","], "--decimal must be . or , and not the"),
        (",", ["--decimal", "'"], "--decimal must be . or ,"),
        *((",", ["--delimiter", x], "--delimiter must be a mark") for x in ("", "ab", "x")),
        ("|", ["--delimiter", ";"], 'separated by semicolons: add --delimiter "|"'),
    ],
)
def test_bad_marks_are_refused(run, files, mark, options, said):
    (files / "data.csv").write_text(f"region,size,spent\n{SECRET},1,2\n".replace(",", mark))
    told = run("release", files / "data.csv", "--plan", files / "plan.toml", *options)
    assert told.exit_code == 2
    assert said in told.stderr
    assert SECRET not in told.output


def test_a_gzip_file_that_is_none_or_cut_is_refused(tmp_path):
    path = tmp_path / "data.csv.gz"
    path.write_bytes(f"a,b\n{SECRET},1\n".encode())
    with pytest.raises(ValueError, match="must be a whole gzip file"):
        Records(path)
    written(path, ",", "utf-8", gzip.open, repeat=2000)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(ValueError, match="must be a whole gzip file"):
        [*Records(path).chunks()]


def test_chunks_hold_all_records_once(tmp_path, monkeypatch):
    written(tmp_path / "data.csv", ",", "utf-8", repeat=25)
    (whole,) = Records(tmp_path / "data.csv").chunks()
    assert len(whole["region"]) == 100
    for size in (1, 7, 50, 100, 101):
        monkeypatch.setattr(record_files, "CHUNK", size)
        found = [*Records(tmp_path / "data.csv").chunks({"spent"})]
        assert [x for chunk in found for x in chunk["spent"]] == whole["spent"]
        assert {name for chunk in found for name in chunk} == {"spent"}
        assert max(len(chunk["spent"]) for chunk in found) <= size
    (tmp_path / "data.csv").write_text("a,b\n")
    assert [*Records(tmp_path / "data.csv").chunks()] == [{"a": [], "b": []}]
    (tmp_path / "data.csv").write_text("a,b\n1,2\n1,2\n3\n")
    monkeypatch.setattr(record_files, "CHUNK", 2)
    with pytest.raises(ValueError, match="ends in line 4 has 1"):
        [*Records(tmp_path / "data.csv").chunks()]


def test_memory_does_not_grow_with_the_file(files, monkeypatch):
    """Forty chunks take a part of the memory that the same file takes as one chunk.

    The part is a fourth where a fortieth is due: other threads of the process allocate, too.
    """
    from jaxdp.tables.sums import Tally

    plan = dp.tables.plan(tomllib.loads((files / "plan.toml").read_text()))
    written(files / "data.csv", ";", repeat=2000)
    peaks = []
    for chunk_size in (200, 200, 10**6):  # the first call loads modules
        monkeypatch.setattr(record_files, "CHUNK", chunk_size)
        tally, source = Tally(plan.queries), Records(files / "data.csv", "utf-8", ";", ",")
        tracemalloc.start()
        for chunk in source.chunks({"region", "size", "spent"}, {"size", "spent"}):
            tally.add(chunk)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert tally.totals()[0] == [n * 2000 for n in (1, 1, 0, 1, 1, 0)]
    assert peaks[1] < peaks[2] / 4


@pytest.mark.parametrize("suffix", [".parquet", ".feather", ".arrow"])
def test_parquet_and_arrow(run, files, suffix):
    pyarrow, parquet, feather = (
        pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet", "pyarrow.feather")
    )
    cells = zip(*ROWS, strict=True)
    region, size, spent = (
        [None if x in ("", "NA") else x.replace(",", ".") for x in column] for column in cells
    )
    columns = {
        "region": pyarrow.array(region).dictionary_encode(),
        "size": [float(x) for x in size],
        "spent": [None if x is None else float(x) for x in spent],
    }
    write = {".parquet": parquet.write_table}.get(suffix, feather.write_feather)
    write(pyarrow.table(columns), files / f"data{suffix}")
    told = run("release", files / f"data{suffix}", "--plan", files / "plan.toml", "--json")
    assert numbers(told) == EXPECTED
    (files / f"data{suffix}").write_text(f"a,b\n{SECRET},1\n")
    told = run("release", files / f"data{suffix}", "--plan", files / "plan.toml")
    assert told.exit_code == 2
    assert f"must be a {suffix[1:]} file" in told.stderr
    assert SECRET not in told.output


def test_a_check_draws_and_charges_nothing(run, files):
    """And names the command that makes a ledger that is missing."""
    written(files / "data.csv", ",")
    asked = ["check", files / "plan.toml", files / "data.csv"]
    told = run(*asked)
    assert told.exit_code == 2
    assert (
        f"{files / 'data.csv'}, line 2: with --decimal . numbers must have no comma" in told.stderr
    )
    dialect = ["--delimiter", ";", "--decimal", ","]
    written(files / "data.csv")
    told = run(*asked, *dialect)
    assert told.exit_code == 0, told.output
    assert "would be accepted, and the ledger has room" in told.stdout
    assert dp.Ledger(files / "ledger").steps == ()
    for _ in range(3):
        run("release", files / "data.csv", "--plan", files / "plan.toml", *dialect)
    told = run(*asked, *dialect, "--json")
    assert told.exit_code == 2
    assert re.search("ledger has rho .* left, and the table costs rho 1e.08: nothing", told.stderr)
    (files / "ledger").unlink()
    told = run(*asked, *dialect)
    assert told.exit_code == 2
    assert f"make it with jaxdp ledger {files / 'ledger'} --create and its budget" in told.stderr
    assert not (files / "ledger").exists()


COMMAS = [";", ","]
MESSY = {
    "quoted line end": ('"N\nx",1,2\n\nS,1,abc\n', [], "line 5: column 'spent' must be of numbers"),
    "a unit": ("N,1,2\nS,1,5 kg\n", [], "line 3: .* record 2 has none: write a number without"),
    "thousands": ('N,1,"1,234"\n', [], "line 2: .* no comma, and record 1 of column 'spent' has"),
    "a point": ("N;1;1.234\n", COMMAS, "line 2: .* no point, and record 1 of column 'spent' has"),
    "no digit": ("N;1;.\n", COMMAS, "line 2: column 'spent' must be of numbers"),
    "both": ("N;1;1.234,5\n", COMMAS, "line 2: column 'spent' .* record 1 has none"),
    "bins": ("N;2;2\nS;1,4;2\n", [";"], "line 3: .* no comma, and record 2 of column 'size' has"),
    "no bin": ("N,small,2\n", [], "column 'size' must hold what its bins are.*: write 1234.5"),
    "more cells": (
        "N,1,2\nN,1,2,,\n",
        [],
        "record that ends in line 3 has 5: correct it, or the fi",
    ),
}


@pytest.mark.parametrize("name", MESSY)
def test_a_message_names_the_file_the_line_and_the_column(run, files, name):
    rows, dialect, said = MESSY[name]
    flags = [x for pair in zip(("--delimiter", "--decimal"), dialect, strict=False) for x in pair]
    header = "region,size,spent\n".replace(",", (*dialect, ",")[0])
    (files / "data.csv").write_text(header + rows)
    told = run("release", files / "data.csv", "--plan", files / "plan.toml", *flags)
    assert (told.exit_code, told.stderr.count("\n")) == (2, 1)
    assert str(files / "data.csv") in told.stderr
    assert re.search(said, told.stderr), told.stderr
    assert dp.Ledger(files / "ledger").steps == ()


def test_a_label_may_have_a_comma(run, tmp_path):
    plan = 'rho = 1e6\n[[release]]\nstatistic = "count"\ncolumn = "size"\nunknown_delta = 1e-9\n'
    (tmp_path / "plan.toml").write_text(plan)
    (tmp_path / "data.csv").write_text("size\n" + '"1,5"\n2.5\n' * 50)
    told = run("release", tmp_path / "data.csv", "--plan", tmp_path / "plan.toml", "--json")
    assert told.exit_code == 0, told.output
    assert [row["category"] for row in json.loads(told.stdout)["rows"]] == ["1,5", "2.5"]
