"""The command line: questions about DP-SGD, in words and in JSON."""

import json
import re
from pathlib import Path

import pytest
import typer

import jaxdp as dp
from jaxdp.cli import EXAMPLES, build_app

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


def test_shuffled_batches_are_refused_with_their_bound(run):
    asked = ["epsilon", "--noise-multiplier", "1", "--sampling", "shuffled", *TRAINING]
    told = run(*asked, "--delta", "1e-6")
    assert told.exit_code == 2
    assert re.search("no useful bound is known .at delta 1e-06 epsilon is at least", told.stderr)


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
