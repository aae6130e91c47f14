"""Plots of guarantees, noises and trainings, on given or new axes. Needs the extra `plot`.

Colours, lines and grids are those of matplotlib's settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxdp import risk
from jaxdp._core import checks
from jaxdp._core.types import ArrayLike
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.guarantee.base import require_profile
from jaxdp.mechanism import Mechanism
from jaxdp.noise.base import Noise

# Points of a line. chosen: odd, so that a peak in the middle is one of them
_POINTS = 401
# Steps of a training with an epsilon. chosen: a line that looks smooth
_STEPS = 64
# Most dots of a line. chosen: more would touch
_DOTS = 101
# Names of heights by `on_integers`.
_HEIGHTS = {"density": False, "probability": True}
# Probability that the picture of a density leaves out on either side. chosen: not to be seen
_TAIL = 1e-4
# From natural logarithms to powers of ten. derived
_LOG_10 = float(np.log(10.0))
# False-positive rates of linear axes, closer near 0. chosen: chords of the trade-off function of a
# mu up to 8, which is convex, are at most .01 above it
_RATES = np.concatenate([[0.0], np.geomspace(1e-16, 0.1, 56), np.linspace(0.1, 1.0, 46)[1:]])
# False-positive rates of logarithmic axes. chosen: they start below 1e-6, so that a delta of 1e-6
# is visible; few, because each one needs a search
_SMALL = np.geomspace(1e-8, 1.0, 101)


def profile(
    releases: Mapping[str, risk.HasProfile], epsilon: ArrayLike | None = None, *, ax: Any = None
) -> Any:
    """Plot delta against epsilon, one line per release, with delta in powers of ten.

    Args:
        releases: labels and releases, each with `log_delta`.
        epsilon: values of epsilon in nats; 0 to 8 if None.
        ax: axes to draw on; None: a new figure.

    Returns:
        The axes. The y coordinate is log10 of delta, because no double holds a delta below 1e-308.
        A dot marks the end of a line: beyond it delta is 0, as for a Laplace.

    >>> import jaxdp as dp
    >>> axes = dp.plot.profile({"mu = 1": dp.GDP(1.0), "mu = 2": dp.GDP(2.0)})
    >>> axes.get_title(), len(axes.lines)
    ('Privacy profiles', 2)
    """
    check_mapping("releases", releases, "mechanism")
    ax = axes_of(ax)
    x = np.linspace(0.0, 8.0, _POINTS) if epsilon is None else np.asarray(epsilon)
    for label, release in releases.items():
        y = np.asarray(release.log_delta(x)) / _LOG_10
        shown = np.isfinite(y)
        (line,) = ax.plot(x, np.where(shown, y, np.nan), label=label)
        if shown.any() and not shown[np.argmax(x)]:
            end = np.argmax(np.where(shown, x, -np.inf))
            ax.scatter(x[end], y[end], s=24.0, color=line.get_color(), zorder=3.0)
    ax.yaxis.set_major_formatter(lambda y, _: f"$10^{{{y:g}}}$")
    return labelled(ax, r"$\varepsilon$ (nats)", r"$\delta$", "Privacy profiles", "release")


def epsilon_by_step(
    steps: Mapping[str, Mechanism | PrivacyLoss], count: int, delta: float, *, ax: Any = None
) -> Any:
    """Plot epsilon after each step of a training, at one delta.

    Args:
        steps: labels and trainings, each given by one of its steps.
        count: number of steps.
        delta: a probability.
        ax: axes to draw on; None: a new figure.

    Returns:
        The axes.

    >>> import jaxdp as dp
    >>> step = dp.Mechanism(dp.Gaussian(9.0), 1.0)
    >>> axes = dp.plot.epsilon_by_step({"every record": step}, 5, 1e-5)
    >>> axes.get_xlabel()
    'steps'
    """
    check_mapping("steps", steps, "step")
    checks.whole("count", count, 1.0)
    ax = axes_of(ax)
    # Epsilon grows like a root at first, so most of the steps are early ones.
    at = np.unique(np.round(1 + (count - 1) * np.linspace(0.0, 1.0, min(count, _STEPS)) ** 2))
    for label, step in steps.items():
        loss = step if isinstance(step, PrivacyLoss) else privacy_loss(step)
        ax.plot(at, np.asarray((at * loss).epsilon(delta)), label=label)
    whole_ticks(ax)
    y = rf"$\varepsilon$ at $\delta = {delta:g}$"
    return labelled(ax, "steps", y, "Epsilon of a training", "training")


def density(noises: Mapping[str, Noise], x: ArrayLike | None = None, *, ax: Any = None) -> Any:
    """Plot the densities of noises, on the integers their probabilities.

    Args:
        noises: labels and noises, one each.
        x: values of the noise; if None, up to the quantile 1 - 1e-4 of the widest noise.
        ax: axes to draw on; None: a new figure.

    Returns:
        The axes. Noise on the integers has a dot at the whole number next to each x.

    >>> import jaxdp as dp
    >>> axes = dp.plot.density({"Gaussian": dp.Gaussian(1.0), "Laplace": dp.Laplace(1.0)})
    >>> axes.get_xlabel()
    'noise $x$'
    """
    check_mapping("noises", noises, "noise")
    ax = axes_of(ax)
    if x is None:
        reach = max(float(noise.quantile(1.0 - _TAIL)) for noise in noises.values())
        places = np.linspace(-reach, reach, _POINTS)
    else:
        places = np.asarray(x)
    for label, noise in noises.items():
        at = np.unique(np.round(places)) if noise.on_integers else places
        marker = "o" if noise.on_integers and at.size <= _DOTS else None
        density = np.exp(np.asarray(noise.log_density(at)))
        ax.plot(at, density, label=label, marker=marker, markersize=3.0)
    ax.set_ylim(bottom=0.0)
    kinds = {noise.on_integers for noise in noises.values()}
    y = " or ".join(name for name, kind in _HEIGHTS.items() if kind in kinds)
    return labelled(ax, "noise $x$", f"{y} $p(x)$", "Densities", "noise")


def training(
    curves: Mapping[str, np.ndarray], title: str = "Error after each pass", *, ax: Any = None
) -> Any:
    """Plot relative errors after each pass: the mean over the first axis of each curve.

    Args:
        curves: labels and arrays (passes,) or (seeds, passes).
        title: title of the plot.
        ax: axes to draw on; None: a new figure.

    Returns:
        The axes, with errors on a logarithmic scale.

    >>> import numpy as np
    >>> import jaxdp as dp
    >>> axes = dp.plot.training({"private": np.array([[0.5, 0.2], [0.7, 0.4]])})
    >>> axes.get_xlabel(), axes.get_yscale()
    ('passes', 'log')
    """
    check_mapping("curves", curves, "curve")
    ax = axes_of(ax)
    for label, curve in curves.items():
        passes = np.arange(1, curve.shape[-1] + 1)
        ax.plot(passes, np.mean(np.atleast_2d(curve), axis=0), label=label)
    ax.set_yscale("log")
    whole_ticks(ax)
    return labelled(ax, "passes", "relative error", title, "training")


def tradeoff(releases: Mapping[str, risk.HasProfile], *, ax: Any = None) -> Any:
    """Plot the error rates of the best membership test under each release.

    The linear axes show the false-negative rate against the false-positive rate. There a delta of
    1e-4 looks like a delta of 0. The logarithmic axes show the true-positive rate, for
    false-positive rates from 1e-8 on: it tends to delta as the false-positive rate falls.

    Args:
        releases: labels and releases, each with `log_delta`.
        ax: linear axes to draw on; None: a new figure, with a second, logarithmic panel.

    Returns:
        The linear axes, with the line of random guessing. Every line is on the safe side at its
        points: on linear axes at most about .005 below the trade-off function, on logarithmic axes
        with true-positive rates at most 1 % too high.

    >>> import jaxdp as dp
    >>> axes = dp.plot.tradeoff({"mu = 1": dp.GDP(1.0)})
    >>> axes.get_xlabel(), axes.get_ylabel()
    ('false-positive rate', 'false-negative rate')
    >>> axes.figure.axes[1].get_xscale()
    'log'
    """
    check_mapping("releases", releases, "mechanism")
    near = None
    if ax is None:
        pyplot = checks.extra("matplotlib.pyplot", "plot")
        _, (ax, near) = pyplot.subplots(1, 2, figsize=(9.6, 4.8), layout="constrained")
    for label, release in releases.items():
        ax.plot(_RATES, 1.0 - np.asarray(risk.tpr_at_fpr(release, _RATES)), label=label)
        if near is not None:
            near.loglog(_SMALL, np.asarray(risk.tpr_at_fpr(release, _SMALL)), label=label)
    x = "false-positive rate"
    if near is not None:
        near.loglog(_SMALL, _SMALL, color="0.6", label="random guessing")
        labelled(near, x, "true-positive rate", "Near 0", "release")
    ax.plot([0.0, 1.0], [1.0, 0.0], color="0.6", label="random guessing")
    ax.set_aspect("equal")
    return labelled(ax, x, "false-negative rate", "Trade-off functions", "release")


def axes_of(ax: Any) -> Any:
    """`ax`, or new axes."""
    pyplot = checks.extra("matplotlib.pyplot", "plot")
    return pyplot.subplots(layout="constrained")[1] if ax is None else ax


def labelled(ax: Any, x: str, y: str, title: str, heading: str) -> Any:
    """Names of both axes, a title unless `ax` has one, and a legend where lines are least."""
    ax.set(xlabel=x, ylabel=y, title=ax.get_title() or title)
    ax.legend(loc="best", title=heading)
    return ax


def whole_ticks(ax: Any) -> None:
    """Put ticks at whole passes or steps only: no label between two."""
    ticker = checks.extra("matplotlib.ticker", "plot")
    ax.xaxis.set_major_locator(ticker.MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))


def check_mapping(name: str, entries: object, what: str) -> None:
    """Refuse a picture of nothing, of what has no label, and of a batch under one label."""
    form = f"{name} must map labels to one {what} each: give {{label: {what}}}"
    if not isinstance(entries, Mapping) or not entries:
        raise ValueError(f"{form}, got {entries!r}")
    for label, entry in entries.items():
        if what in ("mechanism", "step") and not isinstance(entry, PrivacyLoss):
            require_profile(f"{name}[{label!r}]", entry)
        if what == "noise" and not isinstance(entry, Noise):
            raise ValueError(f"{form}, got {entry!r} for {label!r}")
        shapes = (np.shape(leaf) for leaf in jax.tree.leaves(entry) if hasattr(leaf, "shape"))
        shape = getattr(entry, "shape", None)
        shape = np.broadcast_shapes(*shapes) if shape is None else shape
        if what != "curve" and shape != ():
            raise ValueError(f"{form}, got a batch of shape {shape} for {label!r}")
