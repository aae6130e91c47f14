"""`jaxdp audit`: files of outputs as people have them, exit codes, refusals by line."""

import codecs
import gzip
import json
import re
import time
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxdp as dp

NOISE = np.random.default_rng(1).normal(size=(2, 2000))
FIRST, SECOND = NOISE[0], NOISE[1] + 1.0
GERMAN = ["--delimiter", ";", "--decimal", ","]
# Halves at random refute mu .5 in 99.7 %. A seed chooses the same halves in every run.
TRUE, FALSE = ["--gdp", 1, "--seed", 1], ["--gdp", 0.5, "--seed", 1]


@pytest.fixture(scope="module")
def run(run):
    return lambda *arguments: run("audit", *arguments)


def text_of(*columns, names=("with", "without"), delimiter=",", point="."):
    lines = [names, *([f"{x!r}" for x in row] for row in zip(*columns, strict=True))]
    return "".join(f"{delimiter.join(x.replace('.', point) for x in row)}\r\n" for row in lines)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "outputs.csv"
    path.write_text(text_of(FIRST.tolist(), SECOND.tolist()))
    return path


def test_the_exit_code_is_the_verdict(run, file):
    for claim, code, words in (
        (["--gdp", 1], 0, "Not refuted is not proved"),
        (["--gdp", 0.5], 1, "mu 0.5, so epsilon 0.514258 at delta 0.05"),
        (["--rho", 0.05], 1, "refuted by the values of an output"),
        (["--epsilon", 0.1, "--delta", 0.05], 1, "epsilon 0.1 at delta 0.05; refuted by"),
        (["--epsilon", 3], 0, "epsilon 3 at delta 0; not refuted"),
        (["--confidence", 0.8], 3, "at most 20 of 100 audits"),
    ):
        told = run(file, *claim, "--seed", 1)
        assert told.exit_code == code, told.output
        assert words in " ".join(told.stdout.split())
        assert "2,000 on the first" in told.stdout
        assert max(map(len, told.stdout.splitlines())) <= 80


def test_the_page_shows_what_is_printed(run, tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "audit.md").read_text()
    call, shown = re.findall(r"\$ jaxdp audit outputs.csv (.*)\n((?:.*\n)*?)```", page)[0]
    noise = np.random.default_rng(0).laplace(0.0, 0.5, (2, 2000))
    path = tmp_path / "outputs.csv"
    path.write_text(text_of((noise[0] + 1.0).tolist(), noise[1].tolist()))
    assert run(path, *call.split()).stdout == shown


def test_json_is_the_audit_of_python(run, file):
    told = run(file, "--gdp", 1, "--seed", 7, "--json")
    keyed = {"claim": dp.GDP(1.0), "delta": 0.05, "key": jax.random.key(7)}
    found = dp.audit.of_outputs(FIRST, SECOND, **keyed)
    assert json.loads(told.stdout) == {**found._asdict(), "outputs": [2000, 2000]}
    assert run(file, "--gdp", 1, "--seed", 7, "--json").stdout == told.stdout
    assert run(file, "--gdp", 1, "--seed", 8, "--json").stdout != told.stdout


def test_files_as_people_have_them(run, tmp_path):
    """A mark, semicolons, decimal commas, gzip, an index, other columns, sorted."""
    german = text_of(FIRST.tolist(), SECOND.tolist(), delimiter=";", point=",")
    packed = tmp_path / "packed.csv.gz"
    packed.write_bytes(gzip.compress(codecs.BOM_UTF8 + german.encode()))
    wide = tmp_path / "wide.csv"
    columns = [range(2000), np.sort(SECOND).tolist(), FIRST.tolist(), ["x"] * 2000]
    wide.write_text(text_of(*columns, names=("", "b", " a ", "c")))
    indexed = tmp_path / "indexed.csv"
    indexed.write_text(text_of(*columns[:3], names=("", "b", "a")))
    for arguments in (
        [packed, *GERMAN],
        [wide, "--first", "a", "--second", "b"],
        [indexed],
    ):
        assert run(*arguments, *TRUE).exit_code == 0, arguments
        assert run(*arguments, *FALSE).exit_code == 1, arguments


ROWS = [f"{i},{i + 0.5}" for i in range(40)]
REFUSED = {
    "blank": ([*ROWS[:5], "1,", *ROWS], [], "line 7: the second column .* record 6 has none"),
    "missing": ([*ROWS[:5], "NA,1", *ROWS], [], "line 7: the first column .* record 6 has none"),
    "a word": ([*ROWS[:5], "", "", "secret,1"], [], "line 9: .* of finite numbers"),
    "infinity": ([*ROWS, "1,inf"], [], "line 42: .* of finite numbers"),
    "a comma": (
        [*ROWS, '1,"1,5"'],
        [],
        "line 42: with --decimal . numbers must have no comma, .* has one: name the --decimal",
    ),
    "short": ([*ROWS, "1,", "2,"], [], "line 42: .* a run that failed has an output"),
    "none": ([], [], "at least 11 outputs"),
    "three": (["1,2,3"], [], "has 3 with a name: name two of them"),
    "no header": (ROWS, [], "must begin with a header"),
    "one name": (ROWS, ["--first", "a"], "give both --first and --second"),
    "one column": (ROWS, ["--first", "a", "--second", "a"], "must be two columns"),
    "texts": (["yes,no"] * 20, [], "line 2: .* of finite numbers"),
    "two claims": (ROWS, ["--rho", 1, "--gdp", 1], "give one claim at most"),
    "epsilon": (ROWS, ["--epsilon", "nan"], "--epsilon must be 0 or more and finite, got nan"),
    "delta": (ROWS, ["--delta", 2], "--delta must lie in"),
    "confidence": (ROWS, ["--confidence", 1], "confidence must lie in"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_exits_2_and_names_the_line(run, tmp_path, name):
    rows, options, said = REFUSED[name]
    path = tmp_path / "bad.csv"
    header = {"three": "a,b,c", "no header": "1,2"}.get(name, "a,b")
    path.write_text("\n".join([header, *rows]) + "\n")
    told = run(path, *options)
    assert told.exit_code == 2
    assert len(told.stderr.splitlines()) == 1
    assert "secret" not in told.stderr
    assert re.search(said, told.stderr), told.stderr


def test_parquet(run, tmp_path):
    pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "outputs.parquet"
    pandas.DataFrame({"a": FIRST, "b": SECOND}).to_parquet(path)
    assert run(path, *FALSE).exit_code == 1
    pandas.DataFrame({"a": [1.0, None, 2.0], "b": [1.0, 2.0, 3.0]}).to_parquet(path)
    told = run(path)
    assert (told.exit_code, "record 2: the first" in told.stderr) == (2, True)


@pytest.mark.long
def test_ten_times_the_rows_take_ten_times_as_long(run, tmp_path):
    """The least of three times each; measured: .07 and .85 CPU seconds."""
    noise = np.random.default_rng(2).normal([[0.0], [1.0]], size=(2, 100_000))

    def seconds(rows):
        path = tmp_path / f"{rows}.csv"
        path.write_text(text_of(*noise[:, :rows].tolist()))
        started = time.process_time()
        assert run(path, *FALSE).exit_code == 1
        return time.process_time() - started

    few, many = (min(seconds(rows) for _ in range(3)) for rows in (10_000, 100_000))
    assert many < 40 * few
