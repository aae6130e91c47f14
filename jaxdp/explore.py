"""Sliders in a notebook: the privacy of a training by DP-SGD, and of one noisy answer.

Needs the extra `notebook`. Each move of a slider computes every number anew. `docs/try.html` has
the same sliders on stored numbers, without Python.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

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
# Deltas of the picture. measured: 24 share a grid and take less time than 11
_PROFILE = np.geomspace(0.5, 1e-8, 24)
_RATES = np.geomspace(1e-4, 1.0, 61)  # its rates of wrong accusations. chosen
_SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="380" height="245" fill="currentColor">'


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


def _answers(asked: _Asked, delta: _Number, wanted: _Number) -> Iterator[str]:
    """Risks and noise in words, the lines of Python, a picture: each as soon as it is known."""
    release, line, noise, least_of, least_line = asked
    epsilon, advantage = float(release.epsilon(delta)), float(risk.advantage(release))
    yield (
        f"ε ≤ {rounded_up(epsilon, 5)} at δ = {delta}\n"
        f"Advantage {rounded_up(advantage, 4)}: an attacker who starts from even odds, and must "
        "say whether one person's record was used, is right in at most "
        f"{rounded_up(50.0 + 50.0 * advantage, 4)} % of the cases. Guessing is right in 50 %."
    )
    found, least = float(risk.tpr_at_fpr(release, _RATE)), float(least_of(wanted, delta))
    enough = f"at least {rounded_up(least, 6)}" if least < math.inf else "none is large enough"
    yield (
        "An attacker who accuses 1 in 1,000 people wrongly finds at most "
        f"{rounded_up(1000.0 * found, 4)} in 1,000 of those whose records were used.\n"
        f"The {noise} for ε ≤ {wanted} at this δ: {enough}."
    )
    yield (
        f"import jaxdp as dp\nrelease = {line}\n"
        f"release.epsilon({delta})  # {epsilon}\n"
        f"dp.risk.advantage(release)  # {advantage}\n"
        f"dp.risk.tpr_at_fpr(release, {_RATE})  # {found}\n"
        f"{least_line.format(wanted, delta)}  # {least}"
    )
    at = np.asarray(release.epsilon(_PROFILE))
    known = (at > 0.0) & (at < math.inf)
    yield _picture(np.append(0.0, at[known]), np.append(advantage, _PROFILE[known]), found)


def _picture(epsilon: np.ndarray, delta: np.ndarray, found: float) -> str:
    """The trade-off of the best attack as SVG in the colour of the text, and a dot at `_RATE`."""
    with np.errstate(over="ignore"):
        bounds = np.exp(epsilon)[:, None] * _RATES + delta[:, None]
    others = 1.0 - np.exp(-epsilon)[:, None] * (1.0 - delta[:, None] - _RATES)
    most = np.minimum(bounds, others).min(axis=0)
    title = '<text x="60" y="15">Share found, at most, by share accused wrongly</text>'
    parts = [_SVG, title, '<g fill="none" stroke="currentColor">']
    for shares, dashes in ((most, ""), (_RATES, "4")):
        places = zip(60.0 + 75.0 * _decades(_RATES), 215.0 - 48.0 * _decades(shares), strict=True)
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{points}" stroke-dasharray="{dashes}"/>')
    parts.append('</g><g text-anchor="end">')
    for k in range(5):
        parts.append(f'<text x="{75 + 75 * k}" y="236">1e{k - 4}</text>')
        parts.append(f'<text x="52" y="{219 - 48 * k}">1e{k - 4}</text>')
    dot = 60.0 + 75.0 * _decades(_RATE), 215.0 - 48.0 * _decades(found)
    parts.append('</g><circle cx="{:.1f}" cy="{:.1f}" r="4" fill="#D55E00"/></svg>'.format(*dot))
    return "".join(parts)


def _decades(share: Any) -> Any:
    return np.clip(4.0 + np.log10(np.maximum(share, 1e-4)), 0.0, 4.0)


def _panel(ask: Callable[..., _Asked], sliders: dict[str, Any], **more: Any) -> Any:
    """Sliders over the answers to their numbers; `more` are choices of `ask`."""
    widgets = checks.extra("ipywidgets", "notebook")
    output = widgets.HTML()

    def show(delta: _Number, wanted: _Number, **entered: Any) -> str:
        output.value = ""  # whatever is raised, nothing stays of earlier numbers
        try:
            *words, picture = _answers(ask(**entered), delta, wanted)
        except ValueError as error:  # of numbers that do not go together
            words, picture = [str(error)], ""
        output.value = "".join(map(_as_html, words)) + picture
        return "\n".join(words)

    made = {
        name: widgets.SelectionSlider(
            options=points, value=start, description=label, style={"description_width": "9em"}
        )
        for name, (label, points, start) in sliders.items()
    }
    panel = widgets.interactive(show, clear_output=False, **more, **made)
    panel.children = (*panel.children, output)
    bundle = panel._repr_mimebundle_
    # The answers alone where no widget can be shown, as in a stored notebook.
    panel._repr_mimebundle_ = lambda **named: {
        **bundle(**named), "text/plain": panel.result, "text/html": output.value
    }  # fmt: skip
    return panel


def _as_html(answer: str) -> str:
    """Code and text with their lines."""
    tag = "pre" if answer.startswith("import") else 'div style="white-space: pre-line"'
    return f"<{tag}>{html.escape(answer)}</{tag[:3]}>"


def training() -> Any:
    """Sliders for a training by DP-SGD: noise multiplier, batch, records, epochs, and targets.

    Returns:
        An `ipywidgets.interactive`, whose `result` is the text: epsilon at the chosen delta, the
        advantage and the findings of an attacker, the least noise multiplier for a wanted epsilon,
        and the Python that computes these numbers, for numbers between the positions. The
        trade-off is below it. Numbers in the text are upper bounds, rounded up; the comments of the
        Python have every digit. Batches are Poisson samples, and neighbours differ by one record
        more or less.

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
