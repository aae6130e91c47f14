"""Style that all pictures share: colours, lines and axes; no setting outlives a picture."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec

import jax
import numpy as np

from jaxdp._core import checks
from jaxdp._core.types import ArrayLike
from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.dpsgd.curve import Curve
from jaxdp.guarantee.base import require_profile
from jaxdp.noise.base import Noise

Arguments = ParamSpec("Arguments")

# Okabe and Ito's colours, apart for the colour-blind, the palest left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# As many styles, so that lines differ in print as well.
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
# Every colour with every style before a look comes back.
_LOOKS = tuple(
    (COLOURS[i % len(COLOURS)], DASHES[(i + i // len(COLOURS)) % len(DASHES)])
    for i in range(len(COLOURS) * len(DASHES))
)
# Settings of matplotlib for one picture. chosen: the data in front, the frame behind
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
        matplotlib = checks.extra("matplotlib", "plot")
        with matplotlib.rc_context(SETTINGS):
            return draw(*args, **named)

    return drawn


def axes_of(ax: Any) -> Any:
    """`ax`, or new axes; the next lines look unlike those already drawn."""
    if ax is None:
        pyplot = checks.extra("matplotlib.pyplot", "plot")
        _, ax = pyplot.subplots(layout="constrained")
    cycler = checks.extra("cycler", "plot").cycler
    start = len(ax.lines) % len(_LOOKS)
    colours, dashes = zip(*_LOOKS[start:], *_LOOKS[:start], strict=True)
    ax.set_prop_cycle(cycler(color=colours) + cycler(linestyle=dashes))
    return ax


def labelled(ax: Any, x: str, y: str, title: str | None, heading: str | None = None) -> Any:
    """Names of both axes, a title unless `ax` has one, and a legend where lines are least."""
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if title is not None and not ax.get_title():
        ax.set_title(title)
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="best", title=heading)
    return ax


def whole_ticks(ax: Any) -> None:
    """Put ticks at whole passes or steps only: no label between two."""
    ticker = checks.extra("matplotlib.ticker", "plot")
    ax.xaxis.set_major_locator(ticker.MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10]))


def plain_ticks(axis: Any) -> None:
    """Ticks at 1, 2 and 5 times powers of ten on a logarithmic axis, written as numbers."""
    ticker = checks.extra("matplotlib.ticker", "plot")
    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(ticker.NullFormatter())


def family_name(family: str) -> str:
    """The name of a family as one writes it: "truncated Laplace" of "truncated_laplace"."""
    people = "gaussian|laplace|huber|subbotin"
    return re.sub(people, lambda name: name[0].capitalize(), family.replace("_", " "))


def power(delta: float) -> str:
    """A probability in TeX."""
    if delta == 0:
        return "0"
    mantissa, exponent = f"{delta:.3e}".split("e")
    digits = f"{float(mantissa):g}"
    written = f"10^{{{int(exponent)}}}"
    return written if digits == "1" else rf"{digits} \times {written}"


def check_mapping(name: str, entries: object, what: str) -> None:
    """Refuse a picture of nothing, of what has no label, and of a batch under one label."""
    form = f"{name} must map labels to one {what} each: give {{label: {what}}}"
    if not isinstance(entries, Mapping) or not entries:
        raise ValueError(f"{form}, got {entries!r}")
    for label, entry in entries.items():
        if what in ("mechanism", "step") and not isinstance(entry, PrivacyLoss | Curve):
            require_profile(f"{name}[{label!r}]", entry)
        if what == "noise" and not isinstance(entry, Noise):
            raise ValueError(f"{form}, got {entry!r} for {label!r}")
        leaves = jax.tree.leaves(entry[1][..., 0] if isinstance(entry, Curve) else entry)
        shapes = (np.shape(leaf) for leaf in leaves if hasattr(leaf, "shape"))
        shape = getattr(entry, "shape", None)
        shape = np.broadcast_shapes(*shapes) if shape is None else shape
        if what != "curve" and shape != ():
            raise ValueError(f"{form}, got a batch of shape {shape} for {label!r}")


def check_names(name: str, entries: Any) -> None:
    """Raise `ValueError` unless `entries` is a list of one name or more."""
    listed = isinstance(entries, Sequence) and not isinstance(entries, str)
    if not listed or not entries or not all(isinstance(entry, str) for entry in entries):
        raise ValueError(f"{name} must be a list of names, as in ['gaussian'], got {entries!r}")


def increasing(name: str, value: ArrayLike) -> np.ndarray:
    """Places along a logarithmic axis."""
    places = np.asarray(checks.positive(name, value))
    if places.ndim != 1 or places.size == 0 or not np.isfinite(places).all():
        raise ValueError(f"{name} must be a vector of finite numbers, got shape {places.shape}")
    if (np.diff(places) <= 0).any():
        raise ValueError(f"{name} must increase, got {places}")
    return places
