"""Noises as data: the logarithm of a density is a quadratic polynomial between kinks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from jaxdp.proof.balls import arb, ball, normal_tail


class Quadratic(NamedTuple):
    """e^(a + b x + c x^2), c <= 0, as its coefficients."""

    a: Any
    b: Any
    c: Any

    def at(self, x: Any) -> Any:
        """The logarithm at x, real or complex."""
        return self.a + x * (self.b + self.c * x)

    def slope(self, x: Any) -> Any:
        """The derivative of the logarithm."""
        return self.b + 2 * self.c * x

    def moved(self, shift: Fraction, mirrored: bool, log_weight: Any) -> Quadratic:
        """The density moved by `shift`, times a weight; of the mirror image if `mirrored`."""
        d, slope = ball(shift), -self.b if mirrored else self.b
        a = log_weight + self.a - slope * d + self.c * d * d
        return Quadratic(a, slope - 2 * self.c * d, self.c)

    def mass(self, start: Any, stop: Any) -> Any:
        """The integral from start to stop; None for an infinite end."""
        if self.c == 0 and self.b == 0:
            return self.a.exp() * (stop - start)
        if self.c == 0:
            first, last = (arb(0) if x is None else self.at(x).exp() for x in (start, stop))
            return (last - first) / self.b
        deviation = 1 / (-2 * self.c).sqrt()
        mean = -self.b / (2 * self.c)
        low, high = (None if x is None else (x - mean) / deviation for x in (start, stop))
        if high is not None and high < 0:
            low, high = -high, None if low is None else -low
        inside = arb(0) if high is None else -normal_tail(high)
        if low is not None and low > 0:
            inside += normal_tail(low)
        else:
            inside += 1 - (arb(0) if low is None else normal_tail(-low))
        return self.at(mean).exp() * deviation * (2 * arb.pi()).sqrt() * inside


class Segment(NamedTuple):
    """The density on start <= x < stop (None: endless); the noise is even."""

    start: Fraction
    stop: Fraction | None
    density: Quadratic


Noise = tuple[Segment, ...]
# A probability, a ball, and how far the noise is moved.
Component = tuple[Any, Fraction]
_ZERO = Fraction(0)


def _gaussian(scale: Fraction) -> Noise:
    log_peak = -(ball(scale) * (2 * arb.pi()).sqrt()).log()
    return (Segment(_ZERO, None, Quadratic(log_peak, arb(0), -1 / (2 * ball(scale) ** 2))),)


def _laplace(scale: Fraction, bound: Fraction | None = None) -> Noise:
    """e^(-|x| / scale) / (2 scale), on |x| <= bound if truncated."""
    whole = arb(1) if bound is None else 1 - (-ball(bound / scale)).exp()
    log_peak = -(2 * ball(scale) * whole).log()
    return (Segment(_ZERO, bound, Quadratic(log_peak, -1 / ball(scale), arb(0))),)


def _flipped_huber(alpha: Fraction, gamma: Fraction) -> Noise:
    """e^-rho / (kappa gamma), rho = alpha |x| / gamma^2, (x^2 + alpha^2) / (2 gamma^2) beyond."""
    if alpha == 0:
        return _gaussian(gamma)
    a = ball(alpha / gamma)
    tail = (2 * arb.pi()).sqrt() * (-a * a / 2).exp() * normal_tail(a)
    kappa = 2 * (1 - (-a * a).exp()) / a + 2 * tail
    log_peak, curve = -(kappa * ball(gamma)).log(), -1 / (2 * ball(gamma) ** 2)
    centre = Segment(_ZERO, alpha, Quadratic(log_peak, -ball(alpha / gamma**2), arb(0)))
    return centre, Segment(alpha, None, Quadratic(log_peak - a * a / 2, arb(0), curve))


def _offset_gaussian(offset: Fraction, scale: Fraction) -> Noise:
    """phi((|x| + offset) / scale) / (2 scale Q(offset / scale))."""
    if offset == 0:
        return _gaussian(scale)
    s, h = ball(scale), ball(offset / scale)
    log_peak = -(2 * s * (2 * arb.pi()).sqrt() * normal_tail(h)).log()
    return (Segment(_ZERO, None, Quadratic(log_peak - h * h / 2, -h / s, -1 / (2 * s * s))),)


def _subbotin(scale: Fraction, power: Fraction) -> Noise:
    if power not in (1, 2):
        raise ValueError(f"power of a Subbotin must be 1 or 2 for a proof, got {float(power):g}")
    return _laplace(scale) if power == 1 else _gaussian(scale)


# Even noises with a concave logarithm of the density: builder, fields of a statement.
NOISES: dict[str, tuple[Callable[..., Noise], tuple[str, ...]]] = {
    "Gaussian": (_gaussian, ("scale",)),
    "Laplace": (_laplace, ("scale",)),
    "TruncatedLaplace": (_laplace, ("scale", "bound")),
    "FlippedHuber": (_flipped_huber, ("alpha", "gamma")),
    "OffsetGaussian": (_offset_gaussian, ("offset", "scale")),
    "Subbotin": (_subbotin, ("scale", "power")),
}


class Interval(NamedTuple):
    """Outputs between two kinks, None for an endless side; P and Q are sums of `Quadratic`s."""

    start: Fraction | None
    stop: Fraction | None
    p: tuple[Quadratic, ...]
    q: tuple[Quadratic, ...]
    flat: bool = False  # P / Q is constant

    def mirrored(self) -> Interval:
        """P and Q exchanged, and the output negated."""
        start, stop = (None if x is None else -x for x in (self.stop, self.start))
        p, q = (tuple(x._replace(b=-x.b) for x in side) for side in (self.q, self.p))
        return Interval(start, stop, p, q, self.flat)

    def times(self, weight: Any) -> Interval:
        """P and Q both times a weight."""
        sides = (tuple(x._replace(a=x.a + weight.log()) for x in y) for y in (self.p, self.q))
        return self._replace(**dict(zip("pq", sides, strict=True)))

    def ends(self) -> list[Any]:
        """Both ends as balls, or None."""
        return [None if x is None else ball(x) for x in (self.start, self.stop)]


def intervals(
    noise: Noise, p: Sequence[Component], q: Sequence[Component], start: Fraction | None = None
) -> list[Interval]:
    """The outputs cut at the kinks of all components, from `start` on.

    Every component of P must lie at or right of those of Q, so that P / Q rises.
    """
    if min(shift for _, shift in p) < max(shift for _, shift in q):
        raise ValueError("shifts of P must be at least those of Q")
    kinks = {x for s in noise for x in (s.start, s.stop) if x is not None}
    if noise[0].density.b == 0:
        kinks -= {0}
    places = {sign * x + shift for _, shift in (*p, *q) for x in kinks for sign in (1, -1)}
    edges = [start, *sorted(x for x in places if start is None or x > start), None]
    found = []
    for low, high in itertools.pairwise(edges):
        if low is not None and high is not None:
            inside = (low + high) / 2
        elif low is not None:
            inside = low + 1
        else:
            inside = _ZERO if high is None else high - 1
        pieces = [[y for part in side if (y := _piece(noise, part, inside))] for side in (p, q)]
        if shapes := {name for side in pieces for name, _ in side}:
            sides = (tuple(density for _, density in side) for side in pieces)
            found.append(Interval(low, high, *sides, flat=len(shapes) == 1))
    return found


def _piece(noise: Noise, part: Component, x: Fraction) -> tuple[Any, Quadratic] | None:
    """The part's density around x, and a name that those share that differ by a factor alone."""
    weight, shift = part
    y = x - shift
    for i, (start, stop, density) in enumerate(noise):
        if start <= abs(y) < (math.inf if stop is None else stop):
            shape = i, y < 0, None if density.c == 0 else shift
            return shape, density.moved(shift, y < 0, weight.log())
    return None
