"""What importing does, what is there by name, single precision, any checkout, checked types."""

import ast
import inspect
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest
from jaxtyping import TypeCheckError
from processes import process, run

import jaxdp as dp
from jaxdp._numeric.mills import mills

ROOT = Path(dp.__file__).parent


# A few milliseconds: what is named is imported then, and no table is built before.
IMPORTED = """
import sys; import jaxdp
loaded = [m for m in sys.modules if m.startswith('jaxdp.')]
assert loaded == ['jaxdp._core', 'jaxdp._core.lazy'], loaded
assert 'jax' not in sys.modules
import jaxdp.noise.kernels.divergence
from jaxdp._numeric.quadrature import gauss_legendre
assert gauss_legendre.cache_info().currsize == 0
import jax; from jaxdp import *
assert not jax.config.jax_enable_x64
assert not {'sklearn', 'matplotlib', 'ipywidgets'} & set(sys.modules)
from jax._src import xla_bridge
assert not xla_bridge._backends, 'a device was started'
"""
WITHOUT_SCIKIT_LEARN = """
import sys; sys.modules['sklearn'] = None
import jaxdp as dp
from jaxdp import *
for name in ('DPPCA', 'DPLasso', 'estimators'):
    assert not hasattr(dp, name) and name in dir(dp)
    try:
        getattr(dp, name)
    except AttributeError as error:
        assert 'jaxdp-privacy[learn]' in str(error) and name in str(error)
assert hasattr(dp, 'datasets') and Filter is dp.Filter and not hasattr(dp, 'DPLaso')
"""
# As on Windows: only files that must be locked are refused.
WITHOUT_POSIX_LOCKS = """
import pathlib, sys, tempfile; sys.modules['fcntl'] = None
import jaxdp as dp
assert dp.Mechanism(dp.Gaussian(4.0), 1.0).delta(1.0) < 3e-6
path = pathlib.Path(tempfile.mkdtemp()) / 'file'
sys.platform = 'win32'
try:
    dp.Ledger(path, dp.GDP(1.0))
except NotImplementedError as error:
    assert 'POSIX locks' in str(error) and 'win32' in str(error)
else:
    raise AssertionError('accepted')
assert not path.exists()
"""


@pytest.mark.parametrize("code", [IMPORTED, WITHOUT_SCIKIT_LEARN, WITHOUT_POSIX_LOCKS])
def test_importing_needs_nothing_and_sets_nothing(code):
    run(code, JAX_ENABLE_X64="0")


# Names of the top level: a new one is one more that every reader passes.
NAMES = """
    ApproxDP Budget BudgetExceededError DPLasso DPLinearRegression DPLogisticRegression
    DPNaiveBayes DPPCA DiscreteGaussian DiscreteHistogram DiscreteLaplace ExponentialMechanism
    Filter FlippedHuber GDP Gaussian GaussianMixture Histogram JointSensitivity Laplace Ledger
    Mechanism OffsetGaussian PrivacyLoss Proof PureDP RDP RandomisedResponse Released
    Staircase Subbotin TruncatedLaplace ZCDP above_threshold allocate allocate_exact
    allocation_error audit calibrate compare datasets dpsgd enable_cache estimators
    expected_error explore fit_noise gdp_with_regret interop largest_gdp largest_zcdp optimal own
    plot privacy_loss release repeat_and_select risk sampling secure_key solvers sweep tables
    to_gdp to_pure to_rdp to_zcdp verify
"""


def test_every_name_is_there():
    """What type checkers see is what there is, and a function is not hidden by its module."""
    tree = ast.parse((ROOT / "__init__.pyi").read_text())
    imports = [x for x in ast.walk(tree) if isinstance(x, ast.ImportFrom)]
    ours = [x for x in imports if (x.module or "").startswith("jaxdp")]
    seen = {alias.asname for statement in ours for alias in statement.names}
    assert seen == {name for name in dir(dp) if not name.startswith("__")} == {*NAMES.split()}
    for name in seen:
        assert getattr(dp, name) is not None
    assert "jaxdp.sweep" in sys.modules
    for function in (dp.sweep, dp.plot.profile, dp.datasets.load):
        assert callable(function)
    for name in ("nothing", "conftest", "_MISSING"):
        with pytest.raises(AttributeError, match=name):
            getattr(dp, name)


def test_names_of_a_package_are_its_own():
    for package in (dp, dp.dpsgd, dp.optimal, dp.solvers, dp.tables):
        for name in dir(package):
            assert name.startswith("__") or not name.startswith("_")
            assert name not in ("Any", "TYPE_CHECKING", "importlib", "sys", "types")
    assert repr(dp.GDP(1.6581)) == "GDP(mu=1.658)"
    sampled = dp.Mechanism(dp.Gaussian(1.5), 1.0, 0.01, "add")
    assert repr(sampled.sampling) == "Poisson(sampling_prob=0.01)"
    turns = dp.sampling.Poisson(0.01, cycle_length=4)
    assert repr(turns) == "Poisson(sampling_prob=0.01, cycle_length=4)"


def test_help_reads_aliases():
    signature = str(inspect.signature(dp.calibrate)) + str(inspect.signature(dp.Mechanism))
    assert "ArrayLike" in signature
    assert "Union" not in signature


def test_types_are_packaged():
    assert (ROOT / "py.typed").exists()
    project = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())
    assert project["tool"]["setuptools"]["package-data"]["jaxdp"][0] == "py.typed"


def test_the_package_is_a_command():
    done = process("-m", "jaxdp", "--version")
    assert done.stdout == f"jaxdp {dp.__version__}\n", done.stderr


CHECKOUT = Path(__file__).parents[2]
# What is made beside the sources, and is large.
MADE = (".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "_build", "build", "dist")


@pytest.mark.long
def test_it_is_collected_in_a_folder_of_the_packages_name(tmp_path):
    """As `git clone` makes it, below a path with a space, with packages in its own `.venv`."""
    checkout = tmp_path / "with a space" / "jaxdp"
    shutil.copytree(CHECKOUT, checkout, ignore=shutil.ignore_patterns(*MADE))
    packages = checkout / ".venv" / "site-packages"
    packages.parent.mkdir()
    packages.symlink_to(Path(jax.__file__).parents[1])
    environment = {name: x for name, x in os.environ.items() if not name.startswith("PYTEST")}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (checkout, packages)))
    tests = "test_a_warm_question_runs_little_python or test_imports_point_down"
    files = "tests/unit/composition/test_privacy_loss.py", "tests/unit/test_floors.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", tests, *files]
    done = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^2 passed, \d+ deselected", done.stdout, flags=re.MULTILINE), done.stdout


def test_scripts_of_the_environment_are_run_as_modules():
    """The first line of a script is the path of its interpreter, which may move or hold a space."""
    for name in ("Makefile", ".ci/run", ".pre-commit-config.yaml", ".github/workflows/test.yml"):
        run = re.findall(r"\.venv/bin/([\w.-]+)", (CHECKOUT / name).read_text())
        assert set(run) <= {"python"}, name


def test_the_first_call_of_a_function_is_checked():
    whole = np.arange(3)
    with pytest.raises(TypeCheckError):
        mills(whole)
    np.testing.assert_array_equal(mills(whole), mills(whole.astype(float)))
