"""Examples of README and docs/, notebooks, demo and figures: they run and print what is stored."""

import doctest
import importlib
import json
import re
from pathlib import Path

import matplotlib
import nbclient
import nbformat
import pytest
from processes import process

from jaxdp import datasets, demo
from jaxdp.accountant import gpu

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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_no_wrapped_line_begins_a_list(document):
    """A line of a paragraph that begins with "1." or "1)", a mark of a heading or of a quote."""
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table")
    lines = document.read_text().splitlines()
    for token in markdown.parse(document.read_text()):
        if token.type in ("ordered_list_open", "blockquote_open", "heading_open"):
            before = lines[token.map[0] - 1] if token.map[0] else ""
            assert not before.strip() or token.level, lines[token.map[0]]
            assert token.markup not in ("=", "-"), lines[token.map[0]]


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_the_site_has_every_page():
    docs = ROOT / "docs"
    pages = {path.stem for path in docs.glob("*.md")} - {"index"}
    pages |= {f"api/{path.stem}" for path in (docs / "api").glob("*.md")}
    notebooks = {f"notebooks/{path.stem}" for path in NOTEBOOKS}
    text = "".join((docs / name).read_text() for name in ("index.md", "api.md"))
    trees = re.findall(r"```\{toctree\}\n(.*?)```", text, flags=re.DOTALL)
    listed = {line for tree in trees for line in tree.splitlines() if line[:1] not in ("", ":")}
    assert pages | notebooks == listed
    assert len(NOTEBOOKS) == 7


SOURCES = [*DOCUMENTS, *NOTEBOOKS, *(ROOT / "jaxdp").rglob("*.py")]


@pytest.mark.parametrize(
    ("files", "text"),
    [
        (SOURCES, 'config.update("jax_enable_x64"'),
        # Arrays of JAX are float32 by default: 0.3 is another number.
        (DOCUMENTS, "jnp.array("),
        # A warning names folders of the machine, and what is shown should not warn.
        (NOTEBOOKS, '"stderr"'),
        # A widget that no kernel holds would be shown as an error, in place of its text.
        (NOTEBOOKS, "jupyter.widget-view"),
    ],
)
def test_readers_do_not_meet(files, text):
    assert [path.name for path in files if text in path.read_text()] == []


def test_newcomers_first_read_what_epsilon_means():
    for page in ("README.md", "docs/start.md"):
        first = (ROOT / page).read_text().split("\n\n")[1]
        assert "what_epsilon_means.md" in first, page
        assert "try.html" in first, page
    start = (ROOT / "docs/start.md").read_text()
    assert start.index("![") < start.index("pip install") < start.index("float64")
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


PAGES = {path.stem: path.read_text().lower() for path in (ROOT / "docs").glob("*.md")}
# Words that readers search for, and the page that answers them.
ANSWERS = {
    "two-way table": "tables_and_means",
    "contingency table": "tables_and_means",
    "cross-tabulation": "tables_and_means",
    "missing values": "tables_and_means",
    "imputation": "tables_and_means",
    "simpleimputer": "private_models",
    "error bar": "tables_and_means",
    "quantile": "tables_and_means",
    "median": "tables_and_means",
    "confidence interval": "private_models",
    "dp-ftrl": "federated",
    "matrix factorization": "federated",
    "matrix mechanism": "federated",
    "random check-in": "federated",
    "top-k": "composition",
    "gpu": "gpu",
    "cuda": "gpu",
    "opacus": "coming_from",
    "jaxdp audit": "audit",
}
# Reports of measurements and of other libraries, where "median" is a statistic of errors.
REPORTS = {"accuracy", "accuracy_per_epsilon", "benchmarks", "changelog", "proof", "references"}


@pytest.mark.parametrize("word", ANSWERS)
def test_a_search_word_is_most_frequent_on_the_page_that_answers_it(word):
    counts = {name: text.count(word) for name, text in PAGES.items() if name not in REPORTS}
    assert counts[ANSWERS[word]] == max(counts.values()) > 0, counts


def test_the_page_of_gpus_has_the_sizes_of_the_engine():
    assert "1.9 mb | 1,024" in PAGES["gpu"]
    assert gpu._PACK == 1024


