"""The command line: questions about DP-SGD, sweeps, models, noises; in words and in JSON."""

import csv
import io
import json
import re
import types

import numpy as np
import pytest
import typer
from processes import process
from typer.testing import CliRunner

import jaxdp as dp
from jaxdp._core import progress
from jaxdp.cli import build_app
from jaxdp.cli.sweeps import values_of

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


def test_releases_of_any_noise_are_composed(run):
    noises = ["--noise", "laplace:10", "--times", "5", "--noise", "gaussian:8", "--times", "2"]
    laplace, gaussian = dp.Mechanism(dp.Laplace(10.0), 2.0), dp.Mechanism(dp.Gaussian(8.0), 2.0)
    loss = 5 * dp.privacy_loss(laplace) + 2 * dp.privacy_loss(gaussian)
    told = run("epsilon", *noises, "--sensitivity", "2", "--delta", "1e-6", "--json")
    assert json.loads(told.stdout)["epsilon"] == float(loss.epsilon(1e-6))
    told = run("delta", "--noise", "discrete_laplace:4", "--epsilon", "0.1", "--json")
    single = dp.Mechanism(dp.DiscreteLaplace(4.0), 1.0)
    assert json.loads(told.stdout)["delta"] == pytest.approx(float(single.delta(0.1)), rel=1e-9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--noise", "lapl:10"], "--noise must be a noise and its parameters"),
        (["--noise", "Budget:1,0.1"], "--noise must be a noise and its parameters"),
        (["--noise", "laplace:-1"], "scale must lie in"),
        (["--noise", "laplace:1", "--times", "0"], "--times must be 1 or more"),
        (["--noise", "laplace:1", "--steps", "3"], "give no option of a training"),
        (["--noise", "laplace:1", "--sensitivity", "-1"], "--sensitivity must be above 0"),
        ([], "give either --noise-multiplier and a training, or --noise"),
        (
            ["--noise-multiplier", "1", "--sampling", "shuffled", *TRAINING],
            "no useful bound is known .at delta 1e-06 epsilon is at least",
        ),
    ],
)
def test_sources_that_are_refused(run, options, said):
    told = run("epsilon", *options, "--delta", "1e-6")
    assert told.exit_code == 2
    assert re.search(said, told.stderr), told.stderr


def test_delta_and_the_noise_that_keeps_to_it(run):
    noise = run("calibrate", "--epsilon", "2", "--delta", "1e-6", *TRAINING, "--json")
    multiplier = json.loads(noise.stdout)["noise_multiplier"]
    back = run("delta", "--noise-multiplier", str(multiplier), "--epsilon", "2", *TRAINING)
    assert float(back.stdout.split("=")[1]) == pytest.approx(1e-6, rel=1e-5)
    told = run("calibrate", "--epsilon", "2", "--delta", "1e-6", *TRAINING).stdout
    assert float(told.split("=")[1]) >= multiplier


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_for_people_alone(run, monkeypatch):
    """With `--json`, standard error stays empty on a terminal too. Of sweeps: below, by stripes."""
    families = ["--epsilon", "1", "--delta", "1e-6", "--families", "gaussian,laplace"]
    for as_json in ([], ["--json"]):
        terminal = Terminal()
        monkeypatch.setattr(progress, "sys", types.SimpleNamespace(stderr=terminal))
        assert run("compare", *families, *as_json).exit_code == 0
        assert ("families" in terminal.getvalue()) == (not as_json)


def test_what_is_infinite_is_json_too(run):
    none = ["epsilon", "--noise-multiplier", "1.0", "--delta", "0", *TRAINING]
    told = run(*none, "--json").stdout
    assert "Infinity" not in told
    assert "inf" not in told.replace("is_infinite", "")
    found = json.loads(told)
    assert (found["epsilon"], found["epsilon_is_infinite"]) == (None, True)
    assert run(*none).stdout == "epsilon = inf nats\n"


def test_words_and_comparisons(run):
    words = run("statement", "--noise-multiplier", "1.0", "--delta", "1e-6", *TRAINING)
    assert words.exit_code == 0
    text = dp.dpsgd.statement(1.0, 1e-6, sampling_prob=0.01, steps=1000)
    assert words.stdout.split() == str(text).split()
    assert max(map(len, words.stdout.splitlines())) <= 80
    asked = ["statement", "--noise-multiplier", "1.0", "--delta", "1e-6", *TRAINING, "--json"]
    fields = json.loads(run(*asked).stdout)
    numbers = [fields[name] for name in ("epsilon", "delta", "mu", "advantage")]
    assert tuple(numbers) == text[:4]
    assert tuple(fields["sentences"]) == text.sentences
    assert fields["statement"] == str(text)


