"""What all pictures share: colours, line styles and axes; no setting outlives a picture."""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from jaxdp import _check

Arguments = ParamSpec("Arguments")

# Okabe and Ito's colours, apart for the colour-blind, the palest left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# As many styles, so that lines differ in print as well.
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
SETTINGS = {
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
}


def styled(draw: Callable[Arguments, Any]) -> Callable[Arguments, Any]:
    """`draw` under the settings of all pictures; matplotlib's own stay as they are."""

    @wraps(draw)
    def drawn(*args: Arguments.args, **named: Arguments.kwargs) -> Any:
        matplotlib = _check.extra("matplotlib", "plot")
        cycler = _check.extra("cycler", "plot").cycler
        cycle = cycler(color=COLOURS) + cycler(linestyle=DASHES)
        with matplotlib.rc_context({**SETTINGS, "axes.prop_cycle": cycle}):
            return draw(*args, **named)

    return drawn


def axes_of(ax: Any) -> Any:
    """`ax`, or that of a new figure; lines in the colours and styles of all pictures."""
    if ax is None:
        pyplot = _check.extra("matplotlib.pyplot", "plot")
        _, ax = pyplot.subplots(layout="constrained")
    cycler = _check.extra("cycler", "plot").cycler
    ax.set_prop_cycle(cycler(color=COLOURS) + cycler(linestyle=DASHES))
    return ax


def labelled(ax: Any, x: str, y: str, title: str | None = None) -> Any:
    """Names of both axes, and a legend where lines are least."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if title is not None:
        ax.set_title(title)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="best")
    return ax
