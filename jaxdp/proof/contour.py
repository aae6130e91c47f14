"""Delta of a composition by the theorem: floats choose the parameters, balls decide."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from jaxdp.proof.balls import acb, arb, ball, log_number, number, precision, total
from jaxdp.proof.law import Releases

# Relative width that is aimed at. chosen
_AIM = 1e-13
# Tilts tried for aliases: in standard deviations from the tilt, and as its multiples. chosen
_STEPS = (0.5, 1, 2, 3, 5, 8, 12, 20)
_RIGHT, _LEFT = (1.1, 1.5, 3, 8), (0.9, 0.6, 0.3, 0.1)
# Smallest common unit of lattices over the largest of them. chosen
_FINEST = 64
# Smoothing, over the least that its end needs; its ends over that of the sum; rest over gap. chosen
_GAIN, _ENDS, _REST = 1.05, (1.0, 8.0, 64.0, 512.0), 0.02
# Trials of the size of delta, and points from which two have to do. chosen
_TRIALS, _SLOW = 3, 300
# Trials of a longer sum, where floats stopped too soon, and how its growth grows. chosen
_LONGER, _GROWTH = 6, 1.3
# Points times nodes at most. chosen: seconds
_WORK = 1e7


class Bracket(NamedTuple):
    """Balls with lower <= delta <= upper, and the points of the sum."""

    lower: Any
    upper: Any
    points: int


class Choice(NamedTuple):
    """A tilt, the deviation of the tilted loss, log of delta, and of M(c) e^(-c epsilon)."""

    tilt: float
    deviation: float
    log_delta: float
    log_chernoff: float


class Composition:
    """Releases at one epsilon: laws apart from the Gaussians, which are one variance."""

    def __init__(self, releases: Releases, epsilon: Fraction, most_points: int):
        self.epsilon, self.most_points = epsilon, most_points
        natural = [(n, law) for n, law in releases if law.variance is not None]
        self.variance = total(n * law.variance for n, law in natural)
        self.laws = [(n, law) for n, law in releases if law.variance is None]
        self.mass = math.prod(((1 - law.infinite) ** n for n, law in releases), start=arb(1))
        self.nats = 40.0

    def moment(self, c: Any) -> Any:
        """M(c) of all releases."""
        parts = (law.real(c, self.nats + math.log(n)) ** n for n, law in self.laws)
        return math.prod(parts, start=((c * c + c) * self.variance / 2).exp())

    def log_moment(self, c: float) -> float:
        """log M(c), for choices."""
        value = (c * c + c) * number(self.variance) / 2
        return value + sum(n * law.log_moment(c) for n, law in self.laws)

    def line(self, c: Any, step: Any, count: int) -> list[Any]:
        """M(c + i step j), j = 0, ..., count, apart from the variance."""
        whole = [acb(1)] * (count + 1)
        for n, law in self.laws:
            line = law.line(c, step, count, self.nats + math.log(n))
            whole = [x * y**n for x, y in zip(whole, line, strict=True)]
        return whole

    def tail(self, c: Any, start: float, stop: float) -> Any:
        """Upper bound on |M(c + i t)|, start <= t <= stop, apart from the variance."""
        tails = (law.tail(c, start, self.nats + math.log(n), stop) ** n for n, law in self.laws)
        return math.prod(tails, start=arb(1))

    def log_tail(self, c: float, t: float) -> float:
        """log of `tail`, for choices."""
        return sum(n * law.log_tail(c, t) for n, law in self.laws)

    def lattice(self) -> tuple[Fraction, Fraction] | None:
        """Unit and offset of a lattice that holds every total."""
        found: list[Any] = [law.lattice for _, law in self.laws]
        if None in found or not found or not self.variance.is_zero():
            return None
        units = [unit for unit, _ in found]
        scale = math.lcm(*(x.denominator for x in units))
        unit = Fraction(math.gcd(*(int(x * scale) for x in units)), scale)
        if unit * _FINEST < max(units):
            return None
        offset = sum((n * x[1] for (n, _), x in zip(self.laws, found, strict=True)), Fraction(0))
        return unit, offset


def bracket(releases: Releases, epsilon: Fraction, most_points: int) -> Bracket:
    """Bounds on delta over finite losses."""
    whole = Composition(releases, epsilon, most_points)
    choice = choose(whole)
    largest = max(n for n, _ in releases)
    result = Bracket(arb(0), whole.mass, 0)
    for trial in range(_TRIALS):
        lost = max(0.0, choice.log_chernoff - choice.log_delta)
        with precision(110 + 2 * largest.bit_length() + int(1.5 * lost)):
            whole.nats = lost - math.log(_AIM) + 6
            found = _evaluate(whole, choice)
        lower, upper = arb.max(result.lower, found.lower), arb.min(result.upper, found.upper)
        result = Bracket(lower, upper, found.points)
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
    for _ in range(14):
        a, b = low + (high - low) * 0.381966, high - (high - low) * 0.381966
        low, high = (low, b) if objective(a) < objective(b) else (a, high)
    log_tilt, d = (low + high) / 2, 1e-3
    tilt = math.exp(log_tilt)
    values = [objective(log_tilt + k * d) for k in (-1, 0, 1)]
    # The second derivative in log c is c^2 times that in c, where the first vanishes.
    curve = max((values[0] - 2 * values[1] + values[2]) / d**2, 1e-9)
    deviation = math.sqrt(curve) / tilt
    log_delta = values[1] - 0.5 * math.log(2 * math.pi * curve / tilt**2)
    return Choice(tilt, deviation, log_delta, whole.log_moment(tilt) - tilt * epsilon)


def _evaluate(whole: Composition, choice: Choice) -> Bracket:
    """The bracket that steps 2 to 5 of the theorem give with these choices."""
    goal = choice.log_delta + math.log(_AIM)
    tilts, period = _aliases(whole, choice, goal)
    c, epsilon, lattice = arb(choice.tilt), ball(whole.epsilon), whole.lattice()
    if lattice is not None:
        found, rest, gap, period, count = _on_lattice(whole, c, period, *lattice)
    else:
        found, rest, gap, count = _on_line(whole, choice, c, period, goal)
    alias = arb(0)
    for tilt in tilts:
        v = arb(tilt)
        size = _markov(v) * whole.moment(v) * (-v * epsilon).exp()
        ratio = (-abs(v - c) * arb(period)).exp()
        alias += size * ratio / (1 - ratio)
    lower = arb.max(arb(0), arb((found - rest - alias - gap).lower()))
    return Bracket(lower, arb((found + rest).upper()), count + 1)


def _aliases(whole: Composition, choice: Choice, goal: float) -> tuple[list[float], float]:
    """A tilt on each side for Markov's inequality, and the period at which both reach `goal`."""
    c, epsilon = choice.tilt, float(whole.epsilon)

    def period(v: float) -> float:
        moment = log_number(_markov(arb(v))) + whole.log_moment(v)
        return (moment - v * epsilon - goal) / abs(v - c)

    right = [c + j / choice.deviation for j in _STEPS] + [c * g for g in _RIGHT]
    left = [c - j / choice.deviation for j in _STEPS] + [c * g for g in _LEFT]
    tilts = [min(right, key=period), min([*(v for v in left if v > 0), 0.0], key=period)]
    return tilts, 1.001 * max(*map(period, tilts), 1e-3 / choice.deviation)


