"""Sliders in a notebook: the privacy of a training by DP-SGD, and of one noisy answer.

Needs the extra `notebook`. Each move of a slider computes every number anew. `docs/try.html` has
the same sliders on stored numbers, without Python.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable
from typing import Any

from jaxdp import dpsgd, risk
from jaxdp._core import checks
from jaxdp.design.fit import fit_noise
from jaxdp.dpsgd.statement import rounded_up
from jaxdp.mechanism import Mechanism
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace

# Positions of the sliders: noise multipliers, batches, records, epochs, scales, sensitivities and
# deltas. chosen: usual settings; batches over records are powers of two over 1000
NOISES = [0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4]
NOISES += [1.5, 1.6, 1.8, 2.0, 2.2, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0]
BATCHES = [2**k for k in range(4, 17)]
RECORDS = [1000 * 2**k for k in range(14)]
EPOCHS = [1, 2, 3, 5, 8, 10, 15, 20, 30, 40, 60, 80, 100, 150, 200, 300]
SCALES = [float(f"{m}e{k}") for k in (-1, 0, 1, 2) for m in (1, 1.5, 2, 3, 4, 5, 7)] + [1000.0]
SENSITIVITIES = [float(f"{m}e{k}") for k in (-1, 0, 1) for m in (1, 2, 3, 5)] + [100.0]
DELTAS = [1e-4, 1e-5, 1e-6, 1e-7, 1e-8]
_WANTED = [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 4, 5, 7, 10]
_KINDS: dict[str, Any] = {"Gaussian": Gaussian, "Laplace": Laplace}
# Share of the others that the attacker accuses wrongly. chosen: 1 in 1,000, as on the page
_RATE = 1e-3
# Label, positions and start of each slider.
_TARGETS = {"delta": ("Delta", DELTAS, 1e-5), "wanted": ("Wanted epsilon", _WANTED, 2)}
_TRAINING = {
    "noise": ("Noise multiplier", NOISES, 1.1),
    "batch": ("Batch (expected)", BATCHES, 256),
    "records": ("Records", RECORDS, 64_000),
    "epochs": ("Epochs", EPOCHS, 15),
    **_TARGETS,
}
_ANSWER = {
    "scale": ("Scale of the noise", SCALES, 4.0),
    "sensitivity": ("Sensitivity", SENSITIVITIES, 1.0),
    **_TARGETS,
}


_Number = int | float
# A release and its line of Python, the name of its noise, the least noise and its line.
_Asked = tuple[Any, str, str, Callable[..., Any], str]


def _asked_of_training(noise: _Number, batch: _Number, records: _Number, epochs: _Number) -> _Asked:
    sizes: Any = {"dataset_size": records, "batch_size": batch, "epochs": epochs}
    written = ", ".join(f"{name}={value}" for name, value in sizes.items())
    return (
        dpsgd.Phase(noise, **sizes).loss("add_remove"),
        f'dp.dpsgd.Phase({noise}, {written}).loss("add_remove")',
        "noise multiplier",
        lambda epsilon, delta: dpsgd.noise_multiplier(epsilon, delta, **sizes),
        f"dp.dpsgd.noise_multiplier({{}}, {{}}, {written})",
    )


def _asked_of_answer(kind: str, scale: _Number, sensitivity: _Number) -> _Asked:
    least: Any = fit_noise  # of these families, a noise with a scale
    return (
        Mechanism(_KINDS[kind](scale), sensitivity),
        f"dp.Mechanism(dp.{kind}({scale}), {sensitivity})",
        "scale",
        lambda epsilon, delta: least(kind.lower(), (epsilon, delta), sensitivity).scale,
        f'dp.fit_noise("{kind.lower()}", ({{}}, {{}}), {sensitivity}).scale',
    )


def _answer(asked: _Asked, delta: _Number, wanted: _Number) -> str:
    """Risks and noise in words, and the lines of Python."""
    release, line, noise, least_of, least_line = asked
    epsilon, advantage = float(release.epsilon(delta)), float(risk.advantage(release))
    found, least = float(risk.tpr_at_fpr(release, _RATE)), float(least_of(wanted, delta))
    enough = f"at least {rounded_up(least, 6)}" if least < math.inf else "none is large enough"
    return (
        f"ε ≤ {rounded_up(epsilon, 5)} at δ = {delta}\n"
        f"Advantage {rounded_up(advantage, 4)}: an attacker who starts from even odds, and must "
        "say whether one person's record was used, is right in at most "
        f"{rounded_up(50.0 + 50.0 * advantage, 4)} % of the cases. Guessing is right in 50 %.\n"
        "An attacker who accuses 1 in 1,000 people wrongly finds at most "
        f"{rounded_up(1000.0 * found, 4)} in 1,000 of those whose records were used.\n"
        f"The {noise} for ε ≤ {wanted} at this δ: {enough}.\n"
        f"import jaxdp as dp\nrelease = {line}\n"
        f"release.epsilon({delta})  # {epsilon}\n"
        f"dp.risk.advantage(release)  # {advantage}\n"
        f"dp.risk.tpr_at_fpr(release, {_RATE})  # {found}\n"
        f"{least_line.format(wanted, delta)}  # {least}"
    )


def _panel(ask: Callable[..., _Asked], sliders: dict[str, Any], **more: Any) -> Any:
    """Sliders over the answer to their numbers; `more` are choices of `ask`."""
    widgets = checks.extra("ipywidgets", "notebook")
    output = widgets.HTML()

    def show(delta: _Number, wanted: _Number, **entered: Any) -> str:
        output.value = ""  # whatever is raised, nothing stays of earlier numbers
        try:
            words = _answer(ask(**entered), delta, wanted)
        except ValueError as error:  # of numbers that do not go together
            words = str(error)
        output.value = f'<div style="white-space: pre-wrap">{html.escape(words)}</div>'
        return words

    made = {
        name: widgets.SelectionSlider(
            options=points, value=start, description=label, style={"description_width": "9em"}
        )
        for name, (label, points, start) in sliders.items()
    }
    panel = widgets.interactive(show, clear_output=False, **more, **made)
    panel.children = (*panel.children, output)
    bundle = panel._repr_mimebundle_
    # The answer alone where no widget can be shown, as in a stored notebook.
    panel._repr_mimebundle_ = lambda **named: {**bundle(**named), "text/plain": panel.result}
    return panel


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
    return _panel(_asked_of_training, _TRAINING)


def release() -> Any:
    """Sliders for one answer with Gaussian or Laplace noise: its scale and its sensitivity.

    Returns:
        A panel as that of `training`.

    >>> import jaxdp as dp
    >>> panel = dp.explore.release()
    >>> print(panel.result.splitlines()[0])
    ε ≤ 0.92635 at δ = 1e-05
    """
    return _panel(_asked_of_answer, _ANSWER, kind=[*_KINDS])
