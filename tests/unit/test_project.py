"""What the project says of itself: workflows, versions, names of the distribution."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import jaxdp as dp
from jaxdp._core import checks

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github").glob("workflows/*")
}


def test_make_targets_of_workflows_and_pages_exist():
    makefile = (ROOT / "Makefile").read_text()
    steps = [s for w in WORKFLOWS.values() for job in w["jobs"].values() for s in job["steps"]]
    called = {name for s in steps for name in re.findall(r"^make (\S+)", s.get("run", ""), re.M)}
    assert called == {"test", "test-tenth", "test-oldest", "docs", "dist"}
    pages = ((ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md"))
    named = set(re.findall(r"make ([a-z-]+)", "".join(pages))) - {"it", "sure"}
    assert "test" in named
    for target in called | named:
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


def test_the_distribution_is_not_called_as_the_package():
    """The index has another project named jaxdp: nothing may install it, or report its version."""
    assert PROJECT["name"] == "jaxdp-privacy"
    extras = PROJECT["optional-dependencies"]
    inner = [text for texts in extras.values() for text in texts if text.startswith("jaxdp")]
    assert {text.partition("[")[0] for text in inner} == {PROJECT["name"]}
    runs = [s.get("run", "") for s in WORKFLOWS["release"]["jobs"]["build"]["steps"]]
    assert 'test -f "dist/jaxdp_privacy-${GITHUB_REF_NAME#v}.tar.gz"' in runs
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "jaxdp").rglob("*.py")]
    for path in pages:
        for what in re.findall(r"pip install '?jaxdp(?!-privacy)(.{0,30})", path.read_text(), re.S):
            assert "another" in what, path
    with pytest.raises(ImportError, match=r"pip install 'jaxdp-privacy\[learn\]'"):
        checks.extra("jaxdp.no_such_module", "learn")


def test_the_version_is_that_of_the_package():
    assert PROJECT["version"] == dp.__version__
    assert f"version: {dp.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def as_numbers(version):
    return [int(part) for part in version.split(".")]


def test_only_the_job_that_publishes_may_sign():
    for workflow in WORKFLOWS.values():
        assert workflow["permissions"] == {"contents": "read"}
        for name, job in workflow["jobs"].items():
            assert name == "publish" or "permissions" not in job
