"""Writes docs/try_grid.js, the upper bounds of docs/try.html: `python docs/try_grid.py`.

Twenty CPU minutes on one core. A stored number is 1e-3 * 1.002^code, the least that is at least
the library's answer at delta (1 - 1e-5): at most 0.21 % above the answer at delta.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import jaxdp as dp
from jaxdp.explore import BATCHES, EPOCHS, NOISES, RECORDS

# Least stored number and ratio of neighbouring ones. chosen: two characters a number, 0.2 %
LEAST, RATIO = 1e-3, 1.002
# Share of delta for the steps that a higher rate does not cover. chosen: moves epsilon by < 1e-4
SPARE = 1e-5
# Without quotes and backslashes; the last one marks a number of its own.
DIGITS = "".join(chr(c) for c in range(35, 126) if chr(c) not in "'\\`<&")
ESCAPE = "~"
DELTAS = [0.3, 0.1, 0.03, 0.01, 3e-3, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8]

# Positions of the sliders of one answer. chosen: usual settings
SCALES = [float(f"{m}e{k}") for k in (-1, 0, 1, 2) for m in (1, 1.5, 2, 3, 4, 5, 7)] + [1000.0]
SENSITIVITIES = [float(f"{m}e{k}") for k in (-1, 0, 1) for m in (1, 2, 3, 5)] + [100.0]
# Of the positions of the sliders: 2^m / 1000, and 1, is every batch over every number of records.
RATES = [2.0**m / 1000 for m in range(-9, 10)] + [1.0]
KINDS = {"gaussian": dp.Gaussian, "laplace": dp.Laplace}

# Points between the positions, for typed numbers, at these deltas, and of every so many noises and
# rates. chosen: fewest for 12 % by random inputs; a quarter of them for the advantage
BETWEEN = {1e-5: 1, 1e-6: 1, 0.0: 2}
# Deltas of which the points have bounds from the first two: epsilon is nearly linear in log delta.
BEYOND = [1e-4, 1e-7, 1e-8]
# Parts of a row, each with a slope of its own. chosen: most that the size of the page allows
PARTS = 3
# Epochs of a row are every `stride`-th of one list, and begin at another one in each row.
EPOCH_LADDER = [float(f"{x:.4g}") for x in np.geomspace(1.0, 160.0, 134)]
RATE_LADDER = [math.ceil(1e6 * x) / 1e6 for x in np.geomspace(1e-3, 0.202, 185)]


def noise_ladder() -> list[float]:
    """Noise multipliers from .5 to 4, by equal steps of log epsilon in an average training."""
    logs = np.linspace(math.log(0.5), math.log(4.0), 10_000)
    slope = np.minimum(1.0 + 1.25 * np.exp(-1.5 * logs), 3.2)
    heights = np.concatenate([[0.0], np.cumsum(slope[1:]) * (logs[1] - logs[0])])
    places = np.interp(np.linspace(0.0, heights[-1], 165), heights, logs)
    return [math.floor(1e4 * math.exp(x) + 1e-6) / 1e4 for x in places]


def stride(noise: float) -> int:
    """Places of the epoch ladder from one point of a row to the next: as much of log epsilon."""
    return round(12.0 * 0.47 / (0.53 - 0.07 * noise**-1.4))


def row(i: int, j: int, noise: float) -> range:
    """Places of the epoch ladder at which the i-th noise and the j-th rate have a point."""
    width = stride(noise)
    return range((8 * i + 3 * j) % 12 * width // 12, len(EPOCH_LADDER), width)


def points(every: int) -> Iterator[list[tuple[float, float, float]]]:
    """Noise multiplier, rate and epochs of each point between, a list a row."""
    for i, noise in list(enumerate(noise_ladder()))[::every]:
        for j, rate in list(enumerate(RATE_LADDER))[::every]:
            yield [(noise, rate, EPOCH_LADDER[place]) for place in row(i, j, noise)]


def swept(function: Any, axes: dict[str, Any]) -> np.ndarray:
    grid = dp.sweep(function, axes, chunk=2**14, progress=False)
    assert not grid["value"].isnull().any(), grid.attrs["failures"]
    return np.asarray(grid["value"].transpose(*axes))


def training_epsilon(noise: Any, rate: Any, steps: Any, delta: Any) -> Any:
    """At a delta of 0 its least delta instead: the advantage of an attacker."""
    loss = dp.dpsgd.Phase(noise, sampling_prob=rate, steps=steps).loss("add_remove")
    return loss.delta(0.0) if np.all(delta == 0.0) else loss.epsilon(delta * (1.0 - SPARE))


def position_epsilon(noise: Any, rate: Any, epochs: Any, delta: Any) -> Any:
    # 1000 rate is a power of two, so that these are the steps of whole sizes.
    steps = np.ceil(np.where(rate == 1.0, epochs, epochs * 1000.0 / np.round(1000.0 * rate, 12)))
    return training_epsilon(noise, rate, steps, delta)


def positions() -> np.ndarray:
    axes = {"noise": NOISES, "rate": RATES, "epochs": EPOCHS}
    found = [swept(position_epsilon, {**axes, "delta": [delta]}) for delta in (0.0, *DELTAS)]
    return np.concatenate(found, axis=-1)


def between(delta: float, every: int) -> np.ndarray:
    noise, rate, epochs = np.array([point for known in points(every) for point in known]).T

    def epsilon(point: Any) -> Any:
        at = np.asarray(point).astype(int)
        return training_epsilon(noise[at], rate[at], np.ceil(epochs[at] / rate[at]), delta)

    return swept(epsilon, {"point": np.arange(noise.size)})


def ratios() -> list[float]:
    """Scale over sensitivity: of all positions, and steps of 1 % between."""
    known = {scale / sensitivity for scale in SCALES for sensitivity in SENSITIVITIES}
    known |= {float(f"{x:.4g}") for x in np.geomspace(0.1, 300.0, 806)}
    return sorted(x for x in known if 0.1 <= x <= 300.0)


def answers(kind: str) -> np.ndarray:
    def epsilon(ratio: Any, delta: Any) -> Any:
        release = dp.Mechanism(KINDS[kind](ratio), 1.0)
        least = release.delta(0.0)
        return np.where(delta == 0.0, least, release.epsilon(np.maximum(delta, 1e-12)))

    deltas = [0.0, *(delta * (1.0 - SPARE) for delta in DELTAS)]
    return swept(epsilon, {"ratio": ratios(), "delta": deltas})


def codes(values: np.ndarray) -> np.ndarray:
    """Of the least stored numbers that are at least as large."""
    # Another language's power may be rounded otherwise.
    known = np.maximum(values * (1.0 + 1e-12), LEAST)
    found = np.ceil(np.log(known / LEAST) / math.log(RATIO)).astype(int)
    found += LEAST * RATIO**found < known
    assert found.max() < len(DIGITS) ** 2
    return found


def pairs(numbers: np.ndarray) -> str:
    base = len(DIGITS)
    return "".join(DIGITS[x // base] + DIGITS[x % base] for x in numbers.ravel().tolist())


def rows(numbers: np.ndarray, every: int) -> Iterator[str]:
    """Two numbers, then how far each next one is from the line through the two before it."""
    start, base, half = 0, len(DIGITS), len(DIGITS) // 2
    for points_of_row in points(every):
        known = numbers[start : start + len(points_of_row)]
        start += known.size
        text = pairs(known[:2])
        for k in range(2, known.size):
            off = int(known[k] - 2 * known[k - 1] + known[k - 2]) + half
            text += DIGITS[off] if 0 <= off < base else ESCAPE + pairs(known[k : k + 1])
        yield text


def beyond(delta: float, near: np.ndarray, far: np.ndarray) -> dict[str, Any]:
    """Slopes of each part of a row: near + slope (far - near) is at least epsilon at `delta`.

    near, far: codes at the first two deltas. excess: largest share of a bound from .01 on that is
    above epsilon.
    """
    exact = between(delta, 1)
    low, high = LEAST * RATIO**near, LEAST * RATIO**far
    # Another language's arithmetic may be rounded otherwise.
    sizes = [len(known) for known in points(1)]
    parts = [PARTS * i + PARTS * k // n for i, n in enumerate(sizes) for k in range(n)]
    starts = np.searchsorted(parts, np.arange(PARTS * len(sizes)))
    slopes = np.maximum.reduceat((exact * (1.0 + 1e-9) - low) / (high - low), starts)
    lowest, last = slopes.min(), len(DIGITS) - 1
    step = (slopes.max() - lowest) / (last - 1)
    places = np.ceil((slopes - lowest) / step + 1e-6).astype(int)
    bounds = low + (lowest + step * places)[parts] * (high - low)
    assert np.all(bounds >= exact)
    excess = np.max(np.where(bounds < 0.01, 0.0, bounds / exact - 1.0))
    slopes = "".join(DIGITS[x] for x in places.tolist())
    step, excess = float(step), float(1.001 * excess)
    return {"delta": delta, "lowest": lowest, "step": step, "excess": excess, "slopes": slopes}


def main() -> None:
    noises = noise_ladder()
    finer = {delta: codes(between(delta, every)) for delta, every in BETWEEN.items()}
    tables = {
        "least": LEAST,
        "ratio": RATIO,
        "spare": SPARE,
        "digits": DIGITS,
        "deltas": DELTAS,
        "noises": NOISES,
        "batches": BATCHES,
        "records": RECORDS,
        "epochs": EPOCHS,
        "rates": RATES,
        "scales": SCALES,
        "sensitivities": SENSITIVITIES,
        "ratios": ratios(),
        "finer": {
            "deltas": list(BETWEEN),
            "every": list(BETWEEN.values()),
            "noises": noises,
            "rates": RATE_LADDER,
            "epochs": EPOCH_LADDER,
            "strides": [stride(noise) for noise in noises],
            "codes": ["".join(rows(finer[delta], every)) for delta, every in BETWEEN.items()],
            "parts": PARTS,
            "beyond": [beyond(delta, *list(finer.values())[:2]) for delta in BEYOND],
        },
        "answers": {kind: pairs(codes(answers(kind))) for kind in KINDS},
        "training": pairs(codes(positions())),
    }
    entries = ",\n".join(f"{json.dumps(name)}: {json.dumps(x)}" for name, x in tables.items())
    head = f"// Written by docs/try_grid.py with jaxdp {dp.__version__}.\nconst GRID = {{\n"
    Path(__file__).with_name("try_grid.js").write_text(f"{head}{entries}\n}};\n")


if __name__ == "__main__":
    main()
