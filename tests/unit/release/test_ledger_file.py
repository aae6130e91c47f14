"""The ledger's file under a full disk, two processes and many lines."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

import jaxdp as dp
from jaxdp.adaptive import ledger_file
from jaxdp.adaptive.steps import Step

resource = pytest.importorskip("resource")


class at_most:  # noqa: N801
    """No file grows beyond this size."""

    def __init__(self, size):
        self._size = size

    def __enter__(self):
        self._usual = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, self._usual[1]))

    def __exit__(self, *error):
        resource.setrlimit(resource.RLIMIT_FSIZE, self._usual)


def test_a_charge_that_is_cut_short_is_taken_back(tmp_path):
    """At every byte of a line: the file is as it was, and the next charge fits."""
    ledger = dp.Ledger(tmp_path / "budget", dp.PureDP(4.0))
    before = (tmp_path / "budget").read_bytes()
    dp.Ledger(tmp_path / "other", dp.PureDP(4.0)).charge(dp.PureDP(0.5), name="ages")
    line = len((tmp_path / "other").read_bytes()) - len(before)
    assert line > 100
    for room in range(line):
        with at_most(len(before) + room), pytest.raises(OSError, match="too large"):
            ledger.charge(dp.PureDP(0.5), name="ages")
        assert (tmp_path / "budget").read_bytes() == before
        assert ledger.steps == ()
    with at_most(len(before) + line):
        ledger.charge(dp.PureDP(0.5), name="ages")
    # Whole: it is read, and all but the time is the same.
    assert dp.Ledger(tmp_path / "budget").steps == dp.Ledger(tmp_path / "other").steps != ()


def test_a_budget_that_is_cut_short_is_taken_back(tmp_path):
    path = tmp_path / "budget"
    dp.Ledger(tmp_path / "whole", dp.PureDP(4.0))
    whole = (tmp_path / "whole").read_bytes()
    for room in range(len(whole)):
        with at_most(room), pytest.raises(OSError, match="too large"):
            dp.Ledger(path, dp.PureDP(4.0))
        assert path.read_bytes() == b""
    dp.Ledger(path, dp.PureDP(4.0))
    assert path.read_bytes() == whole


def test_nothing_is_released_by_a_charge_that_fails(tmp_path, monkeypatch):
    """Whatever fails, a write or the disk: neither a line nor a number comes out."""
    mechanism = dp.Mechanism(dp.DiscreteLaplace(2.0), 1.0)
    ledger = dp.Ledger(tmp_path / "budget", dp.PureDP(4.0))
    before = (tmp_path / "budget").read_bytes()
    # What is compiled under the limit would be cut short in JAX's cache, too, and read by others.
    dp.release(mechanism, 3)
    with at_most(len(before) + 40), pytest.raises(OSError, match="too large"):
        dp.release(mechanism, 3, ledger=ledger)

    def fails(descriptor, content=b""):
        calls.append(descriptor)
        if len(calls) == 1:
            raise OSError(5, "no disk")

    for name in ("write", "fsync"):
        calls = []
        with monkeypatch.context() as patched:
            patched.setattr(os, name, fails)
            with pytest.raises(OSError, match="no disk"):
                dp.release(mechanism, 3, ledger=ledger)
        assert (tmp_path / "budget").read_bytes() == before
    # A system may write less than it was given.
    write = os.write
    monkeypatch.setattr(os, "write", lambda d, content: write(d, content[:7]))
    dp.release(mechanism, 3, ledger=ledger)
    assert len(dp.Ledger(tmp_path / "budget").steps) == 1


def test_a_line_is_on_the_disk_before_noise_is_drawn(tmp_path, monkeypatch):
    """The whole line, and the folder's entry of a new file."""
    from jaxdp import released

    path, seen, fsync, added = tmp_path / "budget", [], os.fsync, released._added

    def watched(descriptor):
        at = os.readlink(f"/proc/self/fd/{descriptor}")
        seen.append((os.path.basename(at), path.read_bytes()))
        fsync(descriptor)

    def drawn(*arguments):
        seen.append(("noise", b""))
        return added(*arguments)

    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(released, "_added", drawn)
    ledger = dp.Ledger(path, dp.PureDP(4.0))
    assert seen == [("budget", path.read_bytes()), (tmp_path.name, path.read_bytes())]
    seen.clear()
    dp.release(dp.Mechanism(dp.DiscreteLaplace(2.0), 1.0), 3, ledger=ledger)
    assert seen == [("budget", path.read_bytes()), ("noise", b"")]
    assert len(ledger.steps) == 1


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


def test_two_processes_charge_one_after_the_other(tmp_path):
    """Two processes that both looked first would both take the rest of the budget."""
    path = tmp_path / "budget"
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
    bodies += [{"step": [f"{i}", [(0.125).hex()], 1]} for i in range(size)]
    digest, lines = "", []
    for body in bodies:
        digest = ledger_file._digest(digest, {**body, "version": 1})
        lines.append(json.dumps({**body, "version": 1, "digest": digest}))
    path.write_text("\n".join(lines) + "\n")


def test_a_charge_parses_what_is_new_alone(tmp_path, monkeypatch):
    path, parsed, loads = tmp_path / "budget", [], json.loads
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


def test_lines_that_were_read_are_compared(tmp_path):
    """Also lines that were taken off the end, and a line that keeps its length."""
    path = tmp_path / "budget"
    ledger = dp.Ledger(path, dp.PureDP(1.0))
    for _ in range(3):
        ledger.charge(dp.PureDP(0.25))
    lines = path.read_text().splitlines(keepends=True)
    for edit in (lines[:-1], [lines[0], lines[2], lines[1], lines[3]], [lines[0]]):
        path.write_text("".join(edit))
        for use in (lambda: ledger.charge(dp.PureDP(0.25)), lambda: ledger.steps):
            with pytest.raises(ValueError, match="was changed"):
                use()
    path.write_text("".join(lines))
    assert len(ledger.steps) == 3


def test_copies_of_a_ledger_read_one_file(tmp_path):
    import copy
    import pickle

    ledger = dp.Ledger(tmp_path / "budget", dp.PureDP(1.0))
    ledger.charge(dp.PureDP(0.25))
    for again in (copy.copy(ledger), copy.deepcopy(ledger), pickle.loads(pickle.dumps(ledger))):
        size = len(ledger.steps)
        again.charge(dp.PureDP(0.125))
        assert len(ledger.steps) == len(again.steps) == size + 1
    assert ledger.spent().epsilon_bound == 0.625
