"""Delta of a composition by the theorem: floats choose the parameters, balls decide."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from jaxdp.proof.balls import acb, arb, ball, log_number, number, precision
from jaxdp.proof.law import Law
from jaxdp.proof.mixed import Gaussian

Releases = list[tuple[int, Law]]
Progress = Callable[[int, int], None]

# Relative width that is aimed at. chosen
_AIM = 1e-13
# Tilts tried for aliases: in standard deviations from the tilt, and as its multiples. chosen
_STEPS = (0.5, 1, 2, 3, 5, 8, 12, 20)
_RIGHT, _LEFT = (1.1, 1.5, 3, 8), (0.9, 0.6, 0.3, 0.1)
# Smallest common unit of lattices over the largest of them. chosen
_FINEST = 64
# Smoothing, over the least that its end needs; nats of the end's far side. chosen
_GAIN, _FAR_NATS = 1.05, 60.0
# Trials of the size of delta, and points from which two have to do. chosen
_TRIALS, _SLOW = 3, 300
# Points times nodes at most. chosen: seconds
_WORK = 1.5e6


class Bracket(NamedTuple):
    """Balls with lower <= delta <= upper, and the points of the sum."""

    lower: Any
    upper: Any
    points: int


class Composition:
    """Releases at one epsilon: the laws apart from the Gaussians, which are one variance."""

    def __init__(self, releases: Releases, epsilon: Fraction, most_points: int, progress: Progress):
        self.epsilon, self.most_points, self.progress = epsilon, most_points, progress
        gaussians = [(n, law) for n, law in releases if isinstance(law, Gaussian)]
        self.variance = sum((n * law.variance for n, law in gaussians), arb(0))
        self.laws = [(n, law) for n, law in releases if not isinstance(law, Gaussian)]
        self.mass = arb(1)
        for n, law in releases:
            self.mass *= (1 - law.infinite) ** n
        self._moments: dict[float, float] = {}

    def moment(self, c: Any, variance: Any) -> Any:
        """M(c) of all releases."""
        value = ((c * c + c) * variance / 2).exp()
        for n, law in self.laws:
            value *= law.real(c) ** n
        return value

    def log_moment(self, c: float) -> float:
        """log M(c), for choices."""
        if c not in self._moments:
            value = (c * c + c) * number(self.variance) / 2
            self._moments[c] = value + sum(n * law.log_moment(c) for n, law in self.laws)
        return self._moments[c]

    def tail(self, c: Any, start: float, end: float, variance: Any) -> Any:
        """At least |M(c + i t)|, start <= t <= end."""
        value = ((c * c + c - arb(start) ** 2) * variance / 2).exp()
        for n, law in self.laws:
            value *= law.tail(c, start, end) ** n
        return value

    def lattice(self) -> tuple[Fraction, Fraction] | None:
        """Unit and offset of a lattice that holds every total."""
        found: list[Any] = [getattr(law, "lattice", None) for _, law in self.laws]
        if None in found or not found or not self.variance.is_zero():
            return None
        units = [unit for unit, _ in found]
        scale = math.lcm(*(x.denominator for x in units))
        unit = Fraction(math.gcd(*(int(x * scale) for x in units)), scale)
        if unit * _FINEST < max(units):
            return None
        offset = sum((n * x[1] for (n, _), x in zip(self.laws, found, strict=True)), Fraction(0))
        return unit, offset


class Choice(NamedTuple):
    """A tilt, the deviation of the tilted loss, log of delta, and of M(c) e^(-c epsilon)."""

    tilt: float
    deviation: float
    log_delta: float
    log_chernoff: float


def bracket(
    releases: Releases, epsilon: Fraction, most_points: int, progress: Progress = lambda i, n: None
) -> Bracket:
    """Bounds on delta over finite losses."""
    whole = Composition(releases, epsilon, most_points, progress)
    choice = choose(whole)
    largest = max(n for n, _ in releases)
    result = Bracket(arb(0), whole.mass, 0)
    for trial in range(_TRIALS):
        lost = max(0.0, choice.log_chernoff - choice.log_delta)
        with precision(110 + 2 * largest.bit_length() + int(1.5 * lost)):
            result = _evaluate(whole, choice, lost)
        middle = log_number(result.upper)
        is_near = result.lower > 0 and abs(middle - choice.log_delta) < 1.0
        if is_near or (trial > 0 and result.points > _SLOW):
            break
        lowered = middle if result.lower > 0 else choice.log_delta - 20.0
        choice = choice._replace(log_delta=min(lowered, choice.log_chernoff))
    return result


def choose(whole: Composition) -> Choice:
    """The tilt that minimises M(c) e^(-c epsilon) / (c (c + 1))."""
    epsilon = float(whole.epsilon)

    def objective(log_tilt: float) -> float:
        c = math.exp(log_tilt)
        return whole.log_moment(c) - c * epsilon - math.log(c * (c + 1))

    grid = [objective(x / 2) for x in range(-16, 16)]
    at = min(range(len(grid)), key=grid.__getitem__)
    low, high = (at - 17) / 2, (at - 15) / 2
    for _ in range(24):
        third = (high - low) * 0.381966
        a, b = low + third, high - third
        low, high = (low, b) if objective(a) < objective(b) else (a, high)
    log_tilt, d = (low + high) / 2, 1e-3
    tilt = math.exp(log_tilt)
    values = [objective(log_tilt + k * d) for k in (-1, 0, 1)]
    # The second derivative in log c is c^2 times that in c, where the first vanishes.
    curve = max((values[0] - 2 * values[1] + values[2]) / d**2, 1e-9)
    deviation = math.sqrt(curve) / tilt
    log_delta = values[1] - 0.5 * math.log(2 * math.pi * curve / tilt**2)
    return Choice(tilt, deviation, log_delta, whole.log_moment(tilt) - tilt * epsilon)


def _evaluate(whole: Composition, choice: Choice, lost: float) -> Bracket:
    """Steps 2 to 5 of the theorem with these choices."""
    goal = choice.log_delta + math.log(_AIM)
    tilts, period = _aliases(whole, choice, goal)
    for n, law in whole.laws:
        law.bits = lost - math.log(_AIM) + 6 + math.log(n)
    c, epsilon = arb(choice.tilt), ball(whole.epsilon)
    lattice = whole.lattice()
    if lattice is not None:
        total, rest, gap, period, count = _on_lattice(whole, c, period, *lattice)
    else:
        total, rest, gap, count = _on_line(whole, choice, c, period, goal)
    alias = arb(0)
    for tilt in tilts:
        v = arb(tilt)
        size = v**v / (1 + v) ** (1 + v) if tilt else arb(1)
        size *= whole.moment(v, whole.variance) * (-v * epsilon).exp()
        ratio = (-abs(v - c) * arb(period)).exp()
        alias += size * ratio / (1 - ratio)
    upper = arb((total + rest).upper())
    lower = arb((total - rest - alias - gap).lower())
    return Bracket(lower if lower > 0 else arb(0), upper, count + 1)


def _aliases(whole: Composition, choice: Choice, goal: float) -> tuple[list[float], float]:
    """A tilt on each side for Markov's inequality, and the period at which both reach `goal`."""
    c, epsilon = choice.tilt, float(whole.epsilon)

    def period(v: float) -> float:
        log_size = v * math.log(v) - (1 + v) * math.log1p(v) if v else 0.0
        moment = whole.log_moment(v) if v else 0.0
        return (log_size + moment - v * epsilon - goal) / abs(v - c)

    right = [c + j / choice.deviation for j in _STEPS] + [c * g for g in _RIGHT]
    left = [c - j / choice.deviation for j in _STEPS] + [c * g for g in _LEFT]
    tilts = [min(right, key=period), min([*(v for v in left if v > 0), 0.0], key=period)]
    return tilts, 1.001 * max(*map(period, tilts), 1e-3 / choice.deviation)


