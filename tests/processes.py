"""Python in a process of its own."""

import os
import subprocess
import sys


def process(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """What `python arguments` did, with more variables of the environment."""
    command = [sys.executable, *map(str, arguments)]
    variables = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)


def run(code: str, *arguments: object, **environment: str) -> str:
    """The output of the code, which must not fail."""
    done = process("-c", code, *arguments, **environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
