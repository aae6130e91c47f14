"""The loader: shapes, contents, where it looks, and what it says when it finds nothing."""

import gzip

import numpy as np
import pytest

from benchmarks.reproductions import cylinder_bands
from jaxdp import datasets

SHAPES = {
    "california_housing": (20640, 8),
    "electricity": (45312, 8),
    "diabetes": (442, 10),
    "breast_cancer": (569, 30),
    "digits": (1797, 64),
}


@pytest.mark.parametrize("name", [n for n in SHAPES if datasets.available(n)])
def test_shapes(name):
    data = datasets.load(name)
    assert data.features.shape == SHAPES[name]
    assert data.targets.shape == SHAPES[name][:1]
    assert len(data.feature_names) == SHAPES[name][1]
    assert np.isfinite(data.features).all()
    assert np.isfinite(data.targets).all()
    if name in ("electricity", "breast_cancer"):
        assert set(np.unique(data.targets)) == {0.0, 1.0}


def test_the_bundled_sets_need_nothing():
    assert datasets.available("diabetes")
    assert datasets.available("breast_cancer")
    assert set(datasets.NAMES) == set(SHAPES)


def test_the_environment_comes_first(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXDP_DATA", str(tmp_path))
    rows = "\n".join(f"{i},{i + 1},{i / 2}" for i in range(5))
    with gzip.open(tmp_path / "california_housing.csv.gz", "wt") as file:
        file.write("a,b,target\n" + rows + "\n")
    data = datasets.load("california_housing")
    assert data.features.shape == (5, 2)
    assert data.feature_names == ("a", "b")
    np.testing.assert_array_equal(data.targets, np.arange(5) / 2)
    assert str(tmp_path) in data.source
    # Labels of OpenML are text.
    with gzip.open(tmp_path / "electricity.csv.gz", "wt") as file:
        file.write("date,day,class\n0.1,2,UP\n0.2,3,DOWN\n")
    np.testing.assert_array_equal(datasets.load("electricity").targets, [1, 0])


def test_cylinder_bands_encodes_missing_values(tmp_path, monkeypatch):
    text = (
        "timestamp,press,grain,viscosity,band_type\n"
        "1,821,YES,40,band\n2,816,no,,noband\n3,821,,44,noband\n"
    )
    with gzip.open(tmp_path / "cylinder_bands.csv.gz", "wt") as file:
        file.write(text)
    monkeypatch.setenv("JAXDP_DATA", str(tmp_path))
    data = cylinder_bands.load()
    assert data.feature_names == ("press=821", "grain=no", "grain=yes", "viscosity")
    expected = [[1, 0, 1, 40], [0, 1, 0, 42], [1, 0, 0, 44]]
    np.testing.assert_array_equal(data.features, expected)
    np.testing.assert_array_equal(data.targets, [1, 0, 0])


def test_what_it_says_when_there_is_nothing(monkeypatch):
    monkeypatch.setattr(datasets, "local", lambda name: None)

    def offline(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_california_housing", offline)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    for name in ("california_housing", "electricity"):
        assert not datasets.available(name)
        with pytest.raises(FileNotFoundError, match="JAXDP_DATA"):
            datasets.load(name)
    with pytest.raises(ValueError, match="name must be one of"):
        datasets.load("iris")
