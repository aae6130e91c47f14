"""Sliders in a notebook: the privacy of a training by DP-SGD, and of one noisy answer.

Needs the extra `notebook`. Each move of a slider computes every number anew. `docs/try.html` has
the same sliders on stored numbers, without Python.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxdp import risk
from jaxdp._core import checks
from jaxdp.design.fit import fit_noise
from jaxdp.dpsgd.phase import Phase
from jaxdp.dpsgd.queries import noise_multiplier
from jaxdp.dpsgd.statement import rounded_up
from jaxdp.guarantee.base import Budget
from jaxdp.mechanism import Mechanism
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace

# Positions of the sliders. chosen: usual settings; batches over records are powers of two over 1000
NOISES = [0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4]
NOISES += [1.5, 1.6, 1.8, 2.0, 2.2, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 8.0, 10.0]
BATCHES = [2**k for k in range(4, 17)]
RECORDS = [1000 * 2**k for k in range(14)]
EPOCHS = [1, 2, 3, 5, 8, 10, 15, 20, 30, 40, 60, 80, 100, 150, 200, 300]
SCALES = [float(f"{m}e{k}") for k in (-1, 0, 1, 2) for m in (1, 1.5, 2, 3, 4, 5, 7)] + [1000.0]
SENSITIVITIES = [float(f"{m}e{k}") for k in (-1, 0, 1) for m in (1, 2, 3, 5)] + [100.0]
DELTAS = [1e-4, 1e-5, 1e-6, 1e-7, 1e-8]
_WANTED = [0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0]
_KINDS: dict[str, Any] = {"Gaussian": Gaussian, "Laplace": Laplace}
# Share of the others that the attacker accuses wrongly. chosen: 1 in 1,000, as on the page
_RATE = 1e-3
# Deltas and rates of the pictures. measured: 24 deltas share a grid and take less time than 11
_PROFILE, _RATES = np.geomspace(0.5, 1e-8, 24), np.geomspace(1e-4, 1.0, 61)


class _Field(NamedTuple):
    """A number that is entered: its slider's positions, and its range where it is typed."""

    label: str
    points: Sequence[float]
    start: float
    lower: float = 1e-6
    upper: float = 1e9
    is_whole: bool = False

    def parsed(self, text: str) -> float:
        """The number that was typed; `ValueError` with a sentence for the reader."""
        bare = re.sub(r"[\s_]", "", text)
        if re.fullmatch(r"\d{1,3}(,\d{3})+(\.\d*)?", bare):
            bare = bare.replace(",", "")
        try:
            value = float(bare.replace(",", "."))
        except ValueError:
            value = math.nan
        if not self.lower <= value <= self.upper or (self.is_whole and not value.is_integer()):
            kind = "a whole number" if self.is_whole else "a number"
            limits = f"{self.lower:g} to {self.upper:g}"
            raise ValueError(f"{self.label}: enter {kind} from {limits}, not {text[:40]!r}.")
        return int(value) if value.is_integer() else value

    def nearest(self, text: str) -> int | None:
        """The position closest to what was typed; None if that is no number."""
        try:
            value = self.parsed(text)
        except ValueError:
            return None
        return int(np.argmin(np.abs(np.log(np.asarray(self.points) / value))))


_TARGETS = {
    "delta": _Field("Delta", DELTAS, 1e-5, 1e-300, 0.1),
    "wanted": _Field("Wanted epsilon", _WANTED, 2.0),
}
_TRAINING = {
    "noise": _Field("Noise multiplier", NOISES, 1.1, 0.1),
    "batch": _Field("Batch (expected)", BATCHES, 256, 1.0, is_whole=True),
    "records": _Field("Records", RECORDS, 64_000, 1.0, is_whole=True),
    "epochs": _Field("Epochs", EPOCHS, 15, 1e-3, 1e5),
    **_TARGETS,
}
_ANSWER = {
    "scale": _Field("Scale of the noise", SCALES, 4.0),
    "sensitivity": _Field("Sensitivity", SENSITIVITIES, 1.0),
    **_TARGETS,
}


class _Asked(NamedTuple):
    """A release, and the least noise for the wanted epsilon, each with its line of Python."""

    release: Any
    line: str
    noise: str
    least: Callable[[], Any]
    least_line: str


def _asked_of_training(noise: float, batch: float, records: float, epochs: float, **to: Any):
    sizes: Any = {"dataset_size": records, "batch_size": batch, "epochs": epochs}
    written = ", ".join(f"{name}={value}" for name, value in sizes.items())
    return _Asked(
        Phase(noise, **sizes).loss("add_remove"),
        f'dp.dpsgd.Phase({noise}, {written}).loss("add_remove")',
        "noise multiplier",
        lambda: noise_multiplier(to["wanted"], to["delta"], **sizes),
        f"dp.dpsgd.noise_multiplier({to['wanted']}, {to['delta']}, {written})",
    )


