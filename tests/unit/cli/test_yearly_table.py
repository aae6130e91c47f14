"""The page "A yearly table": its dialogue, its plan and its commands, on files of a spreadsheet."""

import csv
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import jaxdp as dp
from jaxdp.cli import build_app

PAGE = (Path(__file__).parents[3] / "docs" / "yearly_table.md").read_text()
(PLAN,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
_, DIALOGUE = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
# A question ends with a colon and, where it has a default, brackets.
ANSWERS = [line.rpartition(": ")[2] if ": " in line else "" for line in DIALOGUE.splitlines()]
ANSWERS = ["" if answer.endswith("]:") else answer for answer in ANSWERS]
COMMANDS = [
    line
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
REGIONS = ["007", "0e1", "0e2", "", "7"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for year in (2025, 2026):
        size = 2000
        incomes = [f"{x:.2f}".replace(".", ",") for x in random.gamma(2.0, 25e3, size)]
        with Path(f"households-{year}.csv").open("w", encoding="utf-8-sig", newline="") as file:
            writer = csv.writer(file, delimiter=";")
            writer.writerow(["region", "size", "income", "moved"])
            for income in incomes:
                region = random.choice(REGIONS, p=[0.5, 0.3, 0.1, 0.05, 0.05])
                known = income if random.random() < 0.8 else random.choice(["NA", ""])
                day = f"{year}-{random.integers(1, 13):02}-15"
                writer.writerow([region, random.integers(1, 15), known, day])
    return tmp_path


def records(year):
    with Path(f"households-{year}.csv").open(encoding="utf-8-sig", newline="") as file:
        return [*csv.DictReader(file, delimiter=";")]


def published(year):
    with Path(f"table-{year}.csv").open(newline="") as file:
        return [*csv.DictReader(file)]


def run(line, answers=""):
    """Exit code and text of a command of the page."""
    program, *arguments = shlex.split(line)
    if program != "jaxdp":
        return subprocess.run(line, shell=True, check=False).returncode, ""
    told = CliRunner().invoke(build_app(typer), arguments, input=answers)
    return told.exit_code, told.output


def test_the_page_makes_two_tables_and_shows_what_was_spent(folder):
    shown = []
    for i, command in enumerate(COMMANDS):
        code, text = run(command, "\n".join([*ANSWERS, ""]) if i == 0 else "")
        assert code == 0, (command, text)
        shown.append(text)
    # The dialogue is the page's, and proposes the page's commands.
    questions = [line.rpartition(":")[0] for line in DIALOGUE.splitlines()]
    assert [question for question in questions if question not in shown[0]] == []
    written = Path("plan-2025.toml").read_text()
    assert [*filter(lambda line: line[:1] != "#", written.splitlines())] == PLAN.splitlines()
    proposed = [shlex.split(line) for line in shown[0].split("next:\n")[1].splitlines()]
    page = [shlex.split(command) for command in COMMANDS]
    proposed[0][7] = "1e-6"
    assert proposed == [page[1], page[3], [*page[4][:-1], "released-households-2025.csv"]]
    assert "allows rho = 0.0243559703595382" in shown[1]
    assert "it implies (1, 1e-06)-differential privacy" in shown[1]
    assert "all half widths hold together with probability 0.95" in shown[2]
    assert "and the ledger has room" in shown[3]
    assert "spent so far: rho 0.008119;" in shown[5]
    assert "spent so far: rho 0.01624;" in shown[9]
    assert [*map(shown[9].count, ("households 2025 ", "households 2026 "))] == [1, 1]
    for year in (2025, 2026):
        check_table(year)
    check_that_more_is_refused()


def check_that_more_is_refused():
    """Nothing is charged or written."""
    before = Path("households.ledger").read_bytes()
    plan = re.sub("rho = .*", "rho = 0.01", Path("plan-2026.toml").read_text())
    Path("plan-2027.toml").write_text(plan)
    for command in (COMMANDS[7], COMMANDS[8]):
        line = command.replace("plan-2026", "plan-2027").replace("table-2026", "table-2027")
        code, text = run(line)
        assert code == 2
        assert "households.ledger has rho 0.008118 left, and the table costs rho 0.01:" in text
    assert Path("households.ledger").read_bytes() == before
    assert not Path("table-2027.csv").exists()
    assert len(dp.Ledger("households.ledger").charges) == 2


def check_table(year):
    """Bars hold jointly at 95 %; twice the width, 6.8 deviations, in all but 1 of 1e9 runs."""
    rows, people = published(year), records(year)
    regions = {"other": ("", "7"), "": ("", *REGIONS)}
    for row in (row for row in rows if not row["size"] and not row["moved"]):
        inside = [p for p in people if p["region"] in regions.get(row["region"], (row["region"],))]
        if "income" in row["name"]:
            inside = [p for p in inside if p["income"] not in ("NA", "")]
        truth = len(inside)
        if row["name"].startswith("mean"):
            truth = np.mean([min(float(p["income"].replace(",", ".")), 150e3) for p in inside])
        if row["value"]:
            assert abs(float(row["value"]) - truth) <= 2 * float(row["half_width"]), row
        else:  # the bounds of an income
            assert (row["name"][:4], float(row["half_width"])) == ("mean", 150e3), row
    assert len(rows) == 3 * 25 + 5
