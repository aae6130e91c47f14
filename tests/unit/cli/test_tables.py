"""`jaxdp release`: a plan and a CSV file in, noisy numbers with their guarantee out."""

import csv
import json

import numpy as np
import pytest

import jaxdp as dp
from jaxdp.cli import tables

SECRET = "Hildegard"
PLAN = """
rho = 0.1
ledger = "{ledger}"

[columns.town]
categories = ["A", "B"]

[[release]]
statistic = "count"

[[release]]
statistic = "count"
by = "town"
noise = "laplace"

[[release]]
statistic = "mean"
column = "age"
lower = 0
upper = 100
"""


@pytest.fixture(scope="module")
def run(run):
    return lambda *arguments: run("release", *arguments)


@pytest.fixture
def files(tmp_path):
    """Data, plan and ledger."""
    rows = np.random.default_rng(0)
    with (tmp_path / "data.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["town", "age"])
        writer.writerows((rows.choice(["A", "B", "C"]), rows.integers(20, 60)) for _ in range(500))
    dp.Ledger(tmp_path / "ledger", dp.ZCDP(0.0, 0.2))
    (tmp_path / "plan.toml").write_text(PLAN.format(ledger=tmp_path / "ledger"))
    return tmp_path


def test_a_table_is_released_and_charged(run, files):
    asked = [files / "data.csv", "--plan", files / "plan.toml"]
    told = run(*asked, "--output", files / "out.json", "--json")
    assert told.exit_code == 0, told.output
    answer = json.loads(told.stdout)
    assert answer == json.loads((files / "out.json").read_text())
    assert (answer["rho"], "epsilon" in answer, answer["relation"]) == (0.1, False, "add_remove")
    assert 0 < answer["sampling_error"] < 1e-18
    assert answer["guarantee"].startswith("0.1-zero-concentrated differentially private (rho)")
    rows = {row["category"] or row["name"]: row for row in answer["rows"]}
    assert list(rows) == ["count", "A", "B", "mean of age"]
    assert abs(rows["count"]["value"] - 500) < 8 * rows["count"]["half_width"]
    assert abs(rows["mean of age"]["value"] - 40) < 10
    assert [step.name for step in dp.Ledger(files / "ledger").steps] == ["table"]
    assert [path.name for path in files.iterdir() if "partial" in path.name] == []


def test_a_table_is_written_as_csv(run, files):
    text = PLAN.replace("rho = 0.1", "epsilon = 1.0\ndelta = 1e-6").replace("laplace", "gaussian")
    (files / "plan.toml").write_text(text.format(ledger=files / "ledger"))
    told = run(files / "data.csv", "--plan", files / "plan.toml", "--output", files / "out.csv")
    assert told.exit_code == 0, told.output
    assert "(1, 1e-06)-differentially private" in told.stdout
    with (files / "out.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["category"] for row in rows] == ["", "A", "B", ""]
    assert {row["delta"] for row in rows} == {"1e-06"}
    shown = told.stdout.splitlines()[1].split()
    assert float(shown[1]) == float(rows[0]["value"])


def test_a_dry_run_reads_no_record_and_charges_nothing(run, files):
    told = run(files / "none.csv", "--plan", files / "plan.toml", "--dry-run", "--json")
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)["rows"]
    assert [row["noise"] for row in rows] == ["gaussian", "laplace", "gaussian"]
    assert rows[2]["standard_deviation"] == pytest.approx(50 * rows[0]["standard_deviation"])
    told = run(files / "none.csv", "--plan", files / "plan.toml", "--dry-run")
    assert "half_width" in told.stdout
    assert "to be divided by the number of records" in told.stdout
    assert "\neach half width holds with probability 0.95\n" in told.stdout
    assert dp.Ledger(files / "ledger").steps == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("upper = 100", "uper = 100", "plan: release 3: uper is not a key"),
        ("rho = 0.1", "rho = ", "Invalid value"),
        ('column = "age"', 'column = "ages"', "release 3: column must be a column of"),
    ],
)
def test_bad_plans_are_one_line_that_names_the_key(run, files, old, new, said):
    text = (files / "plan.toml").read_text()
    (files / "plan.toml").write_text(text.replace(old, new))
    told = run(files / "data.csv", "--plan", files / "plan.toml")
    assert told.exit_code == 2
    assert said in told.stderr
    assert told.stderr.count("\n") == 1
    assert dp.Ledger(files / "ledger").steps == ()


def test_bad_files_are_refused_before_anything_is_charged(run, files):
    asked = [files / "data.csv", "--plan", files / "plan.toml", "--output"]
    assert "--output must end in .csv or .json" in run(*asked, files / "out.txt").stderr
    assert run(*asked, files / "none" / "out.csv").exit_code == 1
    assert dp.Ledger(files / "ledger").steps == ()


def test_counts_of_a_file_in_another_encoding(run, files):
    text = (files / "data.csv").read_text().replace("C", "Zürich")
    (files / "data.csv").write_text(text, encoding="latin-1")
    asked = [files / "data.csv", "--plan", files / "plan.toml", "--json"]
    told = run(*asked)
    assert (told.exit_code, "--encoding" in told.stderr) == (2, True)
    assert run(*asked, "--encoding", "latin-1").exit_code == 0
    assert len(dp.Ledger(files / "ledger").steps) == 1