def _on_lattice(
    whole: Composition, c: Any, period: float, unit: Fraction, offset: Fraction
) -> tuple[Any, Any, Any, Any, int]:
    """The sum over one period of a lattice, step 5 of the theorem."""
    n_points, width = math.ceil(period / float(unit)) + 1, ball(unit)
    step = 2 * arb.pi() / (width * n_points)
    first = ball(offset + unit * (math.floor((whole.epsilon - offset) / unit) + 1))
    decay = (ball(whole.epsilon) - first).exp()

    def kernel(s: Any) -> Any:
        near = 1 / (1 - (-s * width).exp()) - decay / (1 - (-(s + 1) * width).exp())
        return (-s * first).exp() * near

    if n_points > 2 * whole.most_points:
        return arb(0), whole.mass, arb(0), width * n_points, 0
    found = _summed(whole, c, step, n_points // 2, [(arb(0), kernel)], n_points)[0]
    return found / n_points, arb(0), arb(0), width * n_points, n_points // 2


def _on_line(
    whole: Composition, choice: Choice, c: Any, period: float, goal: float
) -> tuple[Any, Any, Any, int]:
    """The sum, its rest, and the gap of the smoothing: steps 2 to 4 of the theorem."""
    step, epsilon = 2 * arb.pi() / arb(period), ball(whole.epsilon)
    width = 2 * math.pi / period
    count, most = _count(whole, choice, width, goal)
    lift = (-c * epsilon).exp() / arb.pi()

    def rest(variance: Any, parts: list[Any]) -> Any:
        """Bound on the integral beyond the sum, from the bounds of |M| between the t of `parts`."""
        falls = (((c * c + c - arb(t) ** 2) * variance / 2).exp() for t, _ in parts)
        return total(
            lift * bound * fall / arb(t) for (t, bound), fall in zip(parts, falls, strict=True)
        )

    smooth, variance, parts, start = arb(0), whole.variance, [], 0.0
    for attempt in range(_LONGER):
        count = min(math.ceil(count * _GROWTH**attempt), most)
        start = count * width * (1 - 1e-12)
        parts = [(start, whole.tail(c, start, math.inf))]
        if count == most or log_number(rest(variance, parts)) <= goal:
            break
    if log_number(rest(variance, parts)) > goal:
        smooth, parts = _smoothing(whole, c, start, goal, rest)
        # A rest far below the gap, about smooth c / 2 of delta, gains nothing.
        loose = choice.log_delta + math.log(_REST * number(smooth) * choice.tilt / 2)
        if loose > goal:
            smooth, parts = _smoothing(whole, c, start, loose, rest)
        variance += smooth
    kernels = [(variance, lambda s: (-s * epsilon).exp() / (s * (s + 1)))]
    if smooth > 0:
        # From V to W = 9/8 V.
        kernels.append((variance + smooth / 8, lambda s: (-s * epsilon).exp()))
    sums = _summed(whole, c, step, count, kernels, 0)
    found, *density = (x * step / (2 * arb.pi()) for x in sums)
    gap = arb(0)
    if density:
        wide = variance + smooth / 8
        beyond = rest(wide, parts) / wide
        inflated = (arb(9) / 8).sqrt() * (arb(81) / 64 * smooth).exp()
        gap = (smooth * inflated * (density[0] + beyond)).abs_upper()
    return found, rest(variance, parts), gap, count


def _smoothing(
    whole: Composition, c: Any, start: float, goal: float, rest: Callable[..., Any]
) -> tuple[Any, list[Any]]:
    """The variance of the smoothing, and the bounds of |M|.

    Between `start` and an end |M| may be small by itself; the smoothing hides it beyond.
    """
    found: Any = None
    for ratio in _ENDS:
        end = start * ratio
        last = [(end, whole.tail(c, end, math.inf))]
        short = log_number(rest(whole.variance, last)) - goal
        smooth = arb(max(2 * short, 1.0) / end**2 * _GAIN)
        parts = last if ratio == 1 else [(start, whole.tail(c, start, end)), *last]
        if found and log_number(rest(whole.variance + smooth, parts)) > goal + 1:
            break
        found = smooth, parts
    return found


def _count(whole: Composition, choice: Choice, width: float, goal: float) -> tuple[int, int]:
    """Points after which the rest is below the goal; and as many as take seconds."""
    work = sum(len(law.float_nodes(choice.tilt)) for _, law in whole.laws) + 1
    most = min(whole.most_points, int(_WORK / work))
    last = most * width
    start = min(max(6.0 / choice.deviation, width), last)
    variance, c = number(whole.variance), choice.tilt
    lift = (c * c + c) * variance / 2 - c * float(whole.epsilon) - math.log(math.pi)
    while start < last:
        rest = whole.log_tail(c, start) + lift - start * start * variance / 2 - math.log(start)
        if rest < goal:
            break
        start = min(1.15 * start, last)
    return math.ceil(start / width), most


def _summed(
    whole: Composition, c: Any, step: Any, count: int, kernels: list[Any], period: int
) -> list[Any]:
    """Real parts of the sums of M e^((s^2 + s) V / 2) times a kernel, |j| <= count or a period."""
    sums = [arb(0) for _ in kernels]
    for j, value in enumerate(whole.line(c, step, count)):
        s = acb(c, step * j)
        once = j == 0 or 2 * j == period
        for i, (variance, kernel) in enumerate(kernels):
            term = value * ((s * s + s) * variance / 2).exp() * kernel(s)
            sums[i] += term.real * (1 if once else 2)
    return sums


def _markov(v: Any) -> Any:
    """k(v) of the theorem."""
    return v**v / (1 + v) ** (1 + v) if v > 0 else arb(1)
