"""A killed run of coordinate descent ends as if it had not been; files that are refused."""

import json
import os
import signal
import stat
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_descent import KEY, plan, problem

from jaxdp._core.random_key import stored_key
from jaxdp.solvers import coordinate_descent as cd
from jaxdp.solvers.coordinate_descent import checkpoint
from jaxdp.solvers.coordinate_descent.run import advance


def killed_after(calls):
    """`advance` that dies instead of its call number `calls`."""
    made = []

    def dies(*arguments):
        made.append(arguments)
        if len(made) > calls:
            raise KeyboardInterrupt
        return advance(*arguments)

    return dies


def states(path):
    return [json.loads(line.partition(b" ")[2]) for line in path.read_bytes().splitlines()]


def test_a_resumed_run_ends_in_the_same_theta(tmp_path, monkeypatch):
    whole = cd.run_resumable(problem(), plan(), tmp_path / "whole", KEY, every=4)
    np.testing.assert_allclose(whole, cd.run(problem(), plan(), KEY), rtol=1e-9)
    path = tmp_path / "killed"
    monkeypatch.setattr("jaxdp.solvers.coordinate_descent.checkpoint.advance", killed_after(1))
    with pytest.raises(KeyboardInterrupt):
        cd.run_resumable(problem(), plan(), path, KEY, every=4)
    monkeypatch.undo()
    assert [state.get("done") for state in states(path)] == [None, 4]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    resumed = cd.run_resumable(problem(), plan(), path, KEY, every=4)
    np.testing.assert_array_equal(resumed, whole)
    assert path.read_bytes() == (tmp_path / "whole").read_bytes()
    # A finished file answers without a pass, and belongs to its inputs alone.
    monkeypatch.setattr("jaxdp.solvers.coordinate_descent.checkpoint.advance", None)
    np.testing.assert_array_equal(cd.run_resumable(problem(), plan(), path, KEY, every=4), whole)
    for data, made, every, start in (
        (problem(seed=1), plan(), 4, None),
        (problem(), plan(passes=7), 4, None),
        (problem(), plan(), 3, None),
        (problem(), plan(), 4, np.ones(3)),
    ):
        with pytest.raises(ValueError, match="of another"):
            cd.run_resumable(data, made, path, KEY, every=every, start=start)


