"""The command line, and the program where neither JAX nor NumPy is installed."""

import json
import re
import subprocess
import venv
from decimal import Decimal
from fractions import Fraction
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import typer
from processes import process
from typer.testing import CliRunner

import jaxdp as dp
from jaxdp.cli import build_app
from jaxdp.proof import command
from jaxdp.proof.__main__ import main

ROOT = Path(dp.__file__).parent
PROVED = r"Proved in ball arithmetic: delta\([\d.]+\) <= 1e-06\."
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
    loss = 60 * dp.privacy_loss(dp.Mechanism(dp.Laplace(30.0), 1.0))
    assert dp.verify(loss, 1.0, 1e-3).points == 61
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
    training = {"sampling_prob": 0.01, "steps": 30}
    text = str(dp.dpsgd.statement(1.0, 1e-6, proof=True, **training))
    assert re.fullmatch(PROVED, text.splitlines()[-1])
    assert text.startswith(str(dp.dpsgd.statement(1.0, 1e-6, **training)))
    arguments = "--noise-multiplier 1 --delta 1e-6 --sampling-prob 0.01 --steps 30 --proof"
    done = CliRunner().invoke(build_app(typer), ["statement", *arguments.split()])
    assert done.stdout.splitlines()[-1] == text.splitlines()[-1]


def test_without_the_extra():
    code = "import sys; sys.modules['flint'] = None; import jaxdp as dp; dp.verify"
    done = process("-c", code)
    assert "pip install 'jaxdp-privacy[verify]'" in done.stderr


ALLOCATED = {"relation": "remove", "sampling": dp.sampling.RandomAllocation(10)}
UNPROVED = {
    "exponential mechanism": lambda: dp.ExponentialMechanism(0.5),
    "random allocation": lambda: dp.Mechanism(dp.Gaussian(1.0), 1.0, **ALLOCATED),
    "Subbotin": lambda: dp.Mechanism(dp.Subbotin(1.0, 1.5), 1.0),
    "batch": lambda: dp.PureDP(np.array([0.5, 1.0])),
}


@pytest.mark.parametrize("words", UNPROVED)
def test_what_cannot_be_proved_says_so(words):
    loss = dp.privacy_loss(UNPROVED[words]())
    with pytest.raises(ValueError, match=words):
        dp.verify(loss, 1.0, 1e-5)


TENTH = dp.privacy_loss(dp.PureDP(0.1))


@pytest.mark.parametrize(
    "exact", [0.1, Decimal("0.1"), Fraction(1, 10), "0.1", np.longdouble("0.1"), np.array([0.1])]
)
def test_numbers_of_every_type_are_exact(exact):
    """The least float that is at least .1 exceeds it; a pure loss of .1 has a delta below."""
    number = exact.item() if hasattr(exact, "item") else exact
    ratio = number if isinstance(number, str) else Fraction(*number.as_integer_ratio())
    assert dp.verify(TENTH, exact, 0).proved is (Fraction(ratio) >= Fraction(0.1))


def test_bounds_are_rounded_outwards():
    proof = dp.verify(TENTH, 0.0, 0.5)
    lower, upper = Fraction(proof.lower), Fraction(proof.upper)
    assert lower <= upper <= lower * (1 + Fraction(1, 10**15))


NO_NUMBERS = [None, True, [0.1], np.ones(2), 1j, Decimal("NaN"), float("nan"), "x", "1e999999999"]


@pytest.mark.parametrize(
    ("epsilon", "delta", "words"),
    [
        (-1.0, 0.1, "epsilon must be at least 0"),
        (1.0, 2.0, r"delta must lie in \[0, 1\]"),
        *((bad, 0.1, "epsilon must be a finite number") for bad in (*NO_NUMBERS, "1/0")),
    ],
)
def test_bad_numbers(epsilon, delta, words):
    with pytest.raises(ValueError, match=words):
        dp.verify(TENTH, epsilon, delta)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"loss": LOSS, "epsilon": "0x1p99999", "delta": "1e-5"}', "finite"),
        ('{"loss": LOSS, "epsilon": true, "delta": "1e-5"}', "epsilon must be"),
        ('{"loss": LOSS, "epsilon": [1], "delta": "1e-5"}', "epsilon must be"),
        ('{"loss": LOSS, "epsilon": 9, "epsilon": 1, "delta": "1e-5"}', "keys must differ"),
        ('{"loss": null, "epsilon": 9, "delta": "1e-5"}', "format must be"),
        ('{"loss": LOSS}', "epsilon must be given"),
        ("", "must be JSON"),
        ("[]", "format must be"),
    ],
)
def test_bad_files_end_in_a_sentence(tmp_path, content, words):
    """No traceback, and no repeated key, of which readers see the first."""
    path = tmp_path / "bad.json"
    path.write_text(content.replace("LOSS", LOSS.to_json()))
    numbers = ("1.0", "0.1") if content in ("", "[]") else (None, None)
    with pytest.raises(ValueError, match=words):
        command.run(str(path), *numbers, None, False)


def test_changed_text_is_refused():
    text = dp.privacy_loss(dp.PureDP(0.5)).to_json()
    changed = text.replace("0x1.0000000000000p-1", "0x1.0000000000000p-2")
    with pytest.raises(ValueError, match="it was changed"):
        dp.verify(changed, 1.0, 0.1)
