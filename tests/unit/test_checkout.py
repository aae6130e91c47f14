"""The suite depends neither on where the checkout lies nor on what its folder is called."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jax

ROOT = Path(__file__).parents[2]
# What is made beside the sources, and is large.
MADE = (".git", ".venv", ".*_cache", ".hypothesis", "__pycache__", "_build", "build", "dist")


def test_it_is_collected_in_a_folder_of_the_packages_name(tmp_path):
    """As `git clone` makes it, below a path with a space, with packages in its own `.venv`."""
    checkout = tmp_path / "with a space" / "jaxdp"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(*MADE))
    packages = checkout / ".venv" / "site-packages"
    packages.parent.mkdir()
    packages.symlink_to(Path(jax.__file__).parents[1])
    environment = {name: x for name, x in os.environ.items() if not name.startswith("PYTEST")}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, (checkout, packages)))
    tests = "test_a_warm_question_runs_little_python or test_imports_point_down"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", tests]
    done = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^2 passed, \d{4} deselected", done.stdout, flags=re.MULTILINE), done.stdout


def test_scripts_of_the_environment_are_run_as_modules():
    """The first line of a script is the path of its interpreter, which may move or hold a space."""
    for name in ("Makefile", ".ci/run", ".pre-commit-config.yaml", ".github/workflows/test.yml"):
        run = re.findall(r"\.venv/bin/([\w.-]+)", (ROOT / name).read_text())
        assert set(run) <= {"python"}, name