# Trained on substitutes if the data sets are missing: other names are printed.
OF_DATA = "private_regression"


def shown(path, notebook):
    """Words and number of pictures per cell. Digits are ignored: noise and last places change."""
    found = []
    for outputs in (cell.get("outputs", []) for cell in notebook.cells):
        # XLA writes on stderr about compilations that take long on a busy machine.
        text = "".join(x["text"] for x in outputs if x.get("name") == "stdout")
        words = re.sub(r"-?\d[\d.,]*(e[-+]?\d+)?", "#", text).split()
        pictures = sum("image/png" in output.get("data", {}) for output in outputs)
        found.append((bool(words) if path.stem == OF_DATA else words, pictures))
    return found


# Takes 5 CPU seconds; the others take a minute each.
QUICK = "choosing_a_noise"


@pytest.mark.parametrize(
    "path",
    [pytest.param(x, marks=() if x.stem == QUICK else pytest.mark.long) for x in NOTEBOOKS],
    ids=lambda path: path.stem,
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_it_runs(path):
    notebook = nbformat.read(path, as_version=4)
    stored = shown(path, notebook)
    assert any(pictures for _, pictures in stored)
    client = nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    )
    client.execute()
    assert shown(path, notebook) == stored


def test_it_runs_without_any_download(tmp_path, monkeypatch):
    """As without the downloaded data, with fewer epsilons in their range, and two allocations."""
    monkeypatch.setattr(datasets, "available", lambda name: name in ("diabetes", "breast_cancer"))
    settings = dict.fromkeys(("iid", "spr"), (0.02, 1.0))
    jobs = [job._replace(settings=settings) for job in demo.trainings()]
    monkeypatch.setattr(demo, "trainings", lambda: jobs)
    monkeypatch.setattr(demo, "TRAININGS", 8)
    lines = []
    report = demo.main(tmp_path / "new", lines.append, progress=False)
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    assert [line[:5] for line in lines if line.startswith("[")] == [f"[{k}/4]" for k in range(1, 5)]
    assert json.loads((tmp_path / "new" / "demo.json").read_text()) == report
    assert (tmp_path / "new" / "demo.png").read_bytes()[:4] == b"\x89PNG"
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"demo.json", "demo.png"}
    assert {job["data"] for job in report["training"]} == {"diabetes", "breast_cancer"}
    for job in report["training"]:
        errors = job["allocations"]
        assert set(errors) == {"iid", "spr"}
        assert len({round(row["rho"], 12) for row in errors.values()}) == 1
        assert errors["spr"]["relative_error"] < errors["iid"]["relative_error"]
    assert report["sweep"]["log_delta"]["points"] == 10**6
    assert report["sweep"]["log_delta"]["least"] < -43000
    assert 0.09 < report["sweep"]["epsilon"]["least"] < report["sweep"]["epsilon"]["greatest"] < 50
    gains = {(r["profile"], r["family"], r["method"]): r["gain_db"] for r in report["allocation"]}
    # The i.n.i.d. paper's figures at 20 coordinates.
    assert gains["linear", "gaussian", "inid"] == pytest.approx(1.145, abs=1e-3)
    assert gains["quadratic", "laplace", "inid"] == pytest.approx(1.390, abs=1e-3)
    assert gains["exponential", "gaussian", "inid"] == pytest.approx(9.658, abs=1e-3)


@pytest.mark.parametrize(
    ("before", "arguments", "said"),
    [
        ("", ("demo", "--output", "/dev/null/no"), "jaxdp demo: "),
        ("import sys; sys.modules['typer'] = None\n", (), "jaxdp-privacy[cli]"),
    ],
)
def test_an_error_of_the_command_is_a_line(before, arguments, said):
    done = process("-c", f"{before}from jaxdp.cli import main\nmain()", *arguments)
    assert done.returncode == 1
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


matplotlib.use("Agg")


def test_a_published_figure_is_drawn(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(ROOT)
    script = importlib.import_module("benchmarks.reproductions.figures")
    path = script.draw("slides_dimensions", tmp_path / "new")
    assert path == tmp_path / "new" / "slides_dimensions.png"
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
