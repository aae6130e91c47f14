"""Pictures that set families of noise beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp._core.types import ArrayLike
from jaxdp.design.compare import Comparison
from jaxdp.design.fit import fit_noise
from jaxdp.guarantee.base import Budget
from jaxdp.plot.style import (
    COLOURS,
    axes_of,
    check_names,
    family_name,
    increasing,
    labelled,
    plain_ticks,
    power,
    styled,
)


@styled
def compare(comparison: Comparison, *, ax: Any = None) -> Any:
    """Draw the variances of a `dp.compare` table relative to the Gaussian's, the least on top.

    Args:
        comparison: what `dp.compare` returned.
        ax: axes to draw on; those of a new figure if None.

    Returns:
        The axes.

    >>> import jaxdp as dp
    >>> table = dp.compare((1.0, 1e-5), 1.0, families=["laplace", "gaussian"])
    >>> axes = dp.plot.compare(table)
    >>> [label.get_text() for label in axes.get_yticklabels()]
    ['Gaussian', 'Laplace']
    """
    if not isinstance(comparison, Comparison):
        raise TypeError(f"comparison must be what dp.compare returned, got {comparison!r}")
    ax = axes_of(ax)
    rows = comparison.rows[::-1]
    names = [family_name(row.family) for row in rows]
    ratios = [row.ratio_to_gaussian for row in rows]
    bars = ax.barh(names, ratios, color=COLOURS[0])
    ax.bar_label(bars, fmt="%.3g", padding=3)
    ax.axvline(1.0, color="0.4", linestyle="--", linewidth=1.0)
    ax.grid(False, axis="y")
    ax.margins(x=0.12)
    return labelled(ax, "variance / that of the Gaussian", "", "Least noise for a budget")


@styled
def winners(
    families: Sequence[str],
    epsilon: ArrayLike,
    count: ArrayLike,
    delta: float,
    sensitivity: float = 1.0,
    *,
    ax: Any = None,
) -> Any:
    """Draw which family has the least variance, over epsilon and the number of releases.

    Args:
        families: names as in `fit_noise`, at most seven.
        epsilon, count: increasing vectors, both drawn on logarithmic axes. Families other than the
            Gaussian take about a second a point on one core where count is above 1.
        delta, sensitivity: of every budget and release.
        ax: axes to draw on; those of a new figure if None.

    Returns:
        The axes, beside them a patch of colour a family. White: none meets the budget.

    >>> import jaxdp as dp
    >>> axes = dp.plot.winners(["gaussian", "laplace"], [0.5, 1.0, 2.0], [1], 1e-5)
    >>> axes.get_ylabel()
    'releases'
    """
    check_names("families", families)
    if len(families) > len(COLOURS):
        raise ValueError(f"families must be 1 to {len(COLOURS)} names, got {len(families)}")
    colours = checks.extra("matplotlib.colors", "plot")
    patches = checks.extra("matplotlib.patches", "plot")
    x, y = increasing("epsilon", epsilon), increasing("count", count)
    ax = axes_of(ax)
    budget = Budget(x[None, :], delta)
    errors = []
    for family in families:
        variance = np.asarray(fit_noise(family, budget, sensitivity, y[:, None]).variance())
        errors.append(np.broadcast_to(variance, (y.size, x.size)))
    table = np.stack(errors)
    # What cannot meet a budget has an infinite error or none at all, and never wins.
    table = np.where(np.isfinite(table), table, np.inf)
    least = np.ma.masked_array(np.argmin(table, axis=0), mask=np.isinf(table).all(axis=0))
    palette = colours.ListedColormap(COLOURS[: len(families)])
    ends = {"vmin": -0.5, "vmax": len(families) - 0.5}
    ax.pcolormesh(_edges(x), _edges(y), least, cmap=palette, shading="flat", **ends)
    ax.set_xscale("log")
    ax.set_yscale("log")
    plain_ticks(ax.xaxis)
    ax.grid(False)
    names = [family_name(family) for family in families]
    handles = [patches.Patch(color=c, label=n) for c, n in zip(COLOURS, names, strict=False)]
    x_label = rf"$\varepsilon$ at $\delta = {power(delta)}$"
    labelled(ax, x_label, "releases", "Least variance for a budget")
    ax.legend(handles=handles, title="noise", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ax


def _edges(places: np.ndarray) -> np.ndarray:
    """Ends of cells around `places`, in the middle of two on a logarithmic axis."""
    logs = np.log(places)
    steps = np.diff(logs) if logs.size > 1 else np.array([1.0])
    first, last = logs[0] - steps[0] / 2, logs[-1] + steps[-1] / 2
    return np.exp(np.concatenate([[first], (logs[1:] + logs[:-1]) / 2, [last]]))
