"""Prints the least version of every dependency that the package or its tests import, as pins."""

import re
import tomllib
from pathlib import Path

# Extras whose packages some test imports; of the last one, those of the tests alone.
EXTRAS = ("learn", "lp", "sweep", "plot", "cli", "interop", "verify")
OF_TESTS = ("beartype", "hypothesis", "mpmath", "pytest", "scipy")


def pins() -> dict[str, str]:
    """The least version of each package."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for name in EXTRAS for line in extras[name])]
    wanted += [line for line in extras["dev"] if line.split(">=")[0] in OF_TESTS]
    found = {}
    for line in wanted:
        match = re.fullmatch(r"([\w-]+)>=([\d.]+)(,<[\d.]+)?", line)
        assert match, f"a dependency needs a least version: {line}"
        found[match[1]] = match[2]
    return found


if __name__ == "__main__":
    print("\n".join(f"{name}=={least}" for name, least in pins().items()))