def _asked_of_answer(kind: str, scale: float, sensitivity: float, **to: Any):
    return _Asked(
        Mechanism(_KINDS[kind](scale), sensitivity),
        f"dp.Mechanism(dp.{kind}({scale}), {sensitivity})",
        "scale",
        lambda: fit_noise(kind.lower(), Budget(to["wanted"], to["delta"]), sensitivity).scale,
        f'dp.fit_noise("{kind.lower()}", ({to["wanted"]}, {to["delta"]}), {sensitivity}).scale',
    )


def _answers(asked: _Asked, delta: float, wanted: float) -> Iterator[str]:
    """Risks and noise in words, the lines of Python, a picture: each as soon as it is known."""
    epsilon = float(asked.release.epsilon(delta))
    advantage = float(risk.advantage(asked.release))
    yield (
        f"ε ≤ {rounded_up(epsilon, 5)} at δ = {delta:g}\n"
        f"Advantage {rounded_up(advantage, 4)}: an attacker who starts from even odds, and must "
        "say whether one person's record was used, is right in at most "
        f"{rounded_up(50.0 + 50.0 * advantage, 4)} % of the cases. Guessing is right in 50 %."
    )
    found, least = float(risk.tpr_at_fpr(asked.release, _RATE)), float(asked.least())
    enough = f"at least {rounded_up(least, 6)}" if least < math.inf else "none is large enough"
    yield (
        "An attacker who accuses 1 in 1,000 people wrongly finds at most "
        f"{rounded_up(1000.0 * found, 4)} in 1,000 of those whose records were used.\n"
        f"The {asked.noise} for ε ≤ {wanted:g} at this δ: {enough}."
    )
    yield (
        f"import jaxdp as dp\nrelease = {asked.line}\n"
        f"release.epsilon({delta})  # {epsilon}\n"
        f"dp.risk.advantage(release)  # {advantage}\n"
        f"dp.risk.tpr_at_fpr(release, {_RATE})  # {found}\n"
        f"{asked.least_line}  # {least}"
    )
    at = np.asarray(asked.release.epsilon(_PROFILE))
    known = (at > 0.0) & (at < math.inf)
    points = np.append(0.0, at[known]), np.append(advantage, _PROFILE[known])
    yield _pictures(points, (epsilon, delta), found)


def _pictures(
    profile: tuple[np.ndarray, np.ndarray], chosen: tuple[float, float], found: float
) -> str:
    """Profile and trade-off as SVG, in the colour of the text, each with a dot."""
    epsilon, delta = (x[:, None] for x in profile)
    with np.errstate(over="ignore"):
        bounds = np.exp(epsilon) * _RATES + delta
    others = 1.0 - np.exp(-epsilon) * (1.0 - delta - _RATES)
    most = np.minimum(np.minimum(bounds, others).min(axis=0), 1.0)
    largest = max(profile[0][-1], 1e-6)
    unit = 10.0 ** math.floor(math.log10(largest))
    end = next(m * unit for m in (1, 2, 3, 5, 10) if m * unit >= largest)

    def share(x: Any, decades: float) -> np.ndarray:
        return np.clip(1.0 + np.log10(np.maximum(x, 1e-300)) / decades, 0.0, 1.0)

    shares = share(_RATES, 4.0)
    left = _frame(
        (50.0, "Privacy profile: δ by ε (nats)"),
        ({k / 2: f"{k * end / 2:g}" for k in range(3)}, {k / 4: 2 * k - 8 for k in range(5)}),
        {"": (profile[0] / end, share(profile[1], 8.0))},
        (min(chosen[0] / end, 1.0), float(share(chosen[1], 8.0))),
    )
    right = _frame(
        (380.0, "Trade-off: share found by share accused wrongly"),
        ({k / 4: f"{10.0 ** (k - 4):g}" for k in range(5)}, {k / 4: k - 4 for k in range(5)}),
        {"": (shares, share(most, 4.0)), "4": (shares, shares)},
        (float(share(_RATE, 4.0)), float(share(found, 4.0))),
    )
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 230" width="640" role="img" '
    return f'{head}font-size="11" fill="currentColor">{left}{right}</svg>'


def _frame(
    head: tuple[float, str], ticks: tuple[dict, dict], lines: dict[str, Any], dot: tuple[float, float]
) -> str:
    """A picture from x = `head[0]` on: lines by their dashes, and a dot, as shares of the axes."""

    def at(x: float, y: float) -> tuple[float, float]:
        return round(head[0] + 240.0 * x, 1), round(200.0 - 170.0 * y, 1)

    def text(x: float, y: float, words: object, anchor: str = "middle") -> str:
        return '<text x="{}" y="{}" text-anchor="{}">{}</text>'.format(*at(x, y), anchor, words)

    parts = [text(0.5, 1.07, head[1]), *(text(x, -0.1, label) for x, label in ticks[0].items())]
    parts += [text(-0.03, y - 0.02, f"1e{power}", "end") for y, power in ticks[1].items()]
    for dashes, (x, y) in {**lines, "1 0": ((0.0, 0.0, 1.0), (1.0, 0.0, 0.0))}.items():
        points = " ".join("{},{}".format(*at(*pair)) for pair in zip(x, y, strict=True))
        style = f'fill="none" stroke="currentColor" stroke-dasharray="{dashes}"'
        parts.append(f'<polyline points="{points}" {style}/>')
    return "".join(parts) + '<circle cx="{}" cy="{}" r="4" fill="#D55E00"/>'.format(*at(*dot))


