"""What the published figures share: names and looks of the families, axes, a legend, results."""

import json
from functools import cache
from typing import Any

import numpy as np
from cycler import cycler
from matplotlib import pyplot

from benchmarks._tools.measure import RESULTS

# Okabe and Ito's colours, apart for the colour-blind, the palest left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
# As many styles, so that lines differ in print as well.
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
pyplot.rc("axes", prop_cycle=cycler(color=COLOURS) + cycler(linestyle=DASHES), grid=True)
# Published names of the families; the order decides which colour each has.
LABELS = {
    "gaussian": "Gaussian",
    "laplace": "Laplace",
    "flipped_huber": "flipped Huber",
    "offset_gaussian": "OSGT",
    "subbotin": "Subbotin",
    "truncated_laplace": "truncated Laplace",
    "staircase": "staircase",
}
# One colour and style a family in every figure, so that figures can be compared.
LOOKS = {
    name: {"color": colour, "linestyle": dash, "label": label}
    for (name, label), colour, dash in zip(LABELS.items(), COLOURS, DASHES, strict=True)
}
# Of the slides and, as far as it is printed, of the i.n.i.d. paper.
DELTA = 1e-6
# Budgets of one answer: a single batch, so that each family compiles once; 2 is one of them.
EPSILONS = np.unique(np.append(np.geomspace(0.1, 10.0, 24), 2.0))


@cache
def stored(name: str) -> Any:
    """A committed file of results."""
    return json.loads((RESULTS / f"{name}_reproduced.json").read_text())


def panels(count: int = 1, width: float = 4.4) -> tuple[Any, list[Any]]:
    """A figure of `count` axes side by side, each `width` inches wide."""
    size = (1.2 + width * count, 4.2)
    figure, axes = pyplot.subplots(1, count, figsize=size, layout="constrained", squeeze=False)
    return figure, list(axes[0])


def finished(figure: Any, x: str, y: str, columns: int = 4) -> Any:
    """The same names on all axes, and one legend below them, which covers no line."""
    for ax in figure.axes:
        ax.set(xlabel=x, ylabel=y)
        if ax.get_legend() is not None:
            ax.get_legend().remove()
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=columns
    )
    return figure