def test_whatever_a_kill_leaves_is_a_beginning_and_goes_on(tmp_path):
    path = tmp_path / "run"
    whole = cd.run_resumable(problem(), plan(), path, KEY, every=3)
    content = path.read_bytes()
    header = content.index(b"\n") + 1
    for size in (0, header, header + 1, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        resumed = cd.run_resumable(problem(), plan(), path, KEY, every=3)
        np.testing.assert_array_equal(resumed, whole)
        assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["run"]


def test_a_key_of_the_operating_system_is_kept_and_one_of_yours_is_not(tmp_path):
    path = tmp_path / "run"
    first = cd.run_resumable(problem(), plan(), path, every=6)
    np.testing.assert_array_equal(cd.run_resumable(problem(), plan(), path, every=6), first)
    other = cd.run_resumable(problem(), plan(), tmp_path / "other", every=6)
    assert np.any(np.asarray(other) != first)
    with pytest.raises(ValueError, match="key must be the one"):
        cd.run_resumable(problem(), plan(), path, KEY, every=6)
    mine = tmp_path / "mine"
    cd.run_resumable(problem(), plan(), mine, jax.random.PRNGKey(3), every=6)
    assert states(mine)[0]["key"] is None
    for key in (None, jax.random.PRNGKey(4), jax.random.key(3)):
        with pytest.raises(ValueError, match="key must be the one"):
            cd.run_resumable(problem(), plan(), mine, key, every=6)


@pytest.mark.parametrize("key", [KEY, None])
def test_a_file_that_was_changed_is_refused(tmp_path, monkeypatch, key):
    path = tmp_path / "run"
    cd.run_resumable(problem(), plan(), path, key, every=2)
    lines = path.read_bytes().splitlines(keepends=True)
    other = tmp_path / "other"
    cd.run_resumable(problem(), plan(), other, jax.random.key(8), every=2)
    theirs = other.read_bytes().splitlines(keepends=True)
    nan = np.full(3, np.nan).tobytes().hex().encode()
    theta = states(path)[-1]["theta"].encode()
    digit = b"8" if theta.startswith(b"7") else b"7"
    monkeypatch.setattr("jaxdp.solvers.coordinate_descent.checkpoint.advance", None)
    for changed in (
        [*lines[:-1], lines[-1].replace(b'"done": 6', b'"done": 2')],
        [*lines[:-1], lines[-1].replace(b'"done": 6', b'"done": "6"')],
        [*lines[:-1], lines[-1].replace(theta, nan)],
        [*lines[:-1], lines[-1].replace(theta, digit + theta[1:])],
        [lines[0], *lines[2:]],
        [lines[0], lines[2], lines[1], lines[3]],
        [lines[0], *theirs[1:]],
        [theirs[0], *lines[1:]],
        [lines[0].replace(b'"version": 3', b'"version": 1'), *lines[1:]],
        [lines[0].replace(b'"version": 3', b'"version": 3 '), *lines[1:]],
        [*lines, b"\n"],
        [b"{"],
        [b"\xff\n"],
        [b"a " + b"[" * 100_000 + b"\n"],
        *([b"a " + json.dumps(header).encode() + b"\n"] for header in FORGED),
    ):
        path.write_bytes(b"".join(changed))
        with pytest.raises(ValueError, match=r"^(path|key) must be"):
            cd.run_resumable(problem(), plan(), path, key, every=2)


_HEADER = {"format": "jaxdp coordinate descent", "version": 3, "inputs": "", "key": None}
FORGED = (
    [],
    3,
    {},
    _HEADER,
    *(
        _HEADER | {"key": held}
        for held in (
            7,
            {"words": [1, 2]},
            {"kind": "threefry2x32", "words": "ab"},
            {"kind": "threefry2x32", "words": [-1, 2]},
            {"kind": "threefry2x32", "words": [1 << 80, 2]},
            {"kind": "threefry2x32", "words": [[1.5], []]},
            {"kind": None, "words": [1, 2]},
            {"kind": "no", "words": [1, 2]},
            {"kind": 5, "words": [1, 2]},
            {"kind": "fry", "words": [1, 2, 3]},
        )
    ),
)


def test_lines_of_a_forger_who_knows_the_key_are_checked_as_well(tmp_path):
    path, secret = tmp_path / "run", checkpoint._secret(KEY)
    cd.run_resumable(problem(), plan(), path, KEY, every=6)
    first = path.read_bytes().splitlines(keepends=True)[0]
    for body in (
        7,
        {},
        {"done": 6},
        {"done": 6, "theta": 1.0},
        {"done": 6, "theta": "zz"},
        {"done": 6, "theta": "00" * 7},
        {"done": 6, "theta": "00" * 16},
        {"done": 1e400, "theta": "00" * 24},
        {"done": 2, "theta": "00" * 24},
    ):
        text = json.dumps(body).encode()
        code = checkpoint._code(first[:64], text, secret)
        path.write_bytes(first + code + b" " + text + b"\n")
        with pytest.raises(ValueError, match="path must be a file of run_resumable"):
            cd.run_resumable(problem(), plan(), path, KEY, every=6)


@pytest.mark.parametrize("content", [b"a\nb", b"{}\n\nnotes", b"no end"])
def test_a_file_of_something_else_is_refused_and_left_as_it_is(tmp_path, content):
    path = tmp_path / "notes"
    path.touch(mode=0o600)
    path.write_bytes(content)
    with pytest.raises(ValueError, match="path must be a file of run_resumable"):
        cd.run_resumable(problem(), plan(), path, KEY)
    assert path.read_bytes() == content


def test_a_file_that_others_can_open_is_refused(tmp_path):
    path = tmp_path / "run"
    path.touch(mode=0o640)
    with pytest.raises(ValueError, match="no one else may open"):
        cd.run_resumable(problem(), plan(), path, KEY)
    assert path.read_bytes() == b""


@pytest.mark.parametrize("put", [None, b"another"])
def test_a_file_that_is_taken_away_ends_the_run(tmp_path, monkeypatch, put):
    """Whoever starts at that path meets no lock then: two would spend the budget."""
    path, made = tmp_path / "run", []

    def takes(*arguments):
        made.append(arguments)
        path.unlink()
        if put is not None:
            path.write_bytes(put)
        return advance(*arguments)

    monkeypatch.setattr("jaxdp.solvers.coordinate_descent.checkpoint.advance", takes)
    with pytest.raises(ValueError, match="removed or replaced"):
        cd.run_resumable(problem(), plan(), path, KEY)
    assert len(made) == 1


def test_a_lock_ends_with_its_process(tmp_path):
    """One that is killed as well: no file is left to say that there was a run."""
    path = tmp_path / "run"
    path.touch(mode=0o600)
    program = (
        "import fcntl, sys; held = open(sys.argv[1], 'r+b'); fcntl.flock(held, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-S", "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(ValueError, match="path must be free"):
            cd.run_resumable(problem(), plan(), path, KEY)
        assert path.read_bytes() == b""
        other.send_signal(signal.SIGKILL)
    cd.run_resumable(problem(), plan(), path, KEY)
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.long
def test_two_processes_never_run_on_one_file_and_a_killed_one_leaves_one_file(tmp_path):
    """The other one waits in its fourth pass, is met by this one, and killed there."""
    program = textwrap.dedent("""
        import sys
        import test_checkpoint as t
        def waits(*a):
            if a[4] == 3:
                print("in the fourth pass", flush=True)
                sys.stdin.read()
            return t.advance(*a)
        t.checkpoint.advance = waits
        t.cd.run_resumable(t.problem(), t.plan(), sys.argv[1])
    """)
    path = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"JAX_ENABLE_X64": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=os.path.dirname(os.path.dirname(__file__)),
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"in the fourth pass\n"
        with pytest.raises(ValueError, match="path must be free"):
            cd.run_resumable(problem(), plan(), path)
        other.send_signal(signal.SIGKILL)
    assert os.listdir(tmp_path) == ["run"]
    assert states(path)[-1]["done"] == 3
    held = states(path)[0]["key"]
    key = stored_key(jnp.array(held["words"], dtype=jnp.uint32), held["kind"])
    alone = cd.run_resumable(problem(), plan(), tmp_path / "alone", key)
    np.testing.assert_array_equal(cd.run_resumable(problem(), plan(), path), alone)
