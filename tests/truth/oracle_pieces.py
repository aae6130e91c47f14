"""Slow truth of piecewise constant densities: sums over the pieces at 50 digits."""

import functools
import itertools
from dataclasses import dataclass

import mpmath as mp
from oracle import Density


@dataclass(frozen=True)
class Steps:
    """The staircase with steps one `unit` wide: exact sums over the pieces of constant density."""

    epsilon: float
    unit: float
    split: float

    @functools.cached_property
    def reach(self) -> int:
        """What lies beyond this many steps has a mass below 1e-56."""
        return 4 + int(130 / self.epsilon)

    @functools.cached_property
    def kinks(self) -> list[mp.mpf]:
        ends = [(k + mp.mpf(self.split)) * mp.mpf(self.unit) for k in range(self.reach)]
        return [*(-x for x in reversed(ends)), *ends]

    @functools.cached_property
    def log_top(self) -> mp.mpf:
        split, decay = mp.mpf(self.split), mp.exp(-mp.mpf(self.epsilon))
        steps = split + decay * (1 - split)
        return mp.log(-mp.expm1(-mp.mpf(self.epsilon)) / (2 * mp.mpf(self.unit) * steps))

    def level(self, x: mp.mpf) -> int:
        return max(0, int(mp.floor(abs(x) / mp.mpf(self.unit) - mp.mpf(self.split))) + 1)

    def log_density(self, x: mp.mpf) -> mp.mpf:
        return self.log_top - self.level(x) * mp.mpf(self.epsilon)

    def pieces(self, *shifts: mp.mpf) -> list[tuple[mp.mpf, mp.mpf]]:
        """(middle, width) between the jumps of the density and of its translates."""
        points = sorted(k - s for s in (mp.mpf(0), *shifts) for k in self.kinks)
        pairs = itertools.pairwise(points)
        return [((low + high) / 2, high - low) for low, high in pairs if high > low]

    def survival(self, x: float) -> mp.mpf:
        """The rest of the step that x lies in, and the steps beyond."""
        if x < 0:
            return 1 - self.survival(-x)
        level = self.level(mp.mpf(x))
        width = (level + mp.mpf(self.split)) * mp.mpf(self.unit) - mp.mpf(x)
        steps = (mp.exp(-k * mp.mpf(self.epsilon)) for k in range(1, self.reach))
        return mp.exp(self.log_density(mp.mpf(x))) * (width + mp.mpf(self.unit) * mp.fsum(steps))

    def losses(self, shift: float) -> dict[int, mp.mpf]:
        """The mass at each multiple of epsilon that the loss takes."""
        m, masses = mp.mpf(shift), {}
        for t, width in self.pieces(m):
            j = self.level(t + m) - self.level(t)
            masses[j] = masses.get(j, 0) + width * mp.exp(self.log_density(t))
        return masses

    def hockey_stick(self, shift: float, epsilon: float) -> mp.mpf:
        unit, e = mp.mpf(self.epsilon), mp.mpf(epsilon)
        losses = self.losses(shift).items()
        return mp.fsum(p * -mp.expm1(e - j * unit) for j, p in losses if j * unit > e)

    def cumulant(self, shift: float, z: complex) -> mp.mpc:
        power = mp.mpmathify(z) * mp.mpf(self.epsilon)
        return mp.log(mp.fsum(p * mp.exp(power * j) for j, p in self.losses(shift).items()))

    def expectation(self, function: Density) -> mp.mpf:
        """E function(T) for an even function, by quadrature over each step."""
        ends = [k for k in self.kinks if k > 0 and self.level(k) * self.epsilon < 70]
        terms = (
            mp.exp(self.log_density((low + high) / 2)) * mp.quad(function, [low, high], maxdegree=4)
            for low, high in itertools.pairwise([mp.mpf(0), *ends])
        )
        return 2 * mp.fsum(terms)


@dataclass(frozen=True)
class Bars:
    """An even law of constant density on cells `width` wide around 0: exact sums over pieces."""

    width: float
    weights: tuple[int, ...]

    @functools.cached_property
    def kinks(self) -> list[mp.mpf]:
        n = len(self.weights)
        return [mp.mpf(self.width) * (mp.mpf(2 * j - n) / 2) for j in range(n + 1)]

    def density(self, x: mp.mpf) -> mp.mpf:
        cell = int(mp.floor((x - self.kinks[0]) / mp.mpf(self.width)))
        if not 0 <= cell < len(self.weights):
            return mp.mpf(0)
        return self.weights[cell] / (sum(self.weights) * mp.mpf(self.width))

    def log_density(self, x: mp.mpf) -> mp.mpf:
        return mp.log(self.density(x))

    def pieces(self, shift: mp.mpf) -> list[tuple[mp.mpf, mp.mpf]]:
        """(middle, width) between the jumps of the density and of its translate."""
        points = sorted(k - s for s in (mp.mpf(0), shift) for k in self.kinks)
        pairs = itertools.pairwise(points)
        return [((low + high) / 2, high - low) for low, high in pairs if high > low]

    def survival(self, x: float) -> mp.mpf:
        ends = [max(k, mp.mpf(x)) for k in self.kinks]
        pairs = [(low, high) for low, high in itertools.pairwise(ends) if high > low]
        return mp.fsum(self.density((low + high) / 2) * (high - low) for low, high in pairs)

    def hockey_stick(self, shift: float, epsilon: float) -> mp.mpf:
        m, e = mp.mpf(shift), mp.exp(mp.mpf(epsilon))
        gaps = ((self.density(t) - e * self.density(t + m)) * width for t, width in self.pieces(m))
        return mp.fsum(gap for gap in gaps if gap > 0)

    def expectation(self, function: Density) -> mp.mpf:
        """E function(T) for an even function, by quadrature over each cell."""
        ends = sorted({mp.mpf(0), *(k for k in self.kinks if k > 0)})
        return 2 * mp.fsum(
            self.density((low + high) / 2) * mp.quad(function, [low, high])
            for low, high in itertools.pairwise(ends)
        )