def _on_lattice(
    whole: Composition, c: Any, period: float, unit: Fraction, offset: Fraction
) -> tuple[Any, Any, Any, Any, int]:
    """Step 5."""
    n_points = math.ceil(period / float(unit)) + 1
    width, exact = ball(unit), ball(whole.epsilon)
    step = 2 * arb.pi() / (width * n_points)
    first = ball(offset + unit * (math.floor((whole.epsilon - offset) / unit) + 1))
    decay = (exact - first).exp()

    def kernel(s: Any) -> Any:
        near = 1 / (1 - (-s * width).exp()) - decay / (1 - (-(s + 1) * width).exp())
        return (-s * first).exp() * near

    if n_points > 2 * whole.most_points:
        return arb(0), whole.mass, arb(0), width * n_points, 0
    total = _summed(whole, c, step, n_points // 2, arb(0), kernel, n_points)
    return total / n_points, arb(0), arb(0), width * n_points, n_points // 2


def _on_line(
    whole: Composition, choice: Choice, c: Any, period: float, goal: float
) -> tuple[Any, Any, Any, int]:
    """Steps 2 to 4: the sum, its rest, and the gap of the smoothing."""
    step, epsilon = 2 * arb.pi() / arb(period), ball(whole.epsilon)
    lift = (-c * epsilon).exp()

    def rest(start: float, end: float, variance: Any) -> Any:
        return whole.tail(c, start, end, variance) * lift / (arb.pi() * arb(start))

    work = [_WORK / law.cost(choice.tilt) for _, law in whole.laws]
    most = int(min([whole.most_points, *work]))
    last = min(most * number(step), *(law.longest(choice.tilt) for _, law in whole.laws), math.inf)
    start = min(max(6.0 / choice.deviation, number(step)), last)
    while log_number(rest(start, math.inf, whole.variance)) > goal and start < last:
        start = min(1.25 * start, last)
    count = math.ceil(start / number(step))
    start, smooth = count * number(step) * (1 - 1e-12), arb(0)
    end = start
    left_out = rest(start, math.inf, whole.variance)
    if log_number(left_out) > goal:
        smooth, left_out, end = _smoothing(whole, c, start, goal, rest)
    variance = whole.variance + smooth

    def kernel(s: Any) -> Any:
        return (-s * epsilon).exp() / (s * (s + 1))

    total = _summed(whole, c, step, count, variance, kernel, 0) * step / (2 * arb.pi())
    if smooth == 0:
        return total, left_out, arb(0), count
    wide = smooth / 16  # s^2 + s times this: from V to W = 9/8 V
    density = (
        _summed(
            whole, c, step, count, variance, lambda s: ((s * s + s) * wide - s * epsilon).exp(), 0
        )
        * step
        / (2 * arb.pi())
    )
    beyond = left_out * ((c * c + c) * wide).exp() * (arb(end) ** 2 + 1 / variance) * 2
    inflated = (arb(9) / 8).sqrt() * (arb(81) / 64 * smooth).exp()
    return total, left_out, (smooth * inflated * (density + beyond)).abs_upper(), count


def _smoothing(
    whole: Composition, c: Any, start: float, goal: float, rest: Callable[..., Any]
) -> tuple[Any, Any, float]:
    """The variance of the smoothing, the rest of the sum with it, and an end.

    Between `start` and an end the transform may be small by itself; the smoothing hides it beyond.
    """
    best = None
    most = min((law.longest(number(c)) for _, law in whole.laws), default=math.inf) / start
    for ratio in (1.0, 8.0, 64.0, 512.0):
        end = start * ratio
        short = log_number(rest(end, math.inf, whole.variance)) - goal
        smooth = arb(max(2 * short, 1.0) / end**2 * _GAIN)
        variance = whole.variance + smooth
        left_out = rest(end, math.inf, variance)
        if ratio > 1:
            left_out += rest(start, end, variance)
        if best is not None and (ratio > most or log_number(left_out) > goal + 1):
            break
        best = smooth, left_out, end
    assert best is not None
    return best


def _summed(
    whole: Composition, c: Any, step: Any, count: int, variance: Any, kernel: Any, period: int
) -> Any:
    """Real part of the sum of M times a kernel over |j| <= count, or over a period."""
    lines = [(n, law.line(c, step, count)) for n, law in whole.laws]
    total = arb(0)
    for j in range(count + 1):
        s = acb(c, step * j)
        value = ((s * s + s) * variance / 2).exp() * kernel(s)
        for n, line in lines:
            value *= line[j] ** n
        once = j == 0 or 2 * j == period
        total += value.real * (1 if once else 2)
        whole.progress(j, count)
    return total
