"""`jaxdp plan`: a dialogue that writes a plan, and the commands that it proposes."""

import shlex
import tomllib

import pytest

import jaxdp as dp

ANSWERS = {
    "Name of the table [table]": "visits",
    "Ledger to charge: a file, or none [none]": "{ledger}",
    "Number of such tables that it has to pay for [1]": "2.5",
    "  give a whole number": "3",
    "Budget of all of them: epsilon and delta, or rho [1, 1e-6]": "one",
    "  give numbers, 1 or 2 of them": "2, 1e-8",
    "Level of the half widths [0.95]": "2",
    "  answer: level must lie in": "",
    "Must all half widths hold together at this level? [y/N]": "y",
    "Column region: skip, number, categories, bins, date, id [skip]": "text",
    "  answer: kind must be one of skip, number": "categories",
    "All public categories of region": '007, 0e1, "N, S", 0e2',
    "Column size: ": "bins",
    "Public edges of the bins of size": "5, 1",
    "  size: bins must increase": "0; 1,5; 10",
    "Column spent in EUR: ": "number",
    "Public bounds of spent in EUR": "10, 0",
    "  spent in EUR: upper must lie in": "0, 10",
    "Missing values of spent in EUR: drop, or": "11",
    "  answer: number must lie in [0, 10]": "0.5",
    "Column age: ": "number",
    "Public bounds of age": "0, 120",
    "Missing values of age: drop, or a public number in their place [drop]": "",
    "Column day: ": "date",
    "Unit of day: day, week, month, quarter, year [month]": "quarter",
    "First and last public date of day": "2025-01-01",
    "  day: last must be a date": "2025-01-01, 2025-12-31",
    "Column who: ": "id",
    "Records of one who (one person) that are used, at most [5]": "2",
    "Cells that one who may be in, with so many records in each, or all [all]": "0",
    "  answer: number must lie in [1": "3",
    "Column more: skip, number, categories, bins, date [skip]": "",
    "Group all statistics by one or more of region, size, day, or none [region]": "region, size",
}


def test_a_first_plan_is_made_of_answers(run, tmp_path, monkeypatch):
    """And reads the header alone: the rest of the file is no text. The printed commands work."""
    monkeypatch.chdir(tmp_path)
    data, plan = tmp_path / "the data.csv", tmp_path / "a plan.toml"
    header = b"region;size; spent in EUR ;age;day;who;more;\n"
    data.write_bytes(header + b"\n" * 10**6 + b"\xff\xfe")
    asked = ["plan", data.name, "--output", plan.name, "--delimiter", ";", "--decimal", ","]
    answers = "\n".join(ANSWERS.values()).format(ledger="of 3 years.ledger") + "\n"
    told = run(*asked, input=answers)
    assert told.exit_code == 0, told.output
    places = [told.output.index(words) for words in ANSWERS]
    assert places == sorted(places)
    made = dp.tables.plan(tomllib.loads(plan.read_text()))
    assert [query.name for query in made.queries] == [
        *("count by region, size", "count by day", "mean of spent in EUR by region, size"),
        *("count of age by region, size", "mean of age by region, size"),
    ]
    region, size = made.queries[0].cells
    assert region.names == ("007", "0e1", "N, S", "0e2", "other")
    assert size.names == ("[0, 1.5)", "[1.5, 10]", "other")
    assert (made.jointly, made.level) == (True, 0.95)
    assert (made.person, made.rows, made.max_cells) == ("who", 2, 3)
    assert made.ledger == "of 3 years.ledger"
    rows = '007;1,4;2,5;30;2025-02-01;a;;\n"N, S";;NA;;;b;;\n'
    data.write_bytes("\ufeff".encode() + header.replace(b"\n", b"\r\n") + rows.encode())
    commands = [shlex.split(line)[1:] for line in told.output.split("next:\n")[1].splitlines()]
    assert [command[0] for command in commands] == ["ledger", "check", "release"]
    for command in commands:
        done = run(*command)
        assert done.exit_code == 0, done.output
    ledger = dp.Ledger(str(made.ledger))
    assert isinstance(ledger.budget, dp.ZCDP)
    assert 0.999e-8 < ledger.budget.delta(2.0) <= 1e-8
    assert ledger.would_fit(dp.ZCDP(0.0, float(made.guarantee.exact.rho)), 2)
    again = run(*asked)
    assert (again.exit_code, "must be a new file" in again.stderr) == (2, True)
    data.write_text("1,2,3\n")
    told = run("plan", data, "--output", tmp_path / "new.toml")
    assert (told.exit_code, "must begin with a header" in told.stderr) == (2, True)


@pytest.mark.parametrize(
    ("budget", "keys"),
    [("", {"epsilon": 1, "delta": 1e-6}), ("0.02", {"rho": 0.02}), ("0,5; 1e-9", {"epsilon": 0.5})],
)
def test_a_plan_without_a_ledger_keeps_its_budget(run, tmp_path, budget, keys):
    data, plan = tmp_path / "-data.csv", tmp_path / "plan.toml"
    data.write_text("a\n")
    told = run("plan", "--output", plan, "--", data, input=f"\n\n{budget}\n\n\n\n")
    assert told.exit_code == 0, told.output
    made = tomllib.loads(plan.read_text())
    assert {key: made[key] for key in keys} == keys
    assert ("ledger" in made, made["release"]) == (False, [{"statistic": "count"}])


@pytest.mark.parametrize(
    ("budget", "charged", "part"),
    [
        (dp.ZCDP(0.0, 3e8), dp.ZCDP(0.0, 1e8), {"rho": 5e7}),
        (dp.Budget(1.0, 1e-6), None, {"epsilon": 0.25, "delta": 2.5e-7}),
    ],
)
def test_a_plan_for_a_ledger_that_is_there_has_a_part_of_what_remains(
    run, tmp_path, budget, charged, part
):
    ledger = dp.Ledger(tmp_path / "ledger", budget)
    if charged is not None:
        ledger.charge(charged)
    (tmp_path / "data.csv").write_text("a\n")
    dp.Ledger(tmp_path / "mu", dp.GDP(1.0))
    answers = f"\n{tmp_path / 'mu'}\n{tmp_path / 'ledger'}\n4\n\n\n\n"
    told = run("plan", tmp_path / "data.csv", "--output", tmp_path / "new.toml", input=answers)
    assert told.exit_code == 0, told.output
    assert "a plan needs some rho, or some epsilon and delta: give a new" in told.output
    assert charged is None or "ledger has rho 2e+08 left" in told.output
    assert "--create" not in told.output
    made = tomllib.loads((tmp_path / "new.toml").read_text())
    kept = {key: made[key] for key in part}
    assert kept == pytest.approx(part, rel=1e-9)
    cost = dp.Budget(**kept) if "delta" in kept else dp.ZCDP(0.0, kept["rho"])
    assert ledger.would_fit(cost, 4)
    assert not ledger.would_fit(cost, 5)
