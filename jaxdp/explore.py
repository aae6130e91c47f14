"""Sliders in a notebook: the privacy of a training by DP-SGD.

Needs the extra `notebook`. Each move of a slider computes every number anew. `docs/try.html` has
the same sliders on stored numbers, without Python.
"""

from __future__ import annotations

import html
import math
from typing import Any

from jaxdp import dpsgd, risk
from jaxdp._core import checks
from jaxdp.dpsgd.statement import rounded_up

# Positions of the sliders: noise multipliers, batches, records, epochs and deltas. chosen: usual
# settings; batches over records are powers of two over 1000
NOISES = [0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4]
NOISES += [1.5, 1.6, 1.8, 2.0, 2.2, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0]
BATCHES = [2**k for k in range(4, 17)]
RECORDS = [1000 * 2**k for k in range(14)]
EPOCHS = [1, 2, 3, 5, 8, 10, 15, 20, 30, 40, 60, 80, 100, 150, 200, 300]
DELTAS = [1e-4, 1e-5, 1e-6, 1e-7, 1e-8]
_WANTED = [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10]
# Share of the others that the attacker accuses wrongly. chosen: 1 in 1,000, as on the page
_RATE = 1e-3
# Label, positions and start of each slider.
_SLIDERS = {
    "noise": ("Noise multiplier", NOISES, 1.1),
    "batch": ("Batch (expected)", BATCHES, 256),
    "records": ("Records", RECORDS, 64_000),
    "epochs": ("Epochs", EPOCHS, 15),
    "delta": ("Delta", DELTAS, 1e-5),
    "wanted": ("Wanted epsilon", _WANTED, 2),
}


def training() -> Any:
    """Sliders for a training by DP-SGD: noise multiplier, batch, records, epochs, and targets.

    Returns:
        An `ipywidgets.interactive`, whose `result` is the text: epsilon at the chosen delta, the
        advantage and the findings of an attacker, the least noise multiplier for a wanted epsilon,
        and the Python that computes these numbers, for numbers between the positions. Numbers in
        the text are upper bounds, rounded up; the comments of the Python have every digit. Batches
        are Poisson samples, and neighbours differ by one record more or less.

    Numbers that do not go together give a sentence and no number. `ImportError` without ipywidgets
    (extra `notebook`).

    >>> import jaxdp as dp
    >>> panel = dp.explore.training()
    >>> print(panel.result.splitlines()[0])
    ε ≤ 1.0926 at δ = 1e-05
    """
    widgets = checks.extra("ipywidgets", "notebook")
    output = widgets.HTML()

    def show(**entered: Any) -> str:
        output.value = ""  # whatever is raised, nothing stays of earlier numbers
        try:
            words = _answer(**entered)
        except ValueError as error:  # of numbers that do not go together
            words = str(error)
        output.value = f'<div style="white-space: pre-wrap">{html.escape(words)}</div>'
        return words

    made = {
        name: widgets.SelectionSlider(
            options=points, value=start, description=label, style={"description_width": "9em"}
        )
        for name, (label, points, start) in _SLIDERS.items()
    }
    panel = widgets.interactive(show, clear_output=False, **made)
    panel.children = (*panel.children, output)
    bundle = panel._repr_mimebundle_
    # The answer alone where no widget can be shown, as in a stored notebook.
    panel._repr_mimebundle_ = lambda **named: {**bundle(**named), "text/plain": panel.result}
    return panel


def _answer(
    noise: float, batch: int, records: int, epochs: int, delta: float, wanted: int | float
) -> str:
    """Risks and noise in words, and the lines of Python."""
    sizes: Any = {"dataset_size": records, "batch_size": batch, "epochs": epochs}
    written = ", ".join(f"{name}={value}" for name, value in sizes.items())
    release = dpsgd.Phase(noise, **sizes).loss("add_remove")
    epsilon, advantage = float(release.epsilon(delta)), float(risk.advantage(release))
    found = float(risk.tpr_at_fpr(release, _RATE))
    least = float(dpsgd.noise_multiplier(wanted, delta, **sizes))
    enough = f"at least {rounded_up(least, 6)}" if least < math.inf else "none is large enough"
    return (
        f"ε ≤ {rounded_up(epsilon, 5)} at δ = {delta}\n"
        f"Advantage {rounded_up(advantage, 4)}: an attacker who starts from even odds, and must "
        "say whether one person's record was used, is right in at most "
        f"{rounded_up(50.0 + 50.0 * advantage, 4)} % of the cases. Guessing is right in 50 %.\n"
        "An attacker who accuses 1 in 1,000 people wrongly finds at most "
        f"{rounded_up(1000.0 * found, 4)} in 1,000 of those whose records were used.\n"
        f"The noise multiplier for ε ≤ {wanted} at this δ: {enough}.\n"
        "import jaxdp as dp\n"
        f'release = dp.dpsgd.Phase({noise}, {written}).loss("add_remove")\n'
        f"release.epsilon({delta})  # {epsilon}\n"
        f"dp.risk.advantage(release)  # {advantage}\n"
        f"dp.risk.tpr_at_fpr(release, {_RATE})  # {found}\n"
        f"dp.dpsgd.noise_multiplier({wanted}, {delta}, {written})  # {least}"
    )
