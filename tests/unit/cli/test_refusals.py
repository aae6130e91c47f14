"""Help and refused calls: no JAX, the options' own names, an exit code that says what failed."""

import json
import re
from typing import get_args

import numpy as np
import pytest
import typer
from processes import run as process_output
from typer.testing import CliRunner

from jaxdp._core.neighbours import Relation, Sampling
from jaxdp.cli import base, build_app

TRAINING = "--sampling-prob 0.01 --steps 10"
NOISE = "epsilon --noise-multiplier"
SIZES = "--dataset-size 9 --batch-size 10 --epochs 1"
# By spaces, and what is said.
REFUSED = [
    (f"{NOISE} 0 --delta 0.1 {TRAINING}", "--noise-multiplier must lie in (0, inf], got 0"),
    (f"{NOISE} nan --delta 0.1 {TRAINING}", "--noise-multiplier must lie in (0, inf], got nan"),
    (f"{NOISE} 1 --delta 2 {TRAINING}", "--delta must lie in [0, 1], got 2"),
    (f"{NOISE} 1 --delta 0.1 {TRAINING} --epochs 2", "give either epochs or steps"),
    (f"{NOISE} 1 --delta 0.1 --steps 3", "--dataset-size and --batch-size or"),
    (f"{NOISE} 1 --delta 0.1 {TRAINING} --batch-size 10", "jaxdp epsilon: "),
    (f"delta --noise-multiplier 1 --epsilon -1 {TRAINING}", "--epsilon must be 0 or more"),
    (f"{NOISE} 1 --delta 0.1 {SIZES}", "--batch-size / --dataset-size must lie in [0, 1]"),
]


@pytest.mark.parametrize(("arguments", "named"), REFUSED)
def test_a_refusal_names_the_option(run, arguments, named):
    done = run(*arguments.split())
    assert done.exit_code == 2
    assert named in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "e-308" not in done.stderr


@pytest.mark.parametrize("columns", [64, 80, 120])
def test_help_breaks_between_words(columns):
    """Choices are in the help, and not in the column of kinds, which cuts them."""
    app = build_app(typer)
    runner = CliRunner(env={"COLUMNS": str(columns)})
    choices = {"epsilon": (*get_args(Relation), *get_args(Sampling))}
    for name, command in typer.main.get_command(app).commands.items():
        shown = runner.invoke(app, [name, "--help"]).stdout
        words = set(re.sub("[│╭╮╰╯─]", " ", shown).split())
        for parameter in command.params:
            assert set((parameter.help or "").split()) <= words, (name, parameter.name)
        for choice in choices.get(name, ()):
            assert re.search(rf"[ :]{choice}[,. ]", shown), choice


def test_help_imports_no_jax():
    """In one process: every call ends before anything would be computed."""
    calls = [["--help"], ["--version"], ["statement", "--help"], ["nosuch"]]
    code = (
        "import json, sys\n"
        "from jaxdp.cli import main\n"
        "for arguments in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['jaxdp', *arguments]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit:\n"
        "        pass\n"
        "    assert 'jax' not in sys.modules, arguments\n"
    )
    process_output(code, json.dumps(calls))


def test_a_budget_that_nothing_meets_exits_1_with_its_reason(run):
    done = run(*f"calibrate --epsilon 1 --delta 0 {TRAINING}".split())
    assert done.exit_code == 1
    assert "delta" in done.stderr
    assert "raise" in done.stderr
    assert not done.stdout


def test_arguments_of_functions_become_options(capsys):
    def told(message, error=ValueError):
        def fail():
            raise error(message)

        with pytest.raises(typer.Exit) as exit_:
            base.exit_on_error("delta", fail)
        return exit_.value.exit_code, " ".join(capsys.readouterr().err.split())

    assert told("out of time", RuntimeError) == (1, "jaxdp delta: out of time")
    for message, words in (
        ("sampling_prob must be less", "--sampling-prob must be less"),
        (
            "sampling_prob and batch_size: not sampling_probs, epsilon(1)",
            "--sampling-prob and --batch-size: not sampling_probs, epsilon(1)",
        ),
        ("delta must lie in (0, 1), got delta", "--delta must lie in (0, 1), got delta"),
        ("--noise-multiplier is one", "--noise-multiplier is one"),
    ):
        assert told(message) == (2, f"jaxdp delta: {words}")


def test_json_has_no_infinity():
    answer = {"a": np.inf, "b": [[1.0, -np.inf], [float("nan"), 2.0]], "c": [{"d": np.inf}], "e": 1}
    assert json.loads(base.as_text(answer)) == {
        "a": None,
        "a_is_infinite": True,
        "b": [[1.0, None], [None, 2.0]],
        "b_is_infinite": [[False, True], [False, False]],
        "c": [{"d": None, "d_is_infinite": True}],
        "e": 1,
    }
