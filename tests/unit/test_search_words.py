"""Words that readers search for lead to the page that answers them; sizes that a page states."""

from pathlib import Path

import pytest

from jaxdp.accountant import gpu

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {path.stem: path.read_text().lower() for path in DOCS.glob("*.md")}
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
