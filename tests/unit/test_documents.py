"""Tests that examples of README and docs/ print their output, and that commands and pages exist."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WITH_EXAMPLES = [path for path in DOCUMENTS if "```python\n" in path.read_text()]


@pytest.mark.parametrize("document", WITH_EXAMPLES, ids=lambda path: path.stem)
def test_examples(document):
    """Run the blocks of one document in order, in one namespace."""
    blocks = re.findall(r"```python\n(.*?)```", document.read_text(), flags=re.DOTALL)
    names: dict[str, object] = {}
    runner = doctest.DocTestRunner()
    for block in blocks:
        if ">>> " not in block:
            exec(compile(block, document.name, "exec"), names)
            continue
        examples = doctest.DocTestParser().get_doctest(block, names, document.name, None, 0)
        runner.run(examples, clear_globs=False)
        names |= examples.globs
    assert runner.summarize().failed == 0


def test_its_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for document in ("README.md", "CONTRIBUTING.md"):
        targets = set(re.findall(r"make ([a-z-]+)", (ROOT / document).read_text()))
        targets -= {"it", "sure"}
        assert targets
        for target in targets:
            assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_site_has_every_page():
    docs = ROOT / "docs"
    pages = {path.stem for path in docs.glob("*.md")} - {"index"}
    pages |= {f"api/{path.stem}" for path in (docs / "api").glob("*.md")}
    notebooks = {f"notebooks/{path.stem}" for path in (ROOT / "notebooks").glob("*.ipynb")}
    text = "".join((docs / name).read_text() for name in ("index.md", "api.md"))
    trees = re.findall(r"```\{toctree\}\n(.*?)```", text, flags=re.DOTALL)
    listed = {line for tree in trees for line in tree.splitlines() if line[:1] not in ("", ":")}
    assert pages | notebooks == listed


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
