"""The budget's file: locked, chained, append only, refused when full, whole on a full disk."""

import contextlib
import copy
import datetime
import hashlib
import json
import os
import pickle
import subprocess
import sys
import threading
import time

import pytest

import jaxdp as dp
from jaxdp.adaptive import ledger_file
from jaxdp.adaptive.steps import Step

resource = pytest.importorskip("resource")

COUNT = dp.Mechanism(dp.DiscreteLaplace(2.0), 1.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget"


def test_what_is_charged_stays_and_what_is_too_much_is_refused(path):
    ledger = dp.Ledger(path, dp.ZCDP(0.0, 1.0))
    ledger.charge(dp.Mechanism(dp.Gaussian(2.0), 1.0), 4, "four")
    assert ledger.would_fit(dp.ZCDP(0.0, 0.499))
    before = path.read_bytes()
    said = r"what remains, rho 0\.\d+, got 3 x .*costs 3 x \(rho 0\.2\): 2 x would fit"
    with pytest.raises(dp.BudgetExceededError, match=said):
        ledger.charge(dp.ZCDP(0.0, 0.2), 3)
    assert path.read_bytes() == before
    again = dp.Ledger(path)
    assert [(s.name, s.count) for s in again.steps] == [("four", 4)]
    assert again.spent().rho == pytest.approx(0.5)
    assert again.remaining().rho == pytest.approx(0.5)
    assert again.digest == ledger.digest
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(ValueError, match="budget must equal the ledger"):
        dp.Ledger(path, dp.ZCDP(0.0, 2.0))


def changed(lines):
    body = json.loads(lines[1])
    body["charge"][2] = 1
    return [lines[0], json.dumps(body) + "\n", *lines[2:]]


# Edits of three lines, and what is said; by the ledger that has read them, too.
EDITS = [
    (changed, "was changed", "was changed"),
    (lambda x: [x[0], x[2]], "was changed", "was changed"),
    (lambda x: [x[0], x[2], x[1]], "was changed", "was changed"),
    (lambda x: x[:-1], None, "was changed"),
    (lambda x: [*x, '{"step": \n'], "must be a ledger", "must be a ledger"),
    (lambda x: [*x, "{"], "ends within", "ends within"),
    (lambda _: ["{}\n"], "ledger", "ledger"),
    (lambda _: ["[]\n"], "ledger", "ledger"),
]


@pytest.mark.parametrize(("edit", "of_new", "of_known"), EDITS)
def test_a_changed_file_is_refused(path, edit, of_new, of_known):
    """Lines taken off the end only by who has read them."""
    ledger = dp.Ledger(path, dp.GDP(1.0))
    ledger.charge(dp.GDP(0.1), 2)
    ledger.charge(dp.GDP(0.1))
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(edit(lines)))
    for use in (lambda: ledger.charge(dp.GDP(0.1)), lambda: ledger.steps):
        with pytest.raises(ValueError, match=of_known):
            use()
    if of_new is None:
        assert len(dp.Ledger(path).steps) == 1
    else:
        with pytest.raises(ValueError, match=of_new):
            dp.Ledger(path)
    path.write_text("".join(lines))
    assert len(ledger.steps) == 2


def test_a_ledger_has_a_place(tmp_path):
    """`test_results` has folders, pipes and devices."""
    (tmp_path / "file").write_text("x")
    for budget in (None, dp.GDP(1.0)):
        with pytest.raises(ValueError, match=r"path must be a ledger, .* is inside a file"):
            dp.Ledger(tmp_path / "file" / "ledger", budget)
    with pytest.raises(ValueError, match=r"path must be an existing ledger, found no .*missing$"):
        dp.Ledger(tmp_path / "missing" / "ledger", dp.GDP(1.0))
    assert {path.name for path in tmp_path.iterdir()} == {"file"}


