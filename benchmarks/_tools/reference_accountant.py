"""The accountant's workloads, and their epsilons at 30 digits: nothing of jaxdp is used.

delta(epsilon) = 1 / (2 pi i) int exp(K(z) - z epsilon) / (z (z + 1)) dz along Re z = theta > 0, by
trapezoids in z and, for the cumulant of a sampled Gaussian, in the noise: both steps are shortened
until 22 digits stand. Half an hour.
"""

import json
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np

REFERENCE = Path(__file__).parents[2] / "tests" / "truth" / "reference" / "accountant.json"
SCALES = np.linspace(0.6, 2.0, 16)
DELTAS = (1e-5, 1e-6)
# mpmath's, whose types are not declared.
Real = Any
# Noise multiplier, sampling probability, steps.
Run = tuple[float, float, int]
SAMPLED: tuple[Run, ...] = (
    (0.8, 0.01, 500),
    (1.0, 0.02, 300),
    (0.7, 0.005, 1000),
    (1.5, 0.05, 200),
    (2.0, 0.1, 50),
    (1.2, 0.01, 2000),
    (0.9, 0.002, 5000),
    (3.0, 0.1, 100),
    (1.1, 0.03, 100),
    (0.65, 0.001, 1000),
)
_DIGITS, _REACH = 30, 14


class Nodes:
    """Of one release: losses and the weights of their law tilted by w0, on the real line."""

    def __init__(self, scale: float, sampling_prob: float, w0: Real, step: Real):
        c, q = 1 / mp.mpf(scale), mp.mpf(sampling_prob)
        # The tilted law has modes near 0 and near the shift that the tilt makes of a hit.
        low, high = -_REACH - c * abs(w0), _REACH + c * (abs(w0) + 1)
        width: Real = (high - low) / step
        xs = [low + step * k for k in range(int(width) + 2)]
        self.losses = [mp.log(1 - q + q * mp.exp(c * x - c * c / 2)) for x in xs]
        logs = [w0 * loss - x * x / 2 for loss, x in zip(self.losses, xs, strict=True)]
        top = max(logs)
        kept = [i for i, value in enumerate(logs) if value > top - 75]
        self.losses = [self.losses[i] for i in kept]
        self.weights = [mp.exp(logs[i] - top) for i in kept]
        total = mp.fsum(self.weights)
        self.log_moment = mp.log(total * step) + top - mp.log(2 * mp.pi) / 2
        self.weights = [w / total for w in self.weights]

    def turned(self, step: Real, count: int) -> list[Real]:
        """M(w0 + ikh) / M(w0), k < count."""
        turns = [mp.expj(step * loss) for loss in self.losses]
        now, found = [mp.mpc(w) for w in self.weights], []
        for _ in range(count):
            found.append(mp.fsum(now))
            now = [a * b for a, b in zip(now, turns, strict=True)]
        return found


class Line:
    """delta at every epsilon near the one whose saddle theta is."""

    def __init__(self, runs: list[Run], added: bool, theta: Real, step: Real, fine: Real):
        w0 = -theta if added else 1 + theta
        self.theta, self.step = theta, step
        nodes = [(Nodes(scale, q, w0, fine), n) for scale, q, n in runs]
        self.height = mp.fsum(n * one.log_moment for one, n in nodes)
        turn = -step if added else step
        self.values: list[Real] = []
        while not self.values or abs(self.values[-1]) > mp.mpf(10) ** -26:
            # Blocks: how many are needed shows on the way.
            count = 2 * len(self.values) + 64
            found = [one.turned(turn, count) for one, _ in nodes]
            self.values = []
            for k in range(count):
                value = mp.mpc(1)
                for (_, n), each in zip(nodes, found, strict=True):
                    value *= each[k] ** n
                z = mp.mpc(theta, k * step)
                self.values.append(value / (z * (z + 1)) * (mp.mpf(1) / 2 if k == 0 else 1))

    def delta(self, epsilon: Real) -> Real:
        turn, now, total = mp.expj(-self.step * epsilon), mp.mpc(1), mp.mpf(0)
        for value in self.values:
            total += mp.re(value * now)
            now *= turn
        return total * self.step / mp.pi * mp.exp(self.height - self.theta * epsilon)

    def epsilon(self, delta: Real, guess: Real) -> Real:
        return mp.findroot(lambda e: mp.log(self.delta(e) / delta), (guess, guess * 1.01))


def _tilt(runs: list[Run], added: bool, delta: Real) -> tuple[Real, Real]:
    """The tilt whose Markov bound on epsilon is least, and that epsilon."""

    def epsilon(theta: Real) -> Real:
        w0, coarse = (-theta if added else 1 + theta), mp.mpf(1) / 8
        height = mp.fsum(n * Nodes(scale, q, w0, coarse).log_moment for scale, q, n in runs)
        return (height - mp.log(theta * (1 + theta) * delta)) / theta

    with mp.workdps(15):
        tilts = [mp.mpf(2) ** (mp.mpf(k) / 4) for k in range(-12, 40)]
        best = min(tilts, key=epsilon)
        return best, epsilon(best)


def epsilons(runs: list[Run], added: bool) -> list[Real]:
    """One for each delta: of one line, halved until 22 digits stand."""
    deltas = [mp.mpf(x) for x in DELTAS]
    theta, guess = _tilt(runs, added, mp.sqrt(deltas[0] * deltas[-1]))
    step, fine, last = mp.mpf(1) / 4, mp.mpf(1) / 6, None
    while True:
        line = Line(runs, added, theta, step, fine)
        found = [line.epsilon(delta, guess) for delta in deltas]
        if last and all(
            abs(a - b) < mp.mpf(10) ** -22 * a for a, b in zip(found, last, strict=True)
        ):
            return found
        last, step, fine = found, step / 2, fine * mp.mpf("0.7")


def worse(runs: list[Run]) -> list[float]:
    both = [epsilons(runs, added) for added in (False, True)]
    return [float(max(pair)) for pair in zip(*both, strict=True)]


if __name__ == "__main__":
    mp.mp.dps = _DIGITS
    known = json.loads(REFERENCE.read_text())
    for steps in (1000, 5000):
        known[f"S{steps}"] = [worse([(float(scale), 0.01, steps)]) for scale in SCALES]
    known["HS"] = worse(list(SAMPLED))
    REFERENCE.write_text(json.dumps(known, indent=0))
