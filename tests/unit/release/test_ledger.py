"""The budget's file: locked, chained, append only, refused when full."""

import json

import pytest

import jaxdp as dp


def test_what_is_charged_stays_and_what_is_too_much_is_refused(tmp_path):
    path = tmp_path / "budget"
    ledger = dp.Ledger(path, dp.ZCDP(0.0, 1.0))
    ledger.charge(dp.Mechanism(dp.Gaussian(2.0), 1.0), 4, "four")
    assert ledger.would_fit(dp.ZCDP(0.0, 0.499))
    before = path.read_bytes()
    with pytest.raises(dp.BudgetExceededError):
        ledger.charge(dp.ZCDP(0.0, 0.51))
    assert path.read_bytes() == before
    again = dp.Ledger(path)
    assert [(s.name, s.count) for s in again.steps] == [("four", 4)]
    assert again.spent().rho == pytest.approx(0.5)
    assert again.remaining().rho == pytest.approx(0.5)
    assert again.digest == ledger.digest
    assert path.stat().st_mode & 0o077 == 0


def test_a_release_charges_before_it_draws(tmp_path):
    ledger = dp.Ledger(tmp_path / "budget", dp.GDP(1.0))
    mechanism = dp.Mechanism(dp.Gaussian(1.5), 1.0)
    mechanism.release(3.0, ledger=ledger)
    assert ledger.spent().mu > 2.0 / 3.0
    assert ledger.spent().mu < 2.0 / 3.0 * (1 + 1e-8)
    mechanism.release(3, ledger=ledger)
    with pytest.raises(dp.BudgetExceededError):
        dp.release(mechanism, 3.0, ledger=ledger)
    assert len(ledger.steps) == 2


def changed(lines):
    body = json.loads(lines[1])
    body["charge"][2] = 1
    return [lines[0], json.dumps(body), *lines[2:]]


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (changed, "was changed"),
        (lambda lines: [lines[0], *lines[2:]], "was changed"),
        (lambda lines: [lines[0], lines[2], lines[1]], "was changed"),
        (lambda lines: [*lines, '{"step": '], "must be a ledger"),
        (lambda lines: ["{}"], "ledger"),
        (lambda lines: ["[]"], "ledger"),
    ],
)
def test_a_changed_file_is_refused(tmp_path, edit, said):
    path = tmp_path / "budget"
    ledger = dp.Ledger(path, dp.GDP(1.0))
    ledger.charge(dp.GDP(0.1), 2)
    ledger.charge(dp.GDP(0.2))
    path.write_text("\n".join(edit(path.read_text().splitlines())) + "\n")
    with pytest.raises(ValueError, match=said):
        dp.Ledger(path)
    with pytest.raises(ValueError, match=said):
        ledger.charge(dp.GDP(0.1))


def test_half_a_line_and_a_missing_file_are_refused(tmp_path):
    path = tmp_path / "budget"
    dp.Ledger(path, dp.GDP(1.0))
    with path.open("a") as file:
        file.write("{")
    with pytest.raises(ValueError, match="ends within"):
        dp.Ledger(path)
    with pytest.raises(ValueError, match="found no"):
        dp.Ledger(tmp_path / "other")
    with pytest.raises(ValueError, match="budget must equal the ledger"):
        dp.Ledger(path.with_name("third"), dp.GDP(1.0)) and dp.Ledger(
            path.with_name("third"), dp.GDP(2.0)
        )
    with pytest.raises(ValueError, match="budget must be one"):
        dp.Filter(dp.Budget([1.0, 2.0], 1e-6))


def test_a_folder_is_no_ledger(tmp_path):
    """Nor is a path within a file, for whatever is kept in a file."""
    (tmp_path / "file").write_text("x")
    for budget in (None, dp.GDP(1.0)):
        with pytest.raises(ValueError, match=r"path must be a ledger, .* is a folder"):
            dp.Ledger(tmp_path, budget)
        with pytest.raises(ValueError, match=r"path must be a ledger, .* is inside a file"):
            dp.Ledger(tmp_path / "file" / "ledger", budget)
    with pytest.raises(ValueError, match=r"path must be an existing ledger, found no .*missing$"):
        dp.Ledger(tmp_path / "missing" / "ledger", dp.GDP(1.0))
    for kept in (dp.Filter(dp.GDP(1.0)), dp.privacy_loss(dp.GDP(1.0))):
        with pytest.raises(ValueError, match=r"path must be a file, .* is a folder"):
            kept.save(tmp_path)
        with pytest.raises(
            ValueError, match=r"path must be a file that save wrote, .* is a folder"
        ):
            type(kept).load(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"file"}