class Panel:
    """Sliders, fields for typed numbers, and the answers below them.

    A notebook shows the panel. `controls` has the slider and the field of each number by name,
    `kind` the choice of a noise (or None), `text` the answers, and `box` the widget of them all.
    """

    def __init__(self, fields: dict[str, _Field], ask: Callable[..., _Asked], kinds: Any = ()):
        widgets = checks.extra("ipywidgets", "notebook")
        self._fields, self._ask, self.controls = fields, ask, {}
        self._outputs = [widgets.HTML() for _ in range(4)]
        self.kind = widgets.Dropdown(options=kinds, description="Noise") if kinds else None
        rows = [] if self.kind is None else [self.kind]
        for name, field in fields.items():
            slider = widgets.SelectionSlider(options=[(f"{x:,}", x) for x in field.points])
            slider.description, slider.style.description_width = field.label, "9em"
            typed = widgets.Text(f"{field.start:,}", tooltip=field.label)
            slider.readout, slider.index = False, field.nearest(typed.value)
            self.controls[name] = slider, typed
            slider.observe(lambda _, name=name: self._moved(name), "index")
            typed.observe(lambda _, name=name: self._typed(name), "value")
            rows.append(widgets.HBox([slider, typed]))
        if self.kind is not None:
            self.kind.observe(lambda _: self.update(), "value")
        self.box = widgets.VBox([*rows, *self._outputs])
        self.update()

    def _moved(self, name: str) -> None:
        (slider, typed), field = self.controls[name], self._fields[name]
        # A slider that follows a typed number stands beside it, and does not replace it.
        if field.nearest(typed.value) != slider.index:
            typed.value = f"{field.points[slider.index]:,}"

    def _typed(self, name: str) -> None:
        slider, typed = self.controls[name]
        place = self._fields[name].nearest(typed.value)
        slider.index = slider.index if place is None else place
        self.update()

    def update(self) -> None:
        """Show the answers to the numbers that are entered, or what is wrong with them."""
        shown: list[str] = []
        try:
            entered = {x: f.parsed(self.controls[x][1].value) for x, f in self._fields.items()}
            to = {name: entered[name] for name in _TARGETS}
            kind = {} if self.kind is None else {"kind": self.kind.value}
            for answer in _answers(self._ask(**kind, **entered), **to):
                self._outputs[len(shown)].value = _as_html(answer, len(shown))
                shown.append(answer)
        except ValueError as error:
            shown = [str(error)]
        finally:
            # Whatever was raised, nothing stays of earlier numbers.
            shown += [""] * (len(self._outputs) - len(shown))
            for place, (output, answer) in enumerate(zip(self._outputs, shown, strict=True)):
                output.value = _as_html(answer, place)
            self.text, self._svg = "\n".join(filter(None, shown[:-1])), shown[-1]

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """The widget; its text and its picture where no widget can be shown."""
        bundle = {**self.box._repr_mimebundle_(), "text/plain": self.text}
        return {**bundle, "image/svg+xml": self._svg} if self._svg else bundle


def _as_html(answer: str, place: int) -> str:
    """A picture as it is; code, which is the third, and text with their lines."""
    if answer.startswith("<svg"):
        return answer
    space = "pre" if place == 2 else "pre-line"
    return f'<div style="white-space: {space}">{html.escape(answer)}</div>'


def training() -> Panel:
    """Sliders for a training by DP-SGD: noise multiplier, batch, records, epochs, and targets.

    Returns:
        A panel that a notebook shows: epsilon at the chosen delta, the advantage and the findings
        of an attacker in words, the least noise multiplier for a wanted epsilon, the Python that
        computes these numbers, profile and trade-off. Numbers in the text are upper bounds, rounded
        up; the comments of the Python have every digit. Batches are Poisson samples, and neighbours
        differ by one record more or less.

    A number that is typed beside a slider may lie between its positions. A bad one gives a sentence
    and no number. `ImportError` without ipywidgets (extra `notebook`).

    >>> import jaxdp as dp
    >>> panel = dp.explore.training()
    >>> print(panel.text.splitlines()[0])
    ε ≤ 1.0926 at δ = 1e-05
    """
    return Panel(_TRAINING, _asked_of_training)


def release() -> Panel:
    """Sliders for one answer with Gaussian or Laplace noise: its scale and its sensitivity.

    Returns:
        A panel as that of `training`.

    >>> import jaxdp as dp
    >>> panel = dp.explore.release()
    >>> print(panel.text.splitlines()[0])
    ε ≤ 0.92635 at δ = 1e-05
    """
    return Panel(_ANSWER, _asked_of_answer, tuple(_KINDS))
