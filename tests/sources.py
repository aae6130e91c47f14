"""Python files of the checkout as syntax trees, parsed once."""

import ast
import functools
from pathlib import Path

ROOT = Path(__file__).parents[1]


@functools.cache
def trees(folder: str) -> dict[Path, ast.Module]:
    """The trees of all files below a folder."""
    return {path: ast.parse(path.read_text()) for path in (ROOT / folder).rglob("*.py")}
