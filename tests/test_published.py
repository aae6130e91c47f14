"""What the workflows run exists, and they test what the package says that it supports."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github").glob("workflows/*")
}


def test_workflows_call_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text()
    steps = [s for w in WORKFLOWS.values() for job in w["jobs"].values() for s in job["steps"]]
    called = {name for s in steps for name in re.findall(r"^make (\S+)", s.get("run", ""), re.M)}
    assert called == {"test", "docs", "dist"}
    for target in called:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_oldest_and_the_newest_are_tested():
    matrix = WORKFLOWS["test"]["jobs"]["suite"]["strategy"]["matrix"]
    classified = [re.findall(r":: (3\.\d+)$", text) for text in PROJECT["classifiers"]]
    known = sorted((version for found in classified for version in found), key=as_numbers)
    assert matrix["python"] == [known[0], known[-1]]
    assert PROJECT["requires-python"] == f">={known[0]}"
    (required,) = (text for text in PROJECT["dependencies"] if text.startswith("jax>"))
    least = required.removeprefix("jax>=").partition(",")[0]
    assert matrix["jax"] == [f"=={least}.0", ""]


def as_numbers(version):
    return [int(part) for part in version.split(".")]


def test_only_the_job_that_publishes_may_sign():
    for workflow in WORKFLOWS.values():
        assert workflow["permissions"] == {"contents": "read"}
        for name, job in workflow["jobs"].items():
            assert name == "publish" or "permissions" not in job
