"""A table that was paid for is neither lost nor replaced; what is no file is refused."""

import json
import os
import signal
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import jaxdp as dp
from jaxdp._core.files import write_atomically
from jaxdp.cli import build_app, tables
from jaxdp.cli.record_files import Records
from jaxdp.dpsgd.checkpoint import Checkpoint
from jaxdp.proof import command

PLAN = """
epsilon = 1.0
delta = 1e-6
noise = "discrete_laplace"
ledger = "budget"
[[release]]
statistic = "count"
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "data.csv").write_text("a\n1\n1\n")
    dp.Ledger("budget", (3.0, 1e-5))
    app, runner = build_app(typer), CliRunner()
    release = ["release", "data.csv", "--plan", "plan.toml"]
    return lambda *options: runner.invoke(app, [*release, *options])


def test_a_table_that_cannot_be_printed_lies_in_a_file(run, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "printed", lambda text: "No space left on device")
    told = run()
    assert told.exit_code == 1
    (charge,) = dp.Ledger("budget").charges
    (saved,) = tmp_path.glob("jaxdp-release-*.json")
    assert f"budget was charged (receipt {charge.receipt}); the table is in {saved}" in told.stderr
    assert len(json.loads(saved.read_text())["rows"]) == 1
    told = run("--output", "table.csv")
    assert "the table is in table.csv" in told.stderr
    assert (tmp_path / "table.csv").exists()


@pytest.fixture
def _interrupts():
    """Ctrl-C as in a terminal, also where the tests run in the background of a shell."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_interrupts")
def test_an_interrupt_waits_for_the_table(run, monkeypatch):
    """Sent right after the charge."""
    charge = dp.Ledger.charge

    def interrupted(*arguments, **options):
        receipt = charge(*arguments, **options)
        os.kill(os.getpid(), signal.SIGINT)
        return receipt

    monkeypatch.setattr(dp.Ledger, "charge", interrupted)
    told = run("--output", "table.csv")
    assert told.exit_code == 130
    assert "interrupted; budget was charged (receipt" in told.stderr
    assert "written to table.csv" in told.stdout
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("_interrupts")
def test_an_interrupt_before_the_charge_ends_at_once():
    with tables.Held(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_other_signals_wait_from_the_charge_on(name, monkeypatch):
    number, seen = getattr(signal, name), []
    monkeypatch.setattr(signal, "raise_signal", seen.append)
    before = signal.signal(number, signal.SIG_DFL)  # nohup ignores one
    try:
        with tables.Held() as held:
            held.waits = True
            os.kill(os.getpid(), number)
            assert (held.pending, seen) == (True, [])
        assert signal.getsignal(number) is signal.SIG_DFL
        with tables.Held():
            os.kill(os.getpid(), number)
        assert seen == [number]
        signal.signal(number, signal.SIG_IGN)
        with tables.Held():
            assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_no_released_table_is_replaced(run, tmp_path):
    assert run("--output", "table.csv").exit_code == 0
    content = (tmp_path / "table.csv").read_text()
    told = run("--output", "table.csv")
    assert told.exit_code == 2
    assert "--output must be a new file" in told.stderr
    assert (tmp_path / "table.csv").read_text() == content
    assert len(dp.Ledger("budget").charges) == 1


def others(folder):
    """What is there and is no plain file that may be written to."""
    plain = folder / "plain"
    plain.write_text("x")
    (folder / "link").symlink_to(plain)
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    (folder / "read_only").write_text("x")
    (folder / "read_only").chmod(0o444)
    return {name: folder / name for name in ("link", "folder", "pipe", "read_only")}


def test_only_plain_files_are_replaced(tmp_path):
    for name, path in others(tmp_path).items():
        with pytest.raises(ValueError, match="path must be a file"):
            write_atomically(path, "new")
        with pytest.raises(ValueError, match="path must be a file"):
            dp.Filter(dp.GDP(1.0)).save(path)
        assert os.path.lexists(path), name
    assert (tmp_path / "plain").read_text() == "x"
    write_atomically(tmp_path / "plain", "new")
    assert (tmp_path / "plain").read_text() == "new"


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null", "pipe", "folder"])
def test_what_is_no_file_is_no_ledger(tmp_path, name):
    """A pipe would be waited for, and /dev/zero never ends."""
    path = others(tmp_path).get(name, name)
    for budget in (None, dp.GDP(1.0)):
        with pytest.raises(ValueError, match=r"path must be a ledger, .* is a"):
            dp.Ledger(path, budget)
    with pytest.raises(ValueError, match="path must be a file that save wrote"):
        dp.Filter.load(path)


@pytest.mark.parametrize("name", ["/dev/zero", "pipe"])
def test_what_is_no_file_is_not_read(tmp_path, name):
    """A pipe would be waited for, and /dev/zero never ends."""
    path = Path(others(tmp_path).get(name, name))
    schedule = {"noise_multiplier": 1.0, "dataset_size": 9, "batch_size": 1, "steps": 1}
    training_plan = dp.dpsgd.plan(None, {"w": np.zeros(1)}, clip=1.0, **schedule)
    reads = [
        lambda: tables.read_plan(path),
        lambda: Records(path),
        lambda: command.run(str(path), "1", "0.1", None, False),
        lambda: dp.Ledger(tmp_path / "new", dp.GDP(1.0)).record_output("receipt", path),
        lambda: Checkpoint(path, training_plan, None),
    ]
    for read in reads:
        with pytest.raises(ValueError, match="is a pipe or a device"):
            read()
        (tmp_path / "new").unlink(missing_ok=True)


def test_a_ledger_that_may_only_be_read_is_read(tmp_path, monkeypatch):
    path = tmp_path / "budget"
    dp.Ledger(path, dp.GDP(1.0)).charge(dp.GDP(0.5))
    opened = os.open

    def only_read(file, flags, *rest, **options):
        if file == path and flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(13, "Permission denied", str(file))
        return opened(file, flags, *rest, **options)

    monkeypatch.setattr(os, "open", only_read)  # the superuser may write to any file
    ledger = dp.Ledger(path)
    assert float(ledger.spent().mu) == 0.5
    assert len(ledger.charges) == 1
    with pytest.raises(PermissionError):
        ledger.charge(dp.GDP(0.1))
