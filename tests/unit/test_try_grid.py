"""docs/try_grid.js: its points between the positions are the library's numbers, or above them."""

import importlib.util

import numpy as np
import pytest
from try_numbers import DOCS, assert_stored, codes, exact, stored_grid


@pytest.fixture(scope="module")
def grid():
    return stored_grid()


@pytest.fixture(scope="module")
def script():
    """docs/try_grid.py, which writes the numbers."""
    known = importlib.util.spec_from_file_location("try_grid", DOCS / "try_grid.py")
    module = importlib.util.module_from_spec(known)
    known.loader.exec_module(module)
    return module


def decoded(grid, text, points):
    """Codes of the points between, a list a row."""
    places, at, half = {d: k for k, d in enumerate(grid["digits"])}, 0, len(grid["digits"]) // 2
    for row in points:
        known = codes(grid, text[at : at + 4]).tolist()
        at += 4
        while len(known) < len(row):
            if text[at] == "~":
                known += codes(grid, text[at + 1 : at + 3]).tolist()
                at += 3
            else:
                known.append(places[text[at]] - half + 2 * known[-1] - known[-2])
                at += 1
        yield known
    assert at == len(text)


def test_points_between_are_the_librarys_numbers(grid, script, draw):
    assert list(script.BETWEEN.items()) == list(
        zip(*(grid["finer"][x] for x in ("deltas", "every")), strict=True)
    )
    at = int(draw.choice(len(script.BETWEEN)))
    delta, every = list(script.BETWEEN.items())[at]
    points = list(script.points(every))
    rows = list(decoded(grid, grid["finer"]["codes"][at], points))
    assert len(rows) == len(points)
    assert all(row == sorted(row) for row in rows)  # more steps
    some = [(points[k][-3], rows[k][-3]) for k in draw.choice(len(rows), 4)]
    noise, rate, epochs = np.array([point for point, _ in some]).T
    known = exact(noise, rate, np.ceil(epochs / rate), delta)
    stored = grid["least"] * grid["ratio"] ** np.array([code for _, code in some])
    assert_stored(grid, stored, known)


def test_lines_through_stored_points_are_above_the_librarys_numbers(grid, script, draw):
    beyond = grid["finer"]["beyond"]
    known = beyond[int(draw.choice(len(beyond)))]
    assert [one["delta"] for one in grid["finer"]["beyond"]] == script.BEYOND
    points = list(script.points(1))
    near, far = (list(decoded(grid, grid["finer"]["codes"][at], points)) for at in (0, 1))
    places = np.array([grid["digits"].index(digit) for digit in known["slopes"]])
    parts = script.PARTS
    assert places.size == parts * len(points)
    # Some at random, and some of the largest slopes.
    some = np.array([*draw.choice(places.size, 4), *draw.choice(np.argsort(places)[-200:], 2)])
    rows = some // parts
    at = [-(-(k % parts) * len(near[k // parts]) // parts) for k in some.tolist()]
    low, high = (
        grid["least"] * grid["ratio"] ** np.array([of[k][m] for k, m in zip(rows, at, strict=True)])
        for of in (near, far)
    )
    bounds = low + (known["lowest"] + known["step"] * places[some]) * (high - low)
    chosen = [points[k][m] for k, m in zip(rows, at, strict=True)]
    noise, rate, epochs = np.array(chosen).T
    exactly = exact(noise, rate, np.ceil(epochs / rate), known["delta"])
    assert np.all(bounds >= exactly)
    assert np.all(bounds <= np.maximum(exactly * (1.0 + known["excess"]), 0.01))