def test_comparisons(run):
    asked = ["compare", "--epsilon", "1", "--delta", "1e-6", "--families", "gaussian, laplace"]
    rows = json.loads(run(*asked, "--json").stdout)["families"]
    assert [(row["family"], row["support"]) for row in rows] == [
        ("laplace", "reals"),
        ("gaussian", "reals"),
    ]
    lines = run(*asked).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 1 + 2 * len(rows)
    integers = json.loads(run(*asked, "--integers", "--json").stdout)["families"]
    assert [row["support"] for row in integers].count("integers") == 2
    assert run(*asked, "--integers").stdout.splitlines()[1].endswith("  integers")
    bad = run("compare", "--epsilon", "1", "--delta", "1e-6", "--families", "cauchy")
    assert (bad.exit_code, "--families must be one of" in bad.stderr) == (2, True)
    bad = run(*asked, "--integers", "--sensitivity", "0.5")
    assert (bad.exit_code, "must be a whole number" in bad.stderr) == (2, True)


def test_unknown_options_are_bad_use(run):
    assert run("epsilon", "--nosuch").exit_code == 2
    asked = ["epsilon", "--noise-multiplier", "1.0", "--delta", "1e-6", *TRAINING]
    assert run(*asked, "--relation", "other").exit_code == 2


GRID = ["--noise-multiplier", "1:2:3", "--sampling-prob", "0.01", "--steps", "100,1000"]


def test_a_sweep_in_a_table_in_json_and_from_a_file(run, tmp_path):
    found = json.loads(run("sweep", *GRID, "--delta", "1e-6", "--json").stdout)
    assert found["noise_multiplier"] == [1.0, 1.5, 2.0]
    expected = dp.dpsgd.epsilon(
        np.array([[1.0], [1.5], [2.0]]), 1e-6, sampling_prob=0.01, steps=np.array([100.0, 1000.0])
    )
    np.testing.assert_allclose(found["epsilon"], expected, rtol=1e-9)
    rows = run("sweep", *GRID, "--delta", "1e-6").stdout.splitlines()
    assert rows[0].split() == ["noise_multiplier", "steps", "epsilon"]
    assert len(rows) == 7
    file = tmp_path / "grid.toml"
    file.write_text(
        'quantity = "delta"\nnoise-multiplier = "1:2:3"\nsampling_prob = 0.01\n'
        "steps = [100, 1000]\nepsilon = 1\n"
    )
    other = json.loads(run("sweep", str(file), "--json").stdout)
    assert np.array(other["delta"]).shape == (3, 2)
    for text, named in (("nosuch = 1", "nosuch"), ("delta = {a = 1}", "delta"), ("=", "")):
        file.write_text(text + "\n")
        bad = run("sweep", str(file))
        assert (bad.exit_code, named in bad.stderr) == (2, True)


@pytest.mark.long
def test_a_sweep_by_stripes_of_one_store(tmp_path):
    to = ["--delta", "1e-6", "--to", str(tmp_path / "grid.zarr"), "--chunk", "2", "--json"]
    missing = []
    for stripe in ("0/2", "1/2"):
        done = process("-m", "jaxdp", "sweep", *GRID, *to, "--stripe", stripe)
        assert (done.returncode, done.stderr) == (0, "")
        answer = json.loads(done.stdout)
        missing.append((answer["not_done"], answer["failed"]))
    assert missing == [(2, 0), (0, 0)]
    attributes = json.loads((tmp_path / "grid.zarr" / "zarr.json").read_text())["attributes"]
    known = {name: attributes[name] for name in ("quantity", "delta", "relation")}
    assert known == {"quantity": "epsilon", "delta": 1e-6, "relation": "add_remove"}


def test_ranges():
    np.testing.assert_allclose(values_of("delta", "log:1e-9:1e-3:3"), [1e-9, 1e-6, 1e-3])
    np.testing.assert_allclose(values_of("epsilon", "0.1:10:100"), np.linspace(0.1, 10, 100))
    assert values_of("steps", "log:1:10:4").tolist() == [1, 2, 5, 10]
    assert values_of("steps", "30,20").tolist() == [30, 20]  # as given: only ranges are rounded


