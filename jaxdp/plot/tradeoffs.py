"""Plots of trade-off functions: the error rates of the best membership test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp.accountant import evaluate
from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.guarantee.base import require_both_directions
from jaxdp.guarantee.tradeoff import tradeoff_of_profile
from jaxdp.plot.style import axes_of, check_mapping, labelled, styled
from jaxdp.risk import HasProfile

# Points of a line. chosen: few, because each is a bound that needs a search
_POINTS = 101
# False-positive rates of linear axes, closer near 0. chosen: chords of the trade-off function of a
# mu up to 8, which is convex, are at most .01 above it
_RATES = np.concatenate([[0.0], np.geomspace(1e-16, 0.1, 56), np.linspace(0.1, 1.0, 46)[1:]])
# Smallest false-positive rate of logarithmic axes. chosen: below a delta of 1e-6, which shows
_SMALLEST_RATE = 1e-8
# Values of epsilon on logarithmic axes, and the relative error of a rate at each of them. chosen:
# steps of .1, which make a line up to 10 % too high
_EPSILONS, _CLOSE = 186, 1e-2
_TITLE = "Trade-off functions"


@styled
def tradeoff(releases: Mapping[str, HasProfile], *, log: bool = False, ax: Any = None) -> Any:
    """Plot the error rates of the best membership test under each release.

    On linear axes the false-negative rate is plotted against the false-positive rate. There a
    delta of 1e-4 looks like a delta of 0. On logarithmic axes the true-positive rate is plotted,
    which tends to delta as the false-positive rate falls.

    Args:
        releases: labels and releases, each with `log_delta`.
        log: logarithmic axes, from a false-positive rate of 1e-8 on.
        ax: axes to draw on; None: a new figure, with a second, logarithmic panel unless `log`.

    Returns:
        The axes (of two panels the linear ones), with the line of random guessing. Every line is on
        the safe side at its points: on linear axes at most about .005 below the trade-off function,
        on logarithmic axes with true-positive rates at most 11 % too high.

    >>> import jaxdp as dp
    >>> axes = dp.plot.tradeoff({"mu = 1": dp.GDP(1.0)})
    >>> axes.get_xlabel(), axes.get_ylabel(), len(axes.figure.axes)
    ('false-positive rate', 'false-negative rate', 2)
    >>> dp.plot.tradeoff({"mu = 1": dp.GDP(1.0)}, log=True).get_xscale()
    'log'
    """
    check_mapping("releases", releases, "mechanism")
    if log:
        return _near_zero(releases, axes_of(ax))
    if ax is None:
        pyplot = checks.extra("matplotlib.pyplot", "plot")
        _, (ax, near) = pyplot.subplots(1, 2, figsize=(9.6, 4.8), layout="constrained")
        near.set_title("Near 0")
        _near_zero(releases, axes_of(near))
    return _linear(releases, axes_of(ax))


def _linear(releases: Mapping[str, HasProfile], ax: Any) -> Any:
    """False-negative against false-positive rates."""
    rate = _RATES
    for label, release in releases.items():
        if isinstance(release, PrivacyLoss) and not release.shape:
            fnr = np.asarray(release.tradeoff(rate))
        else:
            fnr = np.asarray(tradeoff_of_profile(release.log_delta, rate))
        ax.plot(rate, fnr, label=label)
    ax.plot(
        [0.0, 1.0], [1.0, 0.0], color="0.6", linestyle="-", linewidth=1.0, label="random guessing"
    )
    ax.set_aspect("equal")
    return labelled(ax, "false-positive rate", "false-negative rate", _TITLE, "release")


def _near_zero(releases: Mapping[str, HasProfile], ax: Any) -> Any:
    """True-positive against false-positive rates on logarithmic axes."""
    rate = np.geomspace(_SMALLEST_RATE, 1.0, _POINTS)
    for label, release in releases.items():
        require_both_directions(release)
        ax.plot(rate, _true_positive_rate(release, rate), label=label)
    ax.plot(rate, rate, color="0.6", linestyle="-", linewidth=1.0, label="random guessing")
    ax.set_xscale("log")
    ax.set_yscale("log")
    return labelled(ax, "false-positive rate", "true-positive rate", _TITLE, "release")


def _true_positive_rate(release: HasProfile, rate: np.ndarray) -> np.ndarray:
    """Smallest of the bounds e^epsilon FPR + delta and 1 - e^-epsilon (1 - delta - FPR)."""
    epsilon = np.linspace(0.0, -np.log(_SMALLEST_RATE), _EPSILONS)[:, None]
    if isinstance(release, PrivacyLoss):
        options = release.terms, release.both, epsilon[:, 0], _SMALLEST_RATE, _CLOSE
        log_delta = evaluate.log_delta_for_power(*options)
    else:
        log_delta = release.log_delta(epsilon[:, 0])
    delta = np.exp(np.asarray(log_delta))[:, None]
    bounds = np.exp(epsilon) * rate + delta, 1.0 - np.exp(-epsilon) * (1.0 - delta - rate)
    return np.minimum(np.min(bounds, axis=(0, 1)), 1.0)
