"""The command line, and the program where neither JAX nor NumPy is installed."""

import json
import re
import subprocess
import venv
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from processes import process

import jaxdp as dp
from jaxdp.proof import command
from jaxdp.proof.__main__ import main

ROOT = Path(dp.__file__).parent
LOSS = 10 * dp.privacy_loss(dp.Mechanism(dp.Laplace(5.0), 1.0))


@pytest.fixture
def files(tmp_path):
    """A loss, and a whole statement of it."""
    epsilon = float(LOSS.epsilon(1e-5))
    (tmp_path / "loss.json").write_text(LOSS.to_json())
    whole = {"epsilon": epsilon.hex(), "delta": "1e-5", "loss": json.loads(LOSS.to_json())}
    (tmp_path / "statement.json").write_text(json.dumps(whole))
    return tmp_path


def needed_by(*names):
    """These packages and what they need."""
    found, waiting = set(), [*names]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for line in metadata.requires(name) or ():
            if "extra ==" not in line and "platform" not in line:
                waiting.append(re.findall(r"^[\w.-]+", line)[0].lower())
    return found


def test_statements(files, capsys):
    for more, status, word in (
        (("statement.json",), 0, "Proved"),
        (("loss.json", "--epsilon", "1.5", "--delta", "1e-5"), 1, "Refuted"),
        (("loss.json", "--epsilon", "1.5"), 2, "delta must be given"),
        (("none.json",), 2, "none.json"),
    ):
        assert main([str(files / more[0]), *more[1:]]) == status
        assert word in "".join(capsys.readouterr())


def test_an_open_statement_and_json(files, capsys):
    loss = 3 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.25, "remove"))
    (files / "loss.json").write_text(loss.to_json())
    arguments = "--epsilon", "1", "--most-points", "16", "--json"
    middle = float(loss.delta(1.0)) * (1 - 1e-4)
    assert main([str(files / "loss.json"), "--delta", str(middle), *arguments]) == 3
    answer = json.loads(capsys.readouterr().out)
    assert answer["proved"] is None
    assert float(answer["lower"]) <= middle <= float(answer["upper"])


def test_most_points_bounds_exact_sums_and_is_never_ignored(files):
    loss = 300 * dp.privacy_loss(dp.Mechanism(dp.Laplace(100.0), 1.0))
    assert dp.verify(loss, 1.0, 1e-3).points == 301
    assert dp.verify(loss, 1.0, 1e-3, most_points=16).points <= 2 * 16
    with pytest.raises(ValueError, match="most_points must be at least 16, got 0"):
        command.run(str(files / "loss.json"), "1", "1e-5", 0, False)


def test_without_jax_and_numpy(files):
    """An environment of its own that has python-flint and typer alone."""
    home = files / "environment"
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    site = next((home / "lib").glob("python*")) / "site-packages"
    for name in needed_by("python-flint", "typer"):
        for path in metadata.distribution(name).files or ():
            top = metadata.distribution(name).locate_file(path.parts[0])
            if path.parts[0] != ".." and not (site / path.parts[0]).exists():
                (site / path.parts[0]).symlink_to(top)
    (site / "jaxdp").symlink_to(ROOT)
    code = "import importlib.util as u, sys; sys.exit(any(map(u.find_spec, ('jax', 'numpy'))))"
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(files)}

    def run(*arguments):
        command = [python, *map(str, arguments)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=variables, cwd=files
        )

    assert run("-c", code).returncode == 0
    for module in (("jaxdp.proof",), ("jaxdp", "verify")):
        done = run("-m", *module, files / "statement.json")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("Proved in ball arithmetic: ")


def test_a_line_of_a_statement():
    training = {"sampling_prob": 0.01, "steps": 1000}
    text = str(dp.dpsgd.statement(1.0, 1e-6, proof=True, **training))
    assert text.splitlines()[-1] == "Proved in ball arithmetic: delta(2.125) <= 1e-06."
    assert text.startswith(str(dp.dpsgd.statement(1.0, 1e-6, **training)))
    arguments = "--noise-multiplier", 1, "--delta", 1e-6, "--sampling-prob", 0.01, "--steps", 1000
    done = process("-m", "jaxdp", "statement", *arguments, "--proof")
    assert done.stdout.splitlines()[-1] == text.splitlines()[-1]


def test_without_the_extra():
    code = "import sys; sys.modules['flint'] = None; import jaxdp as dp; dp.verify"
    done = process("-c", code)
    assert "pip install 'jaxdp-privacy[verify]'" in done.stderr


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        (lambda: dp.privacy_loss(dp.ExponentialMechanism(0.5)), "exponential mechanism"),
        (
            lambda: dp.privacy_loss(
                dp.Mechanism(
                    dp.Gaussian(1.0),
                    1.0,
                    relation="remove",
                    sampling=dp.sampling.RandomAllocation(10),
                )
            ),
            "random allocation",
        ),
        (lambda: dp.privacy_loss(dp.Mechanism(dp.Subbotin(1.0, 1.5), 1.0)), "Subbotin"),
        (lambda: dp.privacy_loss(dp.PureDP(np.array([0.5, 1.0]))), "batch"),
    ],
)
def test_what_cannot_be_proved_says_so(loss, words):
    with pytest.raises(ValueError, match=words):
        dp.verify(loss(), 1.0, 1e-5)


@pytest.mark.parametrize(
    ("epsilon", "delta", "words"),
    [
        (-1.0, 0.1, "epsilon must be at least 0"),
        (1.0, 2.0, r"delta must lie in \[0, 1\]"),
        (float("nan"), 0.1, "epsilon must be a finite number"),
        ("x", 0.1, "epsilon must be"),
    ],
)
def test_bad_numbers(epsilon, delta, words):
    with pytest.raises(ValueError, match=words):
        dp.verify(dp.privacy_loss(dp.PureDP(0.5)), epsilon, delta)


def test_bad_files_end_in_a_sentence(files):
    """No traceback, and no repeated key, of which readers see the first."""
    for content, words in (
        ('{"loss": LOSS, "epsilon": "0x1p99999", "delta": "1e-5"}', "finite"),
        ('{"loss": LOSS, "epsilon": true, "delta": "1e-5"}', "epsilon must be"),
        ('{"loss": LOSS, "epsilon": [1], "delta": "1e-5"}', "epsilon must be"),
        ('{"loss": LOSS, "epsilon": 9, "epsilon": 1, "delta": "1e-5"}', "keys must differ"),
        ('{"loss": null, "epsilon": 9, "delta": "1e-5"}', "statement must hold"),
        ('{"loss": LOSS}', "epsilon must be given"),
    ):
        path = files / "bad.json"
        path.write_text(content.replace("LOSS", LOSS.to_json()))
        with pytest.raises(ValueError, match=words):
            command.run(str(path), None, None, None, False)


def test_changed_text_is_refused():
    text = dp.privacy_loss(dp.PureDP(0.5)).to_json()
    for bad in ("", "[]", text.replace("0x1.0000000000000p-1", "0x1.0000000000000p-2")):
        with pytest.raises(ValueError, match="statement must"):
            dp.verify(bad, 1.0, 0.1)
