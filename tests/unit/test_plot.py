"""Every picture: on axes of its own and on given ones, labelled, with a line an entry."""

import matplotlib
import numpy as np
import pytest
from scipy import stats

import jaxdp as dp

matplotlib.use("Agg")
from matplotlib import pyplot


@pytest.fixture(autouse=True)
def closed():
    """No figure outlives its test."""
    yield
    pyplot.close("all")


RELEASES = {
    "Gaussian": dp.Mechanism(dp.Gaussian(1.0), 1.0),
    "Laplace": dp.Mechanism(dp.Laplace(1.0), 1.0),
}
STEP = dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.01, relation="remove")
PICTURES = {
    "profile": (lambda ax: dp.plot.profile(RELEASES, np.linspace(0, 60, 40), ax=ax), 2),
    "tradeoff": (lambda ax: dp.plot.tradeoff(RELEASES, ax=ax), 3),
    "epsilon_by_step": (lambda ax: dp.plot.epsilon_by_step({"DP-SGD": STEP}, 90, 1e-6, ax=ax), 1),
    "density": (
        lambda ax: dp.plot.density({"a": dp.Gaussian(1.0), "b": dp.Laplace(1.0)}, ax=ax),
        2,
    ),
    "training": (lambda ax: dp.plot.training({"a": np.ones((3, 9)), "b": np.ones(9)}, ax=ax), 2),
}


@pytest.mark.parametrize("name", PICTURES)
def test_lines(name):
    draw, lines = PICTURES[name]
    _, given = pyplot.subplots()
    given.set_title("mine")
    assert draw(given) is given
    own = draw(None)
    for ax in (given, own):
        assert len(ax.lines) == lines
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        assert ax.get_title()
        assert ax.get_legend().get_title().get_text()
        looks = {(line.get_color(), line.get_linestyle()) for line in ax.lines}
        assert len(looks) == lines
        for line in ax.lines:
            assert np.isfinite(np.asarray(line.get_ydata())).any()
    assert given.get_title() == "mine"
    own.figure.canvas.draw()


def test_a_trade_off_shows_delta_near_zero():
    loss = dp.privacy_loss(dp.Mechanism(dp.Gaussian(1.8), 1.0))
    assert 2e-5 < loss.delta(2.0) < 2e-4
    claims = {"claim": dp.ApproxDP(2.0, 1e-6), "truth": loss}
    _, near = dp.plot.tradeoff(claims).figure.axes
    lines = [np.asarray(line.get_ydata()) for line in near.lines]
    rates = np.asarray(near.lines[1].get_xdata())
    exact = np.asarray(dp.risk.tpr_at_fpr(loss, rates[::20]))
    np.testing.assert_allclose(lines[1][::20], exact, rtol=0, atol=2e-10)
    assert lines[0][0] == pytest.approx(1e-6 + np.exp(2.0) * 1e-8, rel=0.1)
    assert (lines[1] / lines[0]).max() > 1.3


def test_the_linear_trade_off_falls_steeply_near_zero():
    """Between two points a line is a chord, which lies above a convex function."""
    rates = np.concatenate([np.geomspace(1e-6, 1.0, 300), np.linspace(0.0, 1.0, 300)])
    for mu in (1.0, 3.0, 6.0):
        ax = dp.plot.tradeoff({"mu": dp.GDP(mu)}, ax=pyplot.subplots()[1])
        line = ax.lines[0]
        shown = np.interp(rates, np.asarray(line.get_xdata()), np.asarray(line.get_ydata()))
        exact = stats.norm.cdf(stats.norm.isf(rates) - mu)
        assert np.abs(shown - exact).max() < 0.015


def test_the_end_of_a_profile_is_marked():
    ax = dp.plot.profile(RELEASES, np.linspace(0.0, 2.0, 201))
    ends = [marks.get_offsets()[0] for marks in ax.collections]
    assert len(ends) == 1
    assert 0.98 <= ends[0][0] < 1.0  # the Laplace has delta 0 from 1 on


def test_what_no_double_holds_is_drawn():
    """With delta labelled in powers of ten."""
    ax = dp.plot.profile(RELEASES, np.array([0.0, 60.0]))
    assert np.asarray(ax.lines[0].get_ydata())[1] < -700
    assert np.isnan(np.asarray(ax.lines[1].get_ydata())[1])
    ax.figure.canvas.draw()
    assert "$10^{-200}$" in [label.get_text() for label in ax.get_yticklabels()]


def test_a_peak_is_drawn():
    ax = dp.plot.density({"a": dp.Laplace(1.0)})
    assert np.max(ax.lines[0].get_ydata()) == pytest.approx(0.5, rel=1e-12)


def test_noise_on_the_integers_has_its_probabilities():
    noises = {"a": dp.DiscreteGaussian(2.0), "b": dp.DiscreteLaplace(0.2)}
    for x in (None, np.linspace(-7.0, 7.0, 50)):
        ax = dp.plot.density(noises, x)
        for line in ax.lines:
            np.testing.assert_array_equal(line.get_xdata(), np.arange(-7.0, 8.0))
            assert np.sum(line.get_ydata()) == pytest.approx(1.0, abs=1e-3)
        assert ax.get_ylabel() == "probability $p(x)$"
    ax = dp.plot.density({"a": dp.DiscreteGaussian(1e6), "b": dp.Laplace(1e6)})
    assert np.all(ax.lines[0].get_ydata() > 0)
    assert ax.get_ylabel() == "density or probability $p(x)$"


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda: dp.plot.epsilon_by_step({}, 9, 1e-6), "steps"),
        (lambda: dp.plot.epsilon_by_step({"a": STEP}, 0, 1e-6), "count"),
        (lambda: dp.plot.density({}), "noises"),
        (lambda: dp.plot.training({}), "curves"),
    ],
)
def test_pictures_of_nothing_are_refused(draw, name):
    before = pyplot.get_fignums()
    with pytest.raises(ValueError, match=name):
        draw()
    assert pyplot.get_fignums() == before
