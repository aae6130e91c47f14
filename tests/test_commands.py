"""The command line's questions about DP-SGD, in tables and in JSON."""

import json

import pytest
import typer
from typer.testing import CliRunner

import jaxdp as dp
from jaxdp.cli import build_app

TRAINING = ["--sampling-prob", "0.01", "--steps", "1000"]


@pytest.fixture(scope="module")
def run():
    app, runner = build_app(typer), CliRunner()
    return lambda *arguments: runner.invoke(app, list(arguments))


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
    assert json.loads(run(*none, "--json").stdout)["epsilon"] == "inf"
    assert run(*none).stdout == "epsilon = inf nats\n"


def test_words_and_comparisons(run):
    words = run("statement", "--noise-multiplier", "1.0", "--delta", "1e-6", *TRAINING)
    assert words.exit_code == 0
    assert words.stdout.strip() == dp.dpsgd.statement(1.0, 1e-6, sampling_prob=0.01, steps=1000)
    table = run("compare", "--epsilon", "1", "--delta", "1e-6", "--json")
    families = {row["family"] for row in json.loads(table.stdout)["families"]}
    assert {"gaussian", "laplace"} <= families


@pytest.mark.parametrize(
    "arguments",
    [
        ["--delta", "2", *TRAINING],
        ["--delta", "1e-6", "--steps", "10"],
        ["--delta", "1e-6", "--sampling-prob", "0.01", "--batch-size", "10", "--steps", "9"],
    ],
)
def test_bad_use_is_one_line_and_exit_code_2(run, arguments):
    done = run("epsilon", "--noise-multiplier", "1.0", *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("jaxdp epsilon: ")
    assert len(done.stderr.strip().splitlines()) == 1


def test_unknown_options_are_bad_use(run):
    assert run("epsilon", "--nosuch").exit_code == 2
    asked = ["epsilon", "--noise-multiplier", "1.0", "--delta", "1e-6", *TRAINING]
    assert run(*asked, "--relation", "other").exit_code == 2
