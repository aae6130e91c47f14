"""Pictures of what sampling schemes cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxdp._core import checks
from jaxdp.composition.privacy_loss import PrivacyLoss
from jaxdp.plot.style import COLOURS, axes_of, labelled, power, styled


@styled
def epsilon_by_scheme(losses: Mapping[str, PrivacyLoss], delta: float, *, ax: Any = None) -> Any:
    """Draw epsilon at `delta` of one training as its batches may be drawn, the first on top.

    Args:
        losses: by the name of the scheme; one number each.
        delta: in (0, 1).
        ax: axes to draw on; those of a new figure if None.

    Returns:
        The axes.

    >>> import jaxdp as dp
    >>> losses = {
    ...     name: dp.privacy_loss(dp.Mechanism(dp.Gaussian(4.0), 1.0, rate, "add_remove"))
    ...     for name, rate in (("all records", 1.0), ("every tenth", 0.1))
    ... }
    >>> axes = dp.plot.epsilon_by_scheme(losses, 1e-5)
    >>> [label.get_text() for label in axes.get_yticklabels()]
    ['every tenth', 'all records']
    """
    known = isinstance(losses, Mapping) and len(losses) > 0
    if not known or not all(isinstance(loss, PrivacyLoss) for loss in losses.values()):
        raise TypeError(f"losses must be privacy losses by name, at least one, got {losses!r}")
    target = checks.probability("delta", delta)
    names = list(losses)[::-1]
    values = [float(np.asarray(losses[name].epsilon(target)).item()) for name in names]
    ax = axes_of(ax)
    bars = ax.barh(names, values, color=COLOURS[0])
    ax.bar_label(bars, fmt="%.3g", padding=3)
    ax.grid(False, axis="y")
    ax.margins(x=0.12)
    x = rf"$\varepsilon$ at $\delta = {power(delta)}$"
    return labelled(ax, x, "", "What sampling schemes cost")
