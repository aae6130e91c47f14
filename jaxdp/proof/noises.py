"""Densities of noises whose logarithm is a quadratic polynomial between kinks."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from jaxdp.proof.balls import arb, ball, normal_tail


class Quadratic(NamedTuple):
    """weight times e^(a + b x + c x^2), c <= 0."""

    log_weight: Any
    a: Any
    b: Any
    c: Any

    def at(self, x: Any) -> Any:
        """The logarithm at x, real or complex."""
        return self.log_weight + self.a + x * (self.b + self.c * x)

    def mass(self, start: Any, stop: Any) -> Any:
        """The integral from start to stop; None for an infinite end."""
        lift = (self.log_weight + self.a).exp()
        if self.c == 0 and self.b == 0:
            return lift * (stop - start)
        if self.c == 0:
            ends = (arb(0) if x is None else (self.b * x).exp() for x in (start, stop))
            first, last = ends
            return lift * (last - first) / self.b
        deviation = 1 / (-2 * self.c).sqrt()
        mean = -self.b / (2 * self.c)
        low, high = (None if x is None else (x - mean) / deviation for x in (start, stop))
        peak = lift * (-self.c * mean * mean).exp() * deviation * (2 * arb.pi()).sqrt()
        if high is not None and high < 0:
            low, high = -high, None if low is None else -low
        above = arb(0) if high is None else normal_tail(high)
        if low is not None and low > 0:
            return peak * (normal_tail(low) - above)
        return peak * (1 - above - (arb(0) if low is None else normal_tail(-low)))


class Segment(NamedTuple):
    """log density a + b x + c x^2 on start <= x < stop (None: endless); the noise is even."""

    start: Fraction
    stop: Fraction | None
    a: Any
    b: Any
    c: Any


class Noise(NamedTuple):
    """An even noise, by its segments from 0 on; `kinked` is False if it is smooth at 0."""

    segments: tuple[Segment, ...]
    kinked: bool = True


def gaussian(scale: Fraction) -> Noise:
    """Standard deviation `scale`."""
    log_peak = -(ball(scale) * (2 * arb.pi()).sqrt()).log()
    curve = -1 / (2 * ball(scale) ** 2)
    return Noise((Segment(Fraction(0), None, log_peak, arb(0), curve),), kinked=False)


def laplace(scale: Fraction) -> Noise:
    """e^(-|x| / scale) / (2 scale)."""
    log_peak = -(2 * ball(scale)).log()
    return Noise((Segment(Fraction(0), None, log_peak, -1 / ball(scale), arb(0)),))


def truncated_laplace(scale: Fraction, bound: Fraction) -> Noise:
    """The Laplace on |x| <= bound."""
    whole = 1 - (-ball(bound / scale)).exp()
    log_peak = -(2 * ball(scale) * whole).log()
    return Noise((Segment(Fraction(0), bound, log_peak, -1 / ball(scale), arb(0)),))


def flipped_huber(alpha: Fraction, gamma: Fraction) -> Noise:
    """e^-rho / (kappa gamma), rho = alpha |x| / gamma^2, (x^2 + alpha^2) / (2 gamma^2) beyond."""
    if alpha == 0:
        return gaussian(gamma)
    a = ball(alpha / gamma)
    tail = (2 * arb.pi()).sqrt() * (-a * a / 2).exp() * normal_tail(a)
    kappa = 2 * (1 - (-a * a).exp()) / a + 2 * tail
    log_peak, curve = -(kappa * ball(gamma)).log(), -1 / (2 * ball(gamma) ** 2)
    centre = Segment(Fraction(0), alpha, log_peak, -ball(alpha / gamma**2), arb(0))
    return Noise((centre, Segment(alpha, None, log_peak - a * a / 2, arb(0), curve)))


def offset_gaussian(offset: Fraction, scale: Fraction) -> Noise:
    """phi((|x| + offset) / scale) / (2 scale Q(offset / scale))."""
    if offset == 0:
        return gaussian(scale)
    s, h = ball(scale), ball(offset / scale)
    log_peak = -(2 * s * (2 * arb.pi()).sqrt() * normal_tail(h)).log()
    return Noise((Segment(Fraction(0), None, log_peak - h * h / 2, -h / s, -1 / (2 * s * s)),))


def subbotin(scale: Fraction, power: Fraction) -> Noise:
    """Powers 1 and 2, the Laplace and the Gaussian."""
    if power not in (1, 2):
        raise ValueError(f"power of a Subbotin must be 1 or 2 for a proof, got {float(power):g}")
    return laplace(scale) if power == 1 else gaussian(scale)


NOISES = {
    "Gaussian": (gaussian, ("scale",)),
    "Laplace": (laplace, ("scale",)),
    "TruncatedLaplace": (truncated_laplace, ("scale", "bound")),
    "FlippedHuber": (flipped_huber, ("alpha", "gamma")),
    "OffsetGaussian": (offset_gaussian, ("offset", "scale")),
    "Subbotin": (subbotin, ("scale", "power")),
}


class Component(NamedTuple):
    """A noise moved by `shift`, with a probability, a ball."""

    weight: Any
    shift: Fraction


class Interval(NamedTuple):
    """Outputs between two kinks, None for an endless side; P and Q are sums of `Quadratic`s.

    P / Q does not fall with the output: every component of P lies at or right of those of Q.
    """

    start: Fraction | None
    stop: Fraction | None
    p: tuple[Quadratic, ...]
    q: tuple[Quadratic, ...]
    flat: bool  # P / Q is constant

    def mirrored(self) -> Interval:
        """P and Q exchanged, and the output negated."""
        start, stop = (None if x is None else -x for x in (self.stop, self.start))
        p, q = (tuple(x._replace(b=-x.b) for x in side) for side in (self.q, self.p))
        return Interval(start, stop, p, q, self.flat)


def intervals(
    noise: Noise, p: Sequence[Component], q: Sequence[Component], start: Fraction | None = None
) -> list[Interval]:
    """The outputs cut at the kinks of all components, from `start` on."""
    ends = {x for s in noise.segments for x in (s.start, s.stop) if x is not None}
    ends = {x for end in ends for x in (end, -end) if noise.kinked or end != 0}
    places = sorted({x + part.shift for part in (*p, *q) for x in ends})
    edges = [start, *(x for x in places if start is None or x > start), None]
    found = []
    for low, high in itertools.pairwise(edges):
        inside = _inside(low, high)
        named = [[_piece(noise, part, inside) for part in side] for side in (p, q)]
        shapes = {name for side in named for name, piece in side if piece is not None}
        terms = [tuple(piece for _, piece in side if piece is not None) for side in named]
        if shapes:
            found.append(Interval(low, high, terms[0], terms[1], len(shapes) == 1))
    return found


def _inside(low: Fraction | None, high: Fraction | None) -> Fraction:
    if low is None:
        return Fraction(0) if high is None else high - 1
    return low + 1 if high is None else (low + high) / 2


def _piece(noise: Noise, part: Component, x: Fraction) -> tuple[Any, Quadratic | None]:
    """The part's density around x, and a name that those share that differ by a factor alone."""
    y = x - part.shift
    for i, (start, stop, a, b, c) in enumerate(noise.segments):
        if start <= abs(y) and (stop is None or abs(y) < stop) and not part.weight.is_zero():
            slope, d = (-b if y < 0 else b), ball(part.shift)
            moved = Quadratic(part.weight.log(), a - slope * d + c * d * d, slope - 2 * c * d, c)
            return (i, y < 0, None if c == 0 else part.shift), moved
    return None, None