def test_an_output_is_a_new_file(run, files):
    """None of the inputs, nor a link to one."""
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    (files / "link.csv").symlink_to(files / "data.csv")
    for name, said in (("data.csv", "--output must be a new file"), ("link.csv", "is a link")):
        for more in ([], ["--dry-run"]):
            options = ["--plan", files / "plan.toml", "--output", files / name, *more]
            told = run(files / "data.csv", *options)
            assert told.exit_code == 2
            assert said in told.stderr
    assert {key: (files / key).read_bytes() for key in before} == before


def test_a_table_that_cannot_be_written_is_shown(run, files, monkeypatch):
    def fails(*arguments, **options):
        raise OSError(28, "disk full")

    monkeypatch.setattr(tables, "write_atomically", fails)
    options = ["--plan", files / "plan.toml", "--output", files / "out.json", "--json"]
    told = run(files / "data.csv", *options)
    assert told.exit_code == 1
    assert "disk full" in told.stderr
    assert len(json.loads(told.stdout)["rows"]) == 4


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (f"{SECRET},12\nA,3\n", "the first line must be a header"),
        (f'town,age\n"{SECRET},12\n', "quote"),
    ],
)
def test_no_message_shows_a_cell_or_a_first_record(run, files, content, said):
    (files / "data.csv").write_text(content)
    told = run(files / "data.csv", "--plan", files / "plan.toml")
    assert told.exit_code == 2
    assert said in told.stderr
    assert SECRET not in told.output
    assert told.stderr.count("\n") == 1
    assert dp.Ledger(files / "ledger").steps == ()


@pytest.mark.parametrize("error", [KeyError, RuntimeError])
def test_errors_of_others_are_their_type_alone(run, files, monkeypatch, error):
    def fails(*arguments, **options):
        raise error(SECRET)

    monkeypatch.setattr(tables, "Records", fails)
    told = run(files / "data.csv", "--plan", files / "plan.toml")
    assert isinstance(told.exception, SystemExit)
    assert told.exit_code > 0
    assert error.__name__ in told.stderr
    assert SECRET not in told.output


def test_a_table_by_two_columns_has_a_column_for_each(run, tmp_path):
    """Whose names may be those of other columns of the output."""
    (tmp_path / "plan.toml").write_text(
        """
rho = 1e6

[columns.town]
categories = ["A", "B"]

[columns.value]
bins = [0, 10, 20]
other = true

[[release]]
statistic = "count"
by = ["town", "value"]
margins = true
"""
    )
    (tmp_path / "data.csv").write_text("town,value\nA,5\nA,10\nB,20\nB,x\nB,\nC,1\n")
    asked = [tmp_path / "data.csv", "--plan", tmp_path / "plan.toml"]
    told = run(*asked, "--output", tmp_path / "out.csv")
    assert told.exit_code == 0, told.output
    with (tmp_path / "out.csv").open(newline="") as file:
        rows = [(r["town"], r["by value"], float(r["value"])) for r in csv.DictReader(file)]
    assert rows[:6] == [
        *(("A", "[0, 10)", 1.0), ("A", "[10, 20]", 1.0), ("A", "other", 0.0)),
        *(("B", "[0, 10)", 0.0), ("B", "[10, 20]", 1.0), ("B", "other", 2.0)),
    ]
    assert rows[6:8] == [("A", "", 2.0), ("B", "", 3.0)]
    assert rows[-1] == ("", "", 5.0)
    (tmp_path / "data.csv").write_text("town\nA\n")
    assert "release 1: column of cells must be a column of" in run(*asked).stderr


def test_no_text_of_a_csv_file_is_a_formula(run, tmp_path):
    """Labels, names and headers; numbers remain numbers."""
    labels = ["=1+1", "+x", "-x()", "@sum", "\uff1dA1", "-1", "+2.5", "-inf", "a=b", "'=c"]
    text = f'rho = 1e6\n[columns."=by"]\ncategories = {json.dumps(labels, ensure_ascii=False)}\n'
    text += '[[release]]\nstatistic = "count"\nby = "=by"\nname = "-count"\n'
    (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
    (tmp_path / "data.csv").write_text("=by\n=1+1\n")
    asked = [tmp_path / "data.csv", "--plan", tmp_path / "plan.toml", "--output"]
    assert run(*asked, tmp_path / "out.csv").exit_code == 0
    rows = [*csv.reader((tmp_path / "out.csv").read_text(encoding="utf-8").splitlines())]
    assert rows[0][:3] == ["name", "category", "'=by"]
    found = [row[2] for row in rows[1:]]
    escaped = {"=1+1", "+x", "-x()", "@sum", "\uff1dA1", "-inf"}
    assert found == [f"'{x}" if x in escaped else x for x in labels]
    assert {row[0] for row in rows[1:]} == {"'-count"}
    assert run(*asked, tmp_path / "out.json").exit_code == 0
    of_json = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [row["category"] for row in of_json] == labels