def test_a_charge_has_a_time_a_plan_and_outputs(path, tmp_path):
    output = tmp_path / "table.csv"
    plan = {"rho": 0.1, "name": "households", "ledger": str(path)}
    plan = dp.tables.plan(plan | {"release": [{"statistic": "count"}]})
    ledger = dp.Ledger(path, dp.ZCDP(0.0, 1.0))
    before = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    table = dp.tables.release({"a": [1, 2]}, plan)
    other = ledger.charge(dp.ZCDP(0.0, 0.1), name="other")
    output.write_text("a table")
    sha256 = ledger.record_output(table.receipt, output)
    assert sha256 == hashlib.sha256(b"a table").hexdigest()
    first, second = dp.Ledger(path).charges
    assert (first.name, first.plan_sha256, first.outputs) == ("households", plan.sha256, (sha256,))
    time_of_first = datetime.datetime.fromisoformat(first.time)
    assert before <= time_of_first <= datetime.datetime.now(datetime.UTC)
    assert (second.receipt, second.plan_sha256, second.outputs) == (other, None, ())
    assert first == ledger.charges[0]
    assert len(ledger.steps) == 2
    with pytest.raises(ValueError, match="receipt must be of a charge"):
        ledger.record_output("0" * 64, output)
    with pytest.raises(ValueError, match="plan_sha256 must be 64 hexadecimal digits"):
        ledger.charge(dp.ZCDP(0.0, 0.1), plan_sha256="x")
    path.write_text(path.read_text().replace(sha256, "0" * 64))
    with pytest.raises(ValueError, match="was changed"):
        dp.Ledger(path)


@contextlib.contextmanager
def at_most(size):
    """No file grows beyond this size."""
    usual = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)


def test_a_line_that_is_cut_short_is_taken_back(path, tmp_path):
    """At every byte of a charge: the file is as it was, and the next charge fits."""
    whole = tmp_path / "whole"
    dp.Ledger(whole, dp.PureDP(4.0))
    before = whole.read_bytes()
    for room in (0, 1, len(before) - 1):
        with at_most(room), pytest.raises(OSError, match="too large"):
            dp.Ledger(path, dp.PureDP(4.0))
        assert path.read_bytes() == b""
    ledger = dp.Ledger(path, dp.PureDP(4.0))
    dp.Ledger(whole).charge(dp.PureDP(0.5), name="ages")
    line = len(whole.read_bytes()) - len(before)
    assert line > 100
    for room in range(line):
        with at_most(len(before) + room), pytest.raises(OSError, match="too large"):
            ledger.charge(dp.PureDP(0.5), name="ages")
        assert path.read_bytes() == before
        assert ledger.steps == ()
    with at_most(len(before) + line):
        ledger.charge(dp.PureDP(0.5), name="ages")
    # Whole: it is read, and all but the time is the same.
    assert dp.Ledger(path).steps == dp.Ledger(whole).steps != ()


def test_nothing_is_released_by_a_charge_that_fails(path, monkeypatch):
    """Whatever fails, a write or the disk: neither a line nor a number comes out."""
    ledger = dp.Ledger(path, dp.PureDP(4.0))
    before = path.read_bytes()

    def fails(descriptor, content=b""):
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(5, "no disk")

    for name in ("write", "fsync"):
        calls = []
        with monkeypatch.context() as patched:
            patched.setattr(os, name, fails)
            with pytest.raises(OSError, match="no disk"):
                dp.release(COUNT, 3, ledger=ledger)
        assert path.read_bytes() == before
    # A system may write less than it was given.
    write = os.write
    monkeypatch.setattr(os, "write", lambda d, content: write(d, content[:7]))
    dp.release(COUNT, 3, ledger=ledger)
    assert len(dp.Ledger(path).steps) == 1