def test_a_table_never_tells_less_than_the_bound(run):
    told = run("sweep", *GRID, "--delta", "1e-6").stdout.splitlines()[1:]
    exact = json.loads(run("sweep", *GRID, "--delta", "1e-6", "--json").stdout)["epsilon"]
    for line, value in zip(told, np.ravel(exact), strict=True):
        assert value <= float(line.split()[-1]) < value * (1 + 1e-5)


@pytest.fixture
def table(tmp_path):
    """2,000 records of a line and a threshold of it: with 200, noise failed 1 run in 5,000."""
    x = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    y = 3 * x[:, 0]
    rows = [(a, b, c, "yes" if c > 0 else "no") for (a, b), c in zip(x, y, strict=True)]
    for name, columns in (("data", (0, 1, 2, 3)), ("line", (0, 1, 2)), ("labels", (0, 1, 3))):
        lines = [[row[i] for i in columns] for row in (("a", "b", "y", "label"), *rows)]
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows(lines)
    return tmp_path


def test_a_lasso_is_trained_and_written(run, table):
    options = ["--model", "lasso", "--epsilon", "20", "--delta", "1e-5", "--feature-bounds", "-1:1"]
    out = table / "model.json"
    place = ["--target", "y", "--target-bounds", "-3:3", "--out", str(out)]
    done = run("train", str(table / "line.csv"), *options, *place)
    assert done.exit_code == 0, done.stderr
    model = json.loads(out.read_text())
    assert model["features"] == ["a", "b"]
    assert model["coefficients"][0] == pytest.approx(3.0, abs=0.3)
    assert "delta 1e-05 at epsilon 20" in model["guarantee"]
    assert model["guarantee"] in " ".join(done.stdout.split())
    assert not list(table.glob("*.partial"))


def test_a_logistic_regression_is_trained(run, table):
    options = ["--model", "logistic", "--epsilon", "20", "--delta", "1e-5", "--target", "label"]
    bounds = ["--feature-bounds", "-1:1,-1:1", "--out", str(table / "model.json"), "--json"]
    done = run("train", str(table / "labels.csv"), *options, *bounds, "--classes", "no,yes")
    model = json.loads(done.stdout)
    assert model == json.loads((table / "model.json").read_text())
    assert model["classes"] == ["no", "yes"]
    assert model["coefficients"][0] > 5 * abs(model["coefficients"][1])
    refused = run("train", str(table / "labels.csv"), *options, *bounds, "--classes", "no,maybe")
    assert refused.exit_code == 2


def test_a_bad_table_is_refused_and_no_value_is_told(run, table):
    options = ["--model", "lasso", "--epsilon", "1", "--delta", "1e-5", "--target-bounds", "-3:3"]
    known = [*options, "--feature-bounds", "-1:1", "--out", str(table / "model.json")]
    done = run("train", str(table / "data.csv"), *known, "--target", "y")
    assert done.exit_code == 2
    assert "feature 3 must be a number, and is not one in record 1" in done.stderr
    assert run("train", str(table / "data.csv"), *known, "--target", "z").exit_code == 2
    assert run("train", str(table / "none.csv"), *known, "--target", "y").exit_code == 1
    (table / "empty.csv").write_text("")
    empty = run("train", str(table / "empty.csv"), *known, "--target", "y")
    assert (empty.exit_code, "must begin with a header" in empty.stderr) == (2, True)
    (table / "empty.csv").write_text("a,y\n")
    empty = run("train", str(table / "empty.csv"), *known, "--target", "y")
    assert (empty.exit_code, "header and records" in empty.stderr) == (2, True)
    nowhere = ["--feature-bounds", "-1:1", "--out", str(table), "--target", "y"]
    assert run("train", str(table / "line.csv"), *options, *nowhere).exit_code == 1
    wide = ["--feature-bounds", "0:1,0:1,0:1", "--target", "y"]
    assert run("train", str(table / "line.csv"), *options, *wide).exit_code == 2
    assert not (table / "model.json").exists()


def test_an_optimal_noise_is_designed_and_written(run, tmp_path):
    out = tmp_path / "noise.json"
    asked = ["optimal-noise", "--epsilon", "1", "--delta", "0.2", "--resolution", "5"]
    done = run(*asked, "--out", str(out))
    assert done.exit_code == 0, done.stderr
    found = json.loads(out.read_text())
    assert found["loss_lower"] <= found["loss_upper"] < 0.6
    assert max(found["deltas"]) <= 0.2
    noise = dp.Histogram(found["width"], tuple(found["weights"]))
    assert float(noise.delta(1.0, 1.0)) <= 0.2 + 1e-9
    assert run("optimal-noise", "--epsilon", "1", "--delta", "2").exit_code == 2
