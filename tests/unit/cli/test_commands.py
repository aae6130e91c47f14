"""Questions about DP-SGD in words and in JSON; help without JAX, refusals, exit codes."""

import json
import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import typer
from processes import run as process_output
from typer.testing import CliRunner

import jaxdp as dp
from jaxdp._core.neighbours import Relation, Sampling
from jaxdp.cli import EXAMPLES, base, build_app

TRAINING = ["--sampling-prob", "0.01", "--steps", "1000"]


def test_epsilon_in_both_languages(run):
    asked = ["epsilon", "--noise-multiplier", "1.0", "--delta", "1e-6"]
    short = run(*asked, *TRAINING, "--json")
    sizes = ["--dataset-size", "50000", "--batch-size", "500", "--epochs", "10"]
    long = run(*asked, *sizes, "--json")
    assert (short.exit_code, long.exit_code) == (0, 0)
    found = json.loads(short.stdout)
    expected = float(dp.dpsgd.epsilon(1.0, 1e-6, sampling_prob=0.01, steps=1000))
    assert found["epsilon"] == expected == json.loads(long.stdout)["epsilon"]
    assert found["relation"] == "add_remove"
    told = float(run(*asked, *TRAINING).stdout.split()[2])
    assert expected <= told < expected * (1 + 1e-5)


def test_delta_and_the_noise_that_keeps_to_it(run):
    noise = run("calibrate", "--epsilon", "2", "--delta", "1e-6", *TRAINING, "--json")
    multiplier = json.loads(noise.stdout)["noise_multiplier"]
    back = run("delta", "--noise-multiplier", str(multiplier), "--epsilon", "2", *TRAINING)
    assert float(back.stdout.split("=")[1]) == pytest.approx(1e-6, rel=1e-5)
    told = run("calibrate", "--epsilon", "2", "--delta", "1e-6", *TRAINING).stdout
    assert float(told.split("=")[1]) >= multiplier


def test_what_is_infinite_is_json_too(run):
    none = ["epsilon", "--noise-multiplier", "1.0", "--delta", "0", *TRAINING]
    told = run(*none, "--json").stdout
    assert "Infinity" not in told
    assert "inf" not in told.replace("is_infinite", "")
    found = json.loads(told)
    assert (found["epsilon"], found["epsilon_is_infinite"]) == (None, True)
    assert run(*none).stdout == "epsilon = inf nats\n"


STATEMENT = ["statement", "--noise-multiplier", "1.0", "--delta", "1e-6", *TRAINING]


def test_a_statement_is_proved_as_it_is_printed(run, tmp_path):
    words = run(*STATEMENT)
    assert words.exit_code == 0
    text = dp.dpsgd.statement(1.0, 1e-6, sampling_prob=0.01, steps=1000)
    assert words.stdout.split() == str(text).split()
    assert max(map(len, words.stdout.splitlines())) <= 80
    path = tmp_path / "statement.json"
    path.write_text(run(*STATEMENT, "--json").stdout)
    fields = json.loads(path.read_text())
    assert tuple(fields[name] for name in ("epsilon", "delta", "mu", "advantage")) == text[:4]
    assert tuple(fields["sentences"]) == text.sentences
    assert fields["statement"] == str(text)
    assert dp.PrivacyLoss.from_json(json.dumps(fields["loss"])).relation == "add_remove"
    done = run("verify", str(path), "--json")
    assert (done.exit_code, json.loads(done.stdout)["proved"]) == (0, True)
    smaller = run("verify", str(path), "--epsilon", str(0.99 * fields["epsilon"]))
    assert smaller.exit_code == 1


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_example_of_a_help_is_a_command(run, name):
    command = typer.main.get_command(build_app(typer)).commands[name]
    with command.make_context(name, EXAMPLES[name].split()) as context:
        assert context.args == []
    shown = " ".join(run(name, "--help").stdout.split())
    assert f"Example: jaxdp {name} {EXAMPLES[name]}"[:40] in shown


def test_the_readme_lists_the_commands():
    text = (Path(__file__).parents[3] / "README.md").read_text()
    listed = re.findall(r"with `--json` for programs: (.*?):\n", text, flags=re.DOTALL)[0]
    assert {name.removeprefix("jaxdp ") for name in re.findall("`(.*?)`", listed)} == {*EXAMPLES}


TEN_STEPS = "--sampling-prob 0.01 --steps 10"
NOISE = "epsilon --noise-multiplier"
SIZES = "--dataset-size 9 --batch-size 10 --epochs 1"
# By spaces, and what is said.
REFUSED = [
    (f"{NOISE} 0 --delta 0.1 {TEN_STEPS}", "--noise-multiplier must lie in (0, inf], got 0"),
    (f"{NOISE} nan --delta 0.1 {TEN_STEPS}", "--noise-multiplier must lie in (0, inf], got nan"),
    (f"{NOISE} 1 --delta 2 {TEN_STEPS}", "--delta must lie in [0, 1], got 2"),
    (f"{NOISE} 1 --delta 0.1 {TEN_STEPS} --epochs 2", "give either epochs or steps"),
    (f"{NOISE} 1 --delta 0.1 --steps 3", "--dataset-size and --batch-size or"),
    (f"{NOISE} 1 --delta 0.1 {TEN_STEPS} --batch-size 10", "jaxdp epsilon: "),
    (f"delta --noise-multiplier 1 --epsilon -1 {TEN_STEPS}", "--epsilon must be 0 or more"),
    (f"{NOISE} 1 --delta 0.1 {SIZES}", "--batch-size / --dataset-size must lie in [0, 1]"),
]


@pytest.mark.parametrize(("arguments", "named"), REFUSED)
def test_a_refusal_names_the_option(run, arguments, named):
    done = run(*arguments.split())
    assert done.exit_code == 2
    assert named in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "e-308" not in done.stderr


@pytest.mark.parametrize("columns", [64, 120])
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
    done = run(*f"calibrate --epsilon 1 --delta 0 {TEN_STEPS}".split())
    assert done.exit_code == 1
    assert "delta" in done.stderr
    assert "raise" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (RuntimeError("out of time"), 1, "out of time"),
        (ValueError("batch_size, not batch_sizes"), 2, "--batch-size, not batch_sizes"),
        (ValueError("delta must be 0, got delta"), 2, "--delta must be 0, got delta"),
        (ValueError("--noise-multiplier is one"), 2, "--noise-multiplier is one"),
    ],
)
def test_arguments_of_functions_become_options(capsys, error, code, words):
    def fail():
        raise error

    with pytest.raises(typer.Exit) as ended:
        base.exit_on_error("delta", fail)
    told = " ".join(capsys.readouterr().err.split())
    assert (ended.value.exit_code, told) == (code, f"jaxdp delta: {words}")


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
