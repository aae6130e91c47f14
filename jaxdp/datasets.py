"""Real data for examples, tests and benchmarks. None of it is shipped.

"diabetes", "breast_cancer" and "digits" come with scikit-learn and need no download. The others are
looked for as NAME.csv.gz in $JAXDP_DATA, then in ../shared/data, and then fetched by scikit-learn.
"""

from __future__ import annotations

import csv
import gzip
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxdp._core import checks

# The variable that names a folder of data sets.
FOLDER = "JAXDP_DATA"


class Dataset(NamedTuple):
    """Features (n, p), targets (n,), the names of the features, and where they were read."""

    name: str
    features: np.ndarray
    targets: np.ndarray
    feature_names: tuple[str, ...]
    source: str


def load(name: str) -> Dataset:
    """One of the data sets `datasets.NAMES`, read from disk or fetched.

    Args:
        name: "california_housing": 20,640 x 8, median house value in 100,000 dollars (regression);
            "electricity": 45,312 x 8, price up (1) or down (0); all in [0, 1] but `day`, in 1..7;
            "diabetes": 442 x 10 (regression); "breast_cancer": 569 x 30, benign (1) or malignant
            (0); "digits": 1,797 x 64, images of 8 x 8 pixels in 0..16 and their digit.

    Returns:
        A `Dataset`: features (n, p) and targets (n,) in float64, without missing values, with
        names.

    A data set that cannot be had raises `FileNotFoundError` and says where to put it.

    >>> import jaxdp as dp
    >>> dp.datasets.load("diabetes").features.shape
    (442, 10)
    """
    checks.one_of("name", name, NAMES)
    return _downloaded(name) if name in _FETCHERS else _bundled(name)


def available(name: str) -> bool:
    """True if a data set can be loaded without a network.

    Args:
        name: one of `datasets.NAMES`.

    Returns:
        Whether it comes with scikit-learn, or its file is there.

    >>> import jaxdp as dp
    >>> dp.datasets.available("diabetes")
    True
    """
    return name in _BUNDLED or local(name) is not None


def local(name: str) -> Path | None:
    """The local file of a data set, if there is one."""
    candidates = [Path("../shared/data"), Path(__file__).parents[1] / "../shared/data"]
    if FOLDER in os.environ:
        candidates.insert(0, Path(os.environ[FOLDER]))
    paths = (folder / f"{name}.csv.gz" for folder in candidates)
    return next((path for path in paths if path.is_file()), None)


def table(name: str, fetch: Callable[[], tuple[list[str], list[list[str]]]]):
    """Column names, rows of strings and source: from a local file, else from `fetch`."""
    path = local(name)
    if path is not None:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            header, *rows = csv.reader(file)
        return header, rows, str(path)
    checks.extra("sklearn", "learn")
    try:
        header, rows = fetch()
    except OSError as error:
        raise FileNotFoundError(
            f"{name}: not in ${FOLDER} nor in ../shared/data, and fetching it failed ({error}). "
            f"Put {name}.csv.gz (header row, target in the last column) into a folder and set "
            f"{FOLDER} to it, or use 'diabetes' or 'breast_cancer', which need no download"
        ) from error
    return header, rows, "scikit-learn's fetcher"


def _downloaded(name: str) -> Dataset:
    header, rows, source = table(name, _FETCHERS[name])
    known = [[*row[:-1], _LABELS.get(row[-1], row[-1])] for row in rows]
    values = np.array(known, dtype=np.float64)
    return Dataset(name, values[:, :-1], values[:, -1], tuple(header[:-1]), source)


def _california_housing() -> tuple[list[str], list[list[str]]]:
    from sklearn.datasets import fetch_california_housing

    bunch: Any = fetch_california_housing()
    rows = np.column_stack([bunch.data, bunch.target])
    return [*bunch.feature_names, "MedHouseVal"], rows.astype(str).tolist()


def openml(identifier: int) -> tuple[list[str], list[list[str]]]:
    """Column names and rows of strings of a data set of OpenML."""
    from sklearn.datasets import fetch_openml

    bunch: Any = fetch_openml(data_id=identifier, as_frame=True)
    frame = bunch.frame
    text = frame.astype(object).where(frame.notna(), "").astype(str)
    return [str(c) for c in frame.columns], text.to_numpy().tolist()


def _bundled(name: str) -> Dataset:
    sources = checks.extra("sklearn.datasets", "learn")
    bunch = getattr(sources, f"load_{name}")()
    features, targets = (np.asarray(a, dtype=np.float64) for a in (bunch.data, bunch.target))
    return Dataset(name, features, targets, tuple(map(str, bunch.feature_names)), "scikit-learn")


# Data sets that come with scikit-learn.
_BUNDLED = ("diabetes", "breast_cancer", "digits")
_FETCHERS = {"california_housing": _california_housing, "electricity": lambda: openml(151)}
# Classes of OpenML's electricity data, as numbers.
_LABELS = {"UP": "1", "DOWN": "0"}
NAMES = (*_FETCHERS, *_BUNDLED)
