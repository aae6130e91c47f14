"""`jaxdp ledger`: made with a budget, and printed as a table with times and digests."""

import hashlib
import json

import pytest

import jaxdp as dp

PLAN = """
name = "household table"
rho = 0.02
ledger = "{ledger}"

[[release]]
statistic = "count"
"""


@pytest.mark.parametrize(
    ("options", "budget"),
    [
        (["--gdp", 0.5], dp.GDP(0.5)),
        (["--epsilon", 1, "--delta", 1e-6], dp.Budget(1.0, 1e-6)),
        (["--epsilon", 1, "--delta", 0], dp.PureDP(1.0)),
    ],
)
def test_a_ledger_is_made(run, tmp_path, options, budget):
    told = run("ledger", tmp_path / "budget", "--create", *options, "--json")
    assert told.exit_code == 0, told.output
    assert dp.Ledger(tmp_path / "budget").budget == budget
    assert json.loads(told.stdout)["budget"]["kind"] == type(budget).__name__
    again = run("ledger", tmp_path / "budget", "--create", *options)
    assert again.exit_code == 2
    assert "there is a file" in again.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--create"], "give one budget"),
        (["--create", "--rho", 1, "--gdp", 1], "give one budget"),
        (["--create", "--rho", 0], "--rho must be above 0"),
        (["--create", "--gdp", "nan"], "--gdp must be above 0"),
        (["--create", "--rho", 1e-320], "budget must be 0, or above 2.2250738585072014e-308"),
        (["--create", "--epsilon", 1e-320, "--delta", 0], "budget must be 0, or above"),
        (["--create", "--epsilon", 1, "--delta", 2], "--delta must lie in [0, 1]"),
        (["--create", "--rho", 1, "--zcdp"], "--zcdp must be beside --epsilon, and --delta"),
        (["--create", "--epsilon", 1, "--delta", 0, "--zcdp"], "--zcdp must be beside --epsilon"),
        (["--rho", 1], "--rho is for --create"),
        (["--zcdp"], "--zcdp is for --create"),
        ([], "path must be an existing ledger"),
    ],
)
def test_bad_budgets_are_refused(run, tmp_path, options, said):
    told = run("ledger", tmp_path / "budget", *options)
    assert told.exit_code == 2
    assert said in told.stderr
    assert not (tmp_path / "budget").exists()


def test_a_release_is_in_the_ledger_with_its_plan_and_output(run, tmp_path):
    ledger, plan, output = (tmp_path / name for name in ("budget", "plan.toml", "out.csv"))
    plan.write_text(PLAN.format(ledger=ledger))
    assert run("ledger", ledger, "--create", "--rho", 0.05).exit_code == 0
    # So far apart that no noise makes two tables equal.
    for records in (2, 2000):
        (tmp_path / "data.csv").write_text("a\n" + "1\n" * records)
        output.unlink(missing_ok=True)
        told = run("release", tmp_path / "data.csv", "--plan", plan, "--output", output)
        assert told.exit_code == 0, told.output
    answer = json.loads(run("ledger", ledger, "--json").stdout)
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (plan, output)]
    first, second = answer["charges"]
    assert [charge["plan_sha256"] for charge in (first, second)] == [digests[0]] * 2
    assert second["outputs"] == [digests[1]] != first["outputs"]
    assert answer["spent"]["rho"] == pytest.approx(0.04)
    epsilon = answer["spent"]["epsilon"]
    assert epsilon == pytest.approx(float(dp.ZCDP(0.0, 0.04).epsilon(1e-6)), rel=1e-6)
    text = run("ledger", ledger).stdout
    assert "spent so far: rho 0.04; it implies (" in text
    assert text.count("household table  rho 0.02  " + digests[0][:12]) == 2
    assert digests[1][:12] in text
    assert second["time"][:10] in text
    shown = float(text.split("spent so far: rho 0.04; it implies (")[1].split(",")[0])
    assert epsilon <= shown <= epsilon * 1.001
    taken = run("release", tmp_path / "data.csv", "--plan", plan, "--output", output)
    assert taken.exit_code == 2
    assert "--output must be a new file" in taken.stderr
    output.unlink()
    full = run("release", tmp_path / "data.csv", "--plan", plan, "--output", output)
    assert full.exit_code == 2
    assert f"{ledger} has rho 0.01 left, and the table costs rho 0.02" in full.stderr
    assert len(dp.Ledger(ledger).charges) == 2
    ledger.write_text("nothing\n")
    assert run("ledger", ledger).exit_code == 2


def test_an_epsilon_and_a_delta_are_a_rho_in_words(run, tmp_path):
    """Numbers are shown rounded to the safe side, and the epsilon as it was given."""
    epsilon, delta = 0.3, 1e-9
    asked = ["--create", "--epsilon", epsilon, "--delta", delta, "--zcdp"]
    text = run("ledger", tmp_path / "budget", *asked).stdout
    rho = float(dp.largest_zcdp((epsilon, delta)).rho)
    assert f"({epsilon:g}, {delta:g})-differential privacy allows rho = {rho!r}" in text
    assert f"it implies ({epsilon:g}, {delta:g})-differential privacy" in text
    ledger = dp.Ledger(tmp_path / "budget")
    assert ledger.budget == dp.ZCDP(0.0, rho)
    ledger.charge(ledger.budget / 7, 3)
    text = run("ledger", tmp_path / "budget", "--delta", delta).stdout
    budget, spent, left = (
        float(text.split(f"{words}: rho ")[1].split(";")[0])
        for words in ("budget", "spent so far", "left")
    )
    assert rho <= budget <= rho * 1.001
    assert ledger.spent().rho <= spent <= ledger.spent().rho * 1.001
    assert 0.999 * ledger.remaining().rho <= left <= ledger.remaining().rho