def test_a_line_is_on_the_disk_before_noise_is_drawn(path, monkeypatch):
    """The whole line, and the folder's entry of a new file."""
    from jaxdp import released

    seen, fsync, added = [], os.fsync, released._added

    def watched(descriptor):
        at = os.readlink(f"/proc/self/fd/{descriptor}")
        seen.append((os.path.basename(at), path.read_bytes()))
        fsync(descriptor)

    def drawn(*arguments):
        seen.append(("noise", b""))
        return added(*arguments)

    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(released, "_added", drawn)
    ledger = dp.Ledger(path, dp.GDP(1.0))
    assert seen == [("budget", path.read_bytes()), (path.parent.name, path.read_bytes())]
    seen.clear()
    mechanism = dp.Mechanism(dp.Gaussian(1.5), 1.0)
    mechanism.release(3.0, ledger=ledger)
    assert seen == [("budget", path.read_bytes()), ("noise", b"")]
    # With the rounding to the lattice.
    assert 2.0 / 3.0 < ledger.spent().mu < 2.0 / 3.0 * (1 + 1e-8)
    mechanism.release(3, ledger=ledger)
    with pytest.raises(dp.BudgetExceededError):
        dp.release(mechanism, 3.0, ledger=ledger)
    assert len(ledger.steps) == 2


# Charges; between the look and the line it waits for a word.
CHARGES = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
import jaxdp as dp
from jaxdp.adaptive import ledger_file
append = ledger_file._append
def slow(*arguments):
    print("has looked", flush=True)
    sys.stdin.readline()
    append(*arguments)
ledger_file._append = slow
dp.Ledger(sys.argv[1]).charge(dp.PureDP(1.0), name="other")
"""


def test_two_processes_charge_one_after_the_other(path):
    """Two processes that both looked first would both take the rest of the budget."""
    ledger = dp.Ledger(path, dp.PureDP(1.5))
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", CHARGES, str(path)], **pipes) as other:
        assert other.stdout.readline() == "has looked\n"
        refused = []

        def work():
            try:
                ledger.charge(dp.PureDP(1.0), name="this")
            except dp.BudgetExceededError as error:
                refused.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join(0.3)
        waited = thread.is_alive()
        other.stdin.write("\n")
        other.stdin.close()
        assert other.wait(timeout=60) == 0
        thread.join()
    assert waited
    assert len(refused) == 1
    assert [step.name for step in dp.Ledger(path).steps] == ["other"]


def write_lines(path, size):
    """A ledger of so many charges, written at once."""
    budget = dp.Filter(dp.PureDP(1e6)).to_json()
    bodies = [{"format": "jaxdp-ledger", "filter": budget}]
    bodies += [{"charge": [f"{i}", ["0.125"], 1], "time": "now"} for i in range(size)]
    digest, lines = "", []
    for body in bodies:
        digest = ledger_file._digest(digest, {**body, "version": 1})
        lines.append(json.dumps({**body, "version": 1, "digest": digest}))
    path.write_text("\n".join(lines) + "\n")


def test_a_charge_parses_what_is_new_alone(path, monkeypatch):
    parsed, loads = [], json.loads
    monkeypatch.setattr(json, "loads", lambda *x, **y: parsed.append(1) or loads(*x, **y))
    write_lines(path, 200)
    ledger, other = dp.Ledger(path), dp.Ledger(path)
    other.charge(dp.PureDP(0.125))
    parsed.clear()
    ledger.charge(dp.PureDP(0.125))
    assert len(parsed) <= 3
    assert len(ledger.steps) == 202
    assert len(parsed) <= 4
    assert ledger.spent().epsilon_bound == 202 / 8
    assert ledger.digest == dp.Ledger(path).digest


def test_reading_is_linear_in_the_lines():
    """16 times the steps take 16 times as long, and 100 times with a copy of the steps at each.

    The least of three times each: other programs slow some down. 40 single ratios: 14.7 to 18.5.
    """

    def seconds(size):
        steps, started = [Step("", (0.125,), 1)] * size, time.process_time()
        dp.Filter(dp.PureDP(1e6))._take(steps)
        return time.process_time() - started

    few, many = (min(seconds(size) for _ in range(3)) for size in (4000, 64_000))
    assert many < 40 * few


def test_copies_of_a_ledger_read_one_file(path):
    ledger = dp.Ledger(path, dp.PureDP(1.0))
    ledger.charge(dp.PureDP(0.25))
    for again in (copy.copy(ledger), copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger))):
        size = len(ledger.steps)
        again.charge(dp.PureDP(0.125))
        assert len(ledger.steps) == len(again.steps) == size + 1
    assert ledger.spent().epsilon_bound == 0.625
