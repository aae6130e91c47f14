"""Published numbers and claims: what holds, and printed statements that fail."""

import re
import tomllib
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import yaml

import jaxdp as dp
from jaxdp._core import checks

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github").glob("workflows/*")
}


def test_workflows_call_targets_that_exist():
    makefile = (ROOT / "Makefile").read_text()
    steps = [s for w in WORKFLOWS.values() for job in w["jobs"].values() for s in job["steps"]]
    called = {name for s in steps for name in re.findall(r"^make (\S+)", s.get("run", ""), re.M)}
    assert called == {"test", "test-tenth", "test-oldest", "docs", "dist"}
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


def test_the_table_of_the_inid_paper_is_the_optimum_of_the_absolute_error():
    """Its row "i.n.i.d. Laplace" follows with power 1, not with theorem 5's scales (power 2)."""
    sensitivities = [0.15, 0.85]
    printed = {0.5: 3.4283, 1.0: 1.7141, 1.5: 1.1428, 2.0: 0.8571, 2.5: 0.6857, 3.0: 0.5714}
    for epsilon, value in printed.items():
        budget = dp.PureDP(epsilon)
        first = float(jnp.sum(dp.allocate("laplace", sensitivities, budget, power=1)))
        second = float(jnp.sum(dp.allocate("laplace", sensitivities, budget, power=2)))
        assert abs(first - value) < 1e-4
        assert second > value * 1.01


def test_corollary_6_is_not_attained():
    """epsilon - ln(1 - delta) printed; one Laplace can spend epsilon - 2 ln(1 - delta)."""
    epsilon, delta = 1.0, 0.05
    printed = dp.Laplace(1.0 / (epsilon - np.log1p(-delta)))
    ours = dp.fit_noise("laplace", dp.Budget(epsilon, delta), 1.0)
    assert printed.delta(1.0, epsilon) < 0.6 * delta
    assert 0.999999 * delta < ours.delta(1.0, epsilon) <= delta


def test_order_two_bounds_chi_squared_from_above():
    """ "A lower bound on chi^2" is printed; chi^2 = exp(D_2) - 1 is at most e^(2 rho) - 1."""
    for noise in (dp.Gaussian(2.0), dp.Laplace(1.0), dp.OffsetGaussian(1.0, 2.0)):
        xi, rho = noise.zcdp(1.0)
        chi_squared = float(jnp.expm1(noise.renyi(1.0, 2.0)))
        assert chi_squared <= float(jnp.expm1(xi + 2 * rho)) * (1 + 1e-12)
    strict = dp.Laplace(1.0)
    assert float(jnp.expm1(strict.renyi(1.0, 2.0))) < 0.99 * float(
        jnp.expm1(2 * strict.zcdp(1.0)[1])
    )
