"""The README's examples print what it says they print, and its commands exist."""

import doctest
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_examples():
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) >= 7
    examples = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "README", "README.md", 0)
    runner = doctest.DocTestRunner()
    runner.run(examples)
    assert runner.summarize().failed == 0


def test_its_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for document in ("README.md", "CONTRIBUTING.md"):
        targets = set(re.findall(r"make ([a-z-]+)", (ROOT / document).read_text()))
        targets -= {"it", "sure"}
        assert targets
        for target in targets:
            assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE), target


def test_the_documents_run():
    """Every block of python in docs/ runs, those of one document after each other."""
    documents = sorted((ROOT / "docs").glob("*.md"))
    assert documents
    for document in documents:
        names: dict[str, object] = {}
        for block in re.findall(r"```python\n(.*?)```", document.read_text(), flags=re.DOTALL):
            exec(compile(block, document.name, "exec"), names)
