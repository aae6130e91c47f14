"""The page "A yearly table": its plan and its commands, on files from a spreadsheet."""

import csv
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import jaxdp as dp
from jaxdp.cli import build_app

PAGE = (Path(__file__).parents[3] / "docs" / "yearly_table.md").read_text()
PLAN = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]
COMMANDS = [
    line
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("plan.toml").write_text(PLAN)
    random = np.random.default_rng(0)
    for year in (2025, 2026):
        size = 4000
        incomes = [f"{x:.2f}".replace(".", ",") for x in random.gamma(2.0, 25e3, size)]
        with Path(f"households-{year}.csv").open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file, delimiter=";")
            writer.writerow(["region", "size", "income", "moved"])
            for income in incomes:
                region = random.choice(["north", "south", "", "abroad"], p=[0.5, 0.4, 0.05, 0.05])
                known = income if random.random() < 0.8 else random.choice(["NA", ""])
                day = f"2025-{random.integers(1, 13):02}-15"
                writer.writerow([region, random.integers(1, 15), known, day])
    return tmp_path


def records(year):
    with Path(f"households-{year}.csv").open(encoding="utf-8-sig", newline="") as file:
        return [*csv.DictReader(file, delimiter=";")]


def published(year):
    with Path(f"table-{year}.csv").open(newline="") as file:
        return [*csv.DictReader(file)]


def test_the_page_makes_two_tables_and_shows_what_was_spent(folder):
    app, runner, shown = build_app(typer), CliRunner(), []
    for command in COMMANDS:
        program, *arguments = shlex.split(command)
        assert program == "jaxdp"
        told = runner.invoke(app, arguments)
        assert told.exit_code == 0, (command, told.output)
        shown.append(told.stdout)
    assert [x.split()[1] for x in COMMANDS] == [
        *("ledger", "release", "check", "release", "ledger", "release", "ledger")
    ]
    assert "half_width" in shown[1]
    assert "and the ledger has room" in shown[2]
    assert ["spent so far: rho 0.02;" in shown[4], "spent so far: rho 0.04;" in shown[6]] == [
        True
    ] * 2
    assert shown[6].count("household table") == 2
    ledger = dp.Ledger("households.ledger")
    assert len(ledger.charges) == 2
    assert ledger.would_fit(dp.ZCDP(0.0, 0.02))
    assert not ledger.would_fit(dp.ZCDP(0.0, 0.0201))
    for year in (2025, 2026):
        check_table(year)


def check_table(year):
    """Bars hold jointly at 95 %; twice the width once in a million."""
    rows, people = published(year), records(year)
    for row in rows:
        inside = people
        if row["region"]:
            of = {"other": ("", "abroad")}.get(row["region"], (row["region"],))
            inside = [p for p in inside if p["region"] in of]
        if row["size"]:
            sizes = {"[1, 2)": [1], "[2, 3)": [2], "[3, 12]": range(3, 13), "other": (13, 14)}
            inside = [p for p in inside if int(p["size"]) in sizes[row["size"]]]
        if row["moved"]:
            quarter = int(row["moved"][-1])
            inside = [p for p in inside if (int(p["moved"][5:7]) + 2) // 3 == quarter]
        if "income" in row["name"]:
            inside = [p for p in inside if p["income"] not in ("NA", "")]
        truth = len(inside)
        if row["name"].startswith("mean"):
            truth = np.mean([min(float(p["income"].replace(",", ".")), 150e3) for p in inside])
        assert abs(float(row["value"]) - truth) <= 2 * float(row["half_width"]), row
    assert len(rows) == 12 + 3 + 4 + 1 + 3 + 3 + 4
