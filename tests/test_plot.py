"""Every picture: on axes of its own and on given ones, labelled, with a line an entry."""

import matplotlib
import numpy as np
import pytest

import jaxdp as dp

matplotlib.use("Agg")
from matplotlib import pyplot

RELEASES = {
    "Gaussian": dp.Mechanism(dp.Gaussian(1.0), 1.0),
    "Laplace": dp.Mechanism(dp.Laplace(1.0), 1.0),
}
STEP = dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.01, relation="remove")
EPSILON = np.geomspace(0.2, 4.0, 5)
PICTURES = {
    "profile": (lambda ax: dp.plot.profile(RELEASES, np.linspace(0, 60, 40), ax=ax), 2),
    "tradeoff": (lambda ax: dp.plot.tradeoff(RELEASES, ax=ax), 3),
    "epsilon_by_step": (lambda ax: dp.plot.epsilon_by_step({"DP-SGD": STEP}, 90, 1e-6, ax=ax), 1),
    "noise_by_epsilon": (
        lambda ax: dp.plot.noise_by_epsilon(["gaussian", "laplace"], EPSILON, 2e-6, ax=ax),
        2,
    ),
    "density": (
        lambda ax: dp.plot.density({"a": dp.Gaussian(1.0), "b": dp.Laplace(1.0)}, ax=ax),
        2,
    ),
    "training": (lambda ax: dp.plot.training({"a": np.ones((3, 9)), "b": np.ones(9)}, ax=ax), 2),
}


@pytest.mark.parametrize("name", PICTURES)
def test_lines(name):
    draw, lines = PICTURES[name]
    before = dict(matplotlib.rcParams)
    _, given = pyplot.subplots()
    assert draw(given) is given
    own = draw(None)
    assert dict(matplotlib.rcParams) == before
    for ax in (given, own):
        assert len(ax.lines) == lines
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert ax.get_legend() is not None
        looks = {(line.get_color(), line.get_linestyle()) for line in ax.lines}
        assert len(looks) == lines
        for line in ax.lines:
            assert np.isfinite(np.asarray(line.get_ydata())).any()
    own.figure.canvas.draw()
    pyplot.close("all")


def test_what_no_double_holds_is_drawn():
    ax = dp.plot.profile(RELEASES, np.array([0.0, 60.0]))
    assert np.asarray(ax.lines[0].get_ydata())[1] < -700
    assert np.isnan(np.asarray(ax.lines[1].get_ydata())[1])
    pyplot.close("all")


def test_comparisons():
    found = dp.compare((1.0, 1e-6), 1.0, families=["gaussian", "laplace"])
    ax = dp.plot.compare(found)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["gaussian", "laplace"][
        :: 1 if found.rows[-1].family == "gaussian" else -1
    ]
    ax = dp.plot.winners(["gaussian", "laplace"], [0.5, 1.0, 2.0], [1, 10, 1000], 1e-6)
    drawn = np.asarray(ax.collections[0].get_array()).reshape(3, 3)
    assert (drawn[0] == 1).all()
    assert (drawn[2] == 0).all()
    ax.figure.canvas.draw()
    pyplot.close("all")
    with pytest.raises(ValueError, match="families"):
        dp.plot.winners([], [1.0], [1], 1e-6)
