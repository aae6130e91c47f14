"""log delta of sampled Gaussians if a record is removed or replaced and few samples hold it.

The noise coordinate x has the density p = a(x) N(0, 1) under P, where a is a sum of increasing
exponentials. Under Q it has the density N(0, 1), or a(-x) N(0, 1) if a record is replaced. The
smooth step C(x) = erfc((x - c) / w) / 2, and T, the same step at c' > c, split p into positive
parts: A = p C, D = p (T - C) and R = p (1 - T). With F = A + D and the loss l = log r, where r is
the ratio of both densities, delta of n releases is the sum of

* losses of A alone: at most Chernoff's bound, which c puts far below delta;
* no R and some D: F^n - A^n = A^n expm1(n log1p(D / A)), summed as in `terms`;
* some R: P[some R] - e^epsilon Q[some R] + E (e^(epsilon - L) - 1)_+. The probabilities are closed
  forms: erfc((x - c) / w) / 2 has the mean Phi((c - m) / (1 + w^2 / 2)^(1/2)) under N(m, 1). The
  last term is at most e^((1 + s) epsilon - entropy(s)) E e^(-(1 + s) L), by Chernoff's bound. If a
  record is replaced, e^epsilon Q[some R] is its bound.

At a height y within `strip`, three moduli are compared with their values on the axis. |a(x)| is at
most as large, because its terms are positive. |a(-x)| is at least cos(m y / 2) times as large, with
m the only mean. |erfc((x + i y - c) / w)| is at most e^(y^2 / w^2) times as large. So moments of
moduli are at most G(y) = e^(y^2 / 2 + y^2 / w^2) times the real moments, divided by cos(m y /
2)^theta if a record is replaced. The bracket has these errors:

* quadrature, of nodes dx apart at a height y: e^(-2 pi y / dx) of the real moments from below, and
  e^(-2 pi (Y - y) / dx) G(Y) of them from above, at the best Y;
* truncation: beyond t, A has at most its moment at theta, and D at most G E |D| e^(-t Im l);
* images of delta at epsilon + j period, by Chernoff's bounds of F^n - A^n at other tilts;
* rounding of the sums, times n, of powers and of turns.

Measured: 1e-9 to 1e-5 nats. The bracket is wide where delta is below the rounding of D. Chosen by
`engines`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxdp._core.namespace import logsumexp, special
from jaxdp._numeric.elementary import LOG_SQRT_2PI, ULP, conversion_entropy
from jaxdp.accountant import inverse
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.composition import Term, Terms
from jaxdp.accountant.contour import engine as contour
from jaxdp.accountant.contour.engine import LARGEST_EPSILON, Lanes, lanes_last
from jaxdp.accountant.contour.mixtures import loss_above, loss_on_axis, mixtures_of
from jaxdp.accountant.inverse import Reading
from jaxdp.accountant.runner import by_lanes
from jaxdp.accountant.steps import Engine, LogBounds, Question, of_numpy
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.poisson import Poisson
from jaxdp.dominating_pair.replaced import Replaced
from jaxdp.noise.gaussian import Gaussian

NEAR = 32  # points that share a far power. measured
SPACING = 0.34  # of nodes, over w. chosen: from below and from above they miss e^(-42)
FALLEN = 23.0  # nats below its peak of a tilted law's last node. derived: 1e-10
PLACES = 1400  # of estimates. chosen
MOST_NODES = 2**13  # of a plan. chosen: the arrays of its terms take 70 MB
FIRST = -9.5  # first node, in units of the noise. chosen: BELOW is far below delta's rounding
LAST = 60.0  # last place of a step, in units of the noise. chosen
BELOW = 2.2e-21  # twice the probability below the first node. derived
HEIGHT = 6.8  # of the contour's nodes, in nodes. chosen
# Tilts over 1 / epsilon. chosen
TILTS = np.exp(np.arange(-3.0, 6.2, 0.15))[:, None, None]
# Loss of c and of c' over epsilon, w over the largest mean, points. measured
PLANS = (
    (0.1, 4.0, 0.4, 1024),
    (0.35, 4.0, 0.2, 1024),
    (0.1, 4.0, 0.2, 1024),
    (0.6, 2.0, 0.1, 1024),
    (0.6, 1.6, 0.05, 1024),
    (0.1, 4.0, 0.1, 4096),
    (0.04, 4.0, 0.2, 4096),
    (0.1, 12.0, 0.2, 4096),
    (0.1, 12.0, 0.2, 16384),
    (0.04, 12.0, 0.2, 16384),
    (0.1, 12.0, 0.1, 16384),
)
TRIED = 2  # contours, if no plan is good. chosen
ENOUGH = -13.0  # log of a predicted error over delta that is small. chosen
CLOSE = 1e-5  # width of a bracket with which the plans end. chosen
MOST_HITS = 20.0  # expected samples with the record. measured: beyond, `mixtures` answers
BELOW_DELTA = 25.0  # nats of images and of the remainder. chosen
FAR = 90.0  # twice the nats below delta of losses above c'. chosen
EXACT = 5e-13  # relative error of a node's weight but its exponent's. measured: SciPy's w has 1e-13
ROUNDS = 4  # most plans for an epsilon, one after the other. chosen
NEAR_PLAN = 0.1  # share of epsilon up to which a plan serves another one. chosen
MOST = 64.0  # largest epsilon over its estimate. chosen
LEAST = {"log delta": 1e-12, "epsilon": 1e-300}  # epsilon and delta. chosen
RARELY = -32.0  # log of a probability that equals its expected number. derived: 1e-14
LARGEST = 690.0  # derived: e^709 is the largest double


def engine(question: Question) -> Engine:
    """The bounds for a question."""
    answer = _log_delta if question == "log delta" else _epsilon

    def solve(of: tuple[Lanes, Any], _: Any) -> LogBounds:
        lanes, replaces = of
        value, rows = float(lanes.value[0]), lanes_last(lanes.rows)  # of one lane
        lower, upper = -np.inf, np.inf
        if _serves(rows) and LEAST[question] < value < LARGEST_EPSILON:
            used = rows.number[:, 0] > 0
            kept = {name: getattr(rows, name)[..., used, :] for name in rows._fields[:-1]}
            law = _law(rows._replace(**kept), bool(replaces[0]), LAST, PLACES)
            lower, upper = answer(law, value)
        unknown = np.isnan([lower, upper])
        found = np.where(unknown, [-np.inf, np.inf], [lower, upper])
        return of_numpy(found[:1], found[1:])

    return by_lanes(lanes_of, solve, lambda _: 1)


def lanes_of(batch: Batch, known: Any) -> tuple[Lanes, Any]:
    """Lanes as if the record were removed, and for each lane whether it is replaced instead."""
    replaces = _are_replaced(batch.terms)
    if replaces:
        batch = Batch(tuple(map(_removed, batch.terms)), batch.values)
    return Lanes(*mixtures_of(batch), batch.values, known), np.full(batch.values.shape, replaces)


def serves(terms: Terms) -> bool:
    """True for sampled Gaussians, with a record removed, added or replaced."""
    return contour.serves(terms) or _are_replaced(terms)


def _are_replaced(terms: Terms) -> bool:
    return all(isinstance(x.pair, Replaced) and isinstance(x.pair.noise, Gaussian) for x in terms)


def _removed(term: Term) -> Term:
    """The term in which the record is removed instead of replaced."""
    pair: Any = term.pair
    whole = Additive(pair.noise, pair.shift)
    return Term(Poisson(whole, pair.sampling_prob, 0.0), term.count)


def _serves(rows: Any) -> bool:
    """True if records are removed, and few samples hold one."""
    used = rows.number[:, 0] > 0
    hits = np.sum(rows.number * np.sum(rows.share, (0, 1)))
    is_plain = rows.mixtures == 1 and rows.variance[0] == 0
    return bool(is_plain and 0 < hits < MOST_HITS and np.all(rows.sign[used] == 1))


class _Law(NamedTuple):
    """Phases of equal releases, on one row of nodes."""

    of: Any  # the components of one lane
    replaces: bool  # True if records are replaced, not removed
    number: Any  # (phases,)
    mean: Any  # the largest one (phases,)
    x: Any  # (nodes, 1)
    spacing: float
    loss: Any  # (nodes, phases)
    log_p: Any  # log of the masses under P (nodes, phases)
    log_q: Any  # under N(0, 1) (nodes, 1), which is Q unless records are replaced

    def place(self, loss: float) -> Any:
        """x of a loss (phases,), estimated."""
        return np.array([np.interp(loss, row, self.x[:, 0]) for row in self.loss.T])

    def log_above(self, c: Any, width: Any) -> tuple[Any, Any]:
        """log of the probability above a step, under P and Q (phases,)."""
        of, s = self.of, np.sqrt(1.0 + 0.5 * width * width)
        share, mean = of.share[:, 0, :, 0].T, of.mean[:, 0, :, 0].T
        log_share = np.where(share > 0, np.log(np.where(share > 0, share, 1.0)), -np.inf)
        none = special.log_ndtr(-c / s)

        def with_record(mean: Any) -> Any:
            each = special.log_ndtr((mean - c[..., None]) / np.expand_dims(s, -1))
            hit = logsumexp(log_share + each, axis=-1)
            return np.logaddexp(np.log(of.miss[0, :, 0]) + none, hit)

        return with_record(mean), with_record(-mean) if self.replaces else none


def _law(of: Any, replaces: bool, last: float, nodes: int) -> _Law:
    number, mean = of.number[:, 0], np.max(of.mean, (0, 1))[:, 0]
    spacing = (last - FIRST) / (nodes - 1.0)
    x = FIRST + spacing * np.arange(1.0 * nodes)[:, None]
    at = (x + 0.0 * number)[:, :, None]
    ahead = loss_on_axis(of, at)[:, :, 0]
    behind = loss_on_axis(of, -at)[:, :, 0] if replaces else 0.0 * ahead
    log_q = np.log(spacing) - LOG_SQRT_2PI - 0.5 * x * x
    return _Law(of, replaces, number, mean, x, spacing, ahead - behind, log_q + ahead, log_q)


class _Plan(NamedTuple):
    """Both steps, the parts of a law, bounds at real tilts for epsilon 0, and a contour."""

    law: _Law
    places: Any  # c, c' and w (phases,)
    masses: Any  # log of A, D (nodes, phases)
    parts: Any  # log of the moments of A, D (tilts, phases)
    tilts: Any  # (tilts,)
    none: Any  # log of Chernoff's bounds of A^n
    some: Any  # of F^n - A^n
    put: Any  # of what the probabilities of R leave out, at tilts 1 + s
    far: tuple[float, ...]  # log of P[some R] and Q[some R]
    fall: float  # width of the step at c, in losses
    grown: float  # log of the moduli on the nodes' line over the real ones
    points: int
    theta: int = 0
    period: float = np.nan
    log_error: float = np.inf  # predicted, over delta


def _least(x: Any, axis: int | None = None) -> Any:
    """Least entries that are not NaN."""
    return np.min(np.where(np.isnan(x), np.inf, x), axis)


def _log_sum(log_mass: Any, rise: Any) -> Any:
    """log of sum e^(log_mass + rise) (tilts, phases); infinite where the last node still counts."""
    exponent = log_mass + rise
    falls = exponent[:, -1] < np.max(exponent, 1) - FALLEN
    return np.where(falls, logsumexp(exponent, axis=1), np.inf)


def _log_moment(log_mass: Any, log_missing: Any, rise: Any) -> Any:
    """log of 1 - e^log_missing + sum e^log_mass (e^rise - 1)."""
    risen = np.sum(np.exp(log_mass) * np.expm1(np.minimum(rise, LARGEST)), 1)
    far = _log_sum(log_mass, rise)
    near = (np.max(rise, 1) < LARGEST) & (far < np.inf)
    return np.where(near, np.log1p(risen - np.exp(log_missing)), far)


def _log_rest(number: Any, log_ratio: Any) -> Any:
    """log of the product of (1 + ratio)^number, less 1, rounded up where it is small."""
    total = np.sum(number * np.logaddexp(0.0, log_ratio), -1)
    small = logsumexp(log_ratio + np.log(number), axis=-1) + total
    middle = np.log(np.expm1(np.clip(total, 1e-9, 30.0)))
    return np.where(total > 30.0, total, np.where(total < 1e-9, small, middle))


def _log_some(number: Any, log_p: Any) -> float:
    """log of the probability that an event of a release happens in one of all releases."""
    expected = float(logsumexp(log_p + np.log(number), axis=-1))
    if expected < RARELY:
        return expected
    return float(np.log(-np.expm1(np.sum(number * np.log1p(-np.exp(log_p))))))


def _planned(wide: _Law, epsilon: float, plan: tuple[float, float, float, int]) -> _Plan | None:
    """The plan at an epsilon; None where it has too many nodes."""
    n, t, own, w = wide.number, TILTS / epsilon, wide.place(epsilon), plan[2] / wide.mean
    c, top = (wide.place(share * epsilon) for share in plan[:2])
    most = wide.mean + np.sqrt(np.maximum(own - wide.mean, 0.0) ** 2 + FAR)
    # If records are replaced, negative losses of other releases can outweigh one loss above c'. So
    # c' is placed where the mass above it is far below delta.
    top = np.maximum(most if wide.replaces else np.minimum(top, most), c + 2.0 * w)
    last = float(np.max(top + 11.0 * w))
    nodes = int((last - FIRST) / (SPACING * np.min(w))) + 2
    if nodes > MOST_NODES:
        return None
    law = _law(wide.of, wide.replaces, last, nodes)
    x = law.x
    at = [np.sqrt(2.0) * (x - place) / w for place in (c, top)]
    (low, high), (low_c, high_c) = (special.log_ndtr(sign * np.stack(at)) for sign in (-1.0, 1.0))
    is_low = x < 0.5 * (c + top)
    big, small = np.where(is_low, low_c, high), np.where(is_low, high_c, low)
    between = np.where(
        big > -np.inf, big + np.log1p(-np.exp(np.minimum(small - big, 0.0))), -np.inf
    )
    masses = law.log_p + low, law.log_p + between
    rise = t * law.loss
    log_cut, p_far = (law.log_above(place, w) for place in (c, top))
    log_a = _log_moment(masses[0], log_cut[0], rise)
    log_d = _log_sum(masses[1], rise)
    t: Any = t[:, 0, 0]
    entropy: Any = conversion_entropy(t)
    powers = np.sum(n * log_a, 1)
    slack = 1e-9 * (1.0 + np.sum(n * np.abs(log_a), 1))
    none = powers - entropy + slack
    some = none + _log_rest(n, log_d - log_a) + 1e-9
    far = tuple(_log_some(n, v) for v in p_far)
    if law.replaces:
        put = np.full_like(t, far[1])
    else:
        # Under Q at tilts -s: P's at -1 - s.
        rest = law.log_q + high_c - rise
        beyond = special.log_ndtr(-x[-1]) - rise[:, -1]
        rest = np.logaddexp(logsumexp(rest, axis=1), beyond)
        kept = _log_moment(law.log_q + high, p_far[1], -rise)
        put = np.sum(n * kept, 1) - entropy + _log_rest(n, rest - kept)
        put = put + 1e-9 * (1.0 + np.sum(n * np.abs(kept), 1))
    slopes = np.gradient(law.loss, law.spacing, axis=0)
    slope = [np.interp(place, x[:, 0], row) for place, row in zip(c, slopes.T, strict=True)]
    grown = np.max((HEIGHT * law.spacing) ** 2 * (0.5 + 1.0 / w**2))
    fall, parts = float(np.min(slope * w)), (log_a, log_d)
    bounds = t, none, some, put, far, fall, float(grown), plan[3]
    return _with_contour(_Plan(law, (c, top, w), masses, parts, *bounds), epsilon)


def _with_contour(of: _Plan, epsilon: float) -> _Plan:
    """The plan with the tilt and the period of the least predicted error."""
    t = of.tilts
    chernoff = of.some - t * epsilon
    chernoff = np.where(np.isnan(chernoff), np.inf, chernoff)
    unit = np.min(chernoff) - 2.0
    apart = np.where(np.eye(t.size) > 0, np.nan, np.abs(t[:, None] - t))
    reach, is_above = (chernoff - unit + BELOW_DELTA) / apart, t > t[:, None]
    sides = (np.where(side, reach, np.inf) for side in (is_above, ~is_above))
    period = np.max([_least(side, 1) for side in sides], 0)
    # Nats of the largest term above delta, and of what the points miss.
    size = chernoff + conversion_entropy(t) - np.log(t * (1.0 + t)) - unit
    height = 2.0 * np.sqrt(BELOW_DELTA + np.maximum(size, 0.0)) / of.fall
    missed = 30.0 * np.log(np.maximum(height * period / (1.8 * np.pi * of.points), 1.0))
    errors = np.logaddexp(size + np.log(EXACT) + of.grown, missed - BELOW_DELTA)
    errors = np.where(np.isfinite(errors), errors, np.inf)
    best = int(np.argmin(errors))
    lost = _least(of.none - t * epsilon), _least(of.put + (1.0 + t) * epsilon)
    predicted = logsumexp(np.array([errors[best], *(lost - np.logaddexp(unit, of.far[0]))]))
    predicted = float(predicted) if predicted == predicted else np.inf
    return of._replace(theta=best, period=period[best], log_error=predicted)


class _Line(NamedTuple):
    """A contour at an epsilon."""

    plan: _Plan
    epsilon: float
    t: Any
    terms: Any  # of the sum, over e^log_scale
    log_scale: float
    errors: tuple[float, float, float]  # of the sum, of its remainder, relative

    def read(self, epsilon: Any) -> Reading:
        """Bounds on log delta, and log of minus delta's slope."""
        plan, move = self.plan, epsilon - self.epsilon
        theta = plan.tilts[plan.theta]
        turned = self.terms * np.exp(-1j * self.t * move)
        value, unit = np.sum(turned.real), self.log_scale - theta * move
        error = self.errors[0] + 4.0 * ULP * abs(move) * np.sum(np.abs(turned) * self.t)
        error = error + (abs(value) + error) * self.errors[2]
        gap = np.abs(plan.tilts - theta) * plan.period
        images = plan.some - plan.tilts * epsilon - unit - gap
        images = images - np.log1p(-np.exp(-np.maximum(gap, 1e-300)))
        sides = plan.tilts > theta, plan.tilts < theta
        aliased = np.sum([np.exp(_least(np.where(x, images, np.inf))) for x in sides])
        none = np.exp(_least(plan.none - plan.tilts * epsilon) - unit)
        put = np.exp(_least(plan.put + (1.0 + plan.tilts) * epsilon) - unit)
        p, q = np.exp(plan.far[0] - unit), np.exp(plan.far[1] + epsilon - unit)
        error = error + self.errors[1] + 2.0 * EXACT * (p + q)
        high, low = value + p - q + error + none + put, value + p - q - error - aliased
        rounded = 8.0 * ULP * (1.0 + abs(unit))
        lower: Any = unit + np.log(low) - rounded if low > 0 else -np.inf
        upper: Any = min(unit + np.log(high) + rounded, 0.0) if high > 0 else np.inf
        falls = np.sum(((theta + 1j * self.t) * turned).real) + q
        log_fall: Any = unit + np.log(falls) if falls > 0 else np.nan
        return Reading(lower, upper, log_fall)


class _Weights(NamedTuple):
    """A and D on the nodes above the real axis, over their moments at the tilt."""

    loss: Any  # (nodes, phases)
    size: Any  # sum of the moduli of the two terms of `loss`
    parts: Any  # of A, of D (nodes, phases)
    rounded: Any  # relative error (phases,)
    constant: Any  # errors of both that do not depend on t (phases,)
    outside: Any  # error of A over |z|


def _weights(plan: _Plan) -> _Weights:
    law, (c, top, w) = plan.law, plan.places
    x, dx, theta = law.x, law.spacing, plan.tilts[plan.theta]
    log_a, log_d = (part[plan.theta] for part in plan.parts)
    strip = _strip(law)
    y = min(HEIGHT * dx, 0.5 * strip)
    ahead, behind = _ratios_above(law, y)
    loss, size = ahead - behind, np.abs(ahead) + np.abs(behind)
    log_p = theta * loss + ahead - 0.5 * (x + 1j * y) ** 2 + (np.log(dx) - LOG_SQRT_2PI)
    low, high = (_halves((x - place) / w, y / w) for place in (c, top))
    low_c, high_c = (_halves((place - x) / w, -y / w) for place in (c, top))
    between = np.where(x < 0.5 * (c + top), low_c - high_c, high - low)
    parts = np.exp(log_p - log_a) * low, np.exp(log_p - log_d) * between
    sizes = [np.abs(part) for part in parts]
    ends = [_beyond(s[-2], s[-1]) for s in sizes]
    rise = _heights(law)
    above = np.where(rise > y, _log_growth(plan, rise) - 2.0 * np.pi * (rise - y) / dx, np.inf)
    missed = 4.0 * (np.exp(np.min(above, 0)) + np.exp(-2.0 * np.pi * y / dx))
    of_a = ends[0] + missed * (1.0 + np.exp(-log_a))
    of_d = ends[1] + _beyond(sizes[1][1], sizes[1][0]) + missed
    largest = np.max(np.abs(log_p) + theta * np.abs(behind), 0) + np.abs(log_d) + np.abs(log_a)
    rounded = EXACT + ULP * (4.0 * largest + 3.0 * x.size + 64.0)
    below = np.abs(law.loss[0]) + (np.pi + 2.0 * law.mean if law.replaces else 0.0)
    outside = BELOW * np.exp(_log_growth(plan, y) - log_a) * below
    return _Weights(loss, size, parts, rounded, (of_a, of_d), outside)


def _strip(law: _Law) -> float:
    """Height up to which losses are analytic and their angles positive."""
    return 0.95 * min(np.min(law.of.strip), np.pi / np.max(law.mean))


def _heights(law: _Law) -> Any:
    """Some heights within the strip (heights, 1)."""
    return _strip(law) * np.exp2(np.arange(-4.0, 1.0))[:, None]


def _log_growth(plan: _Plan, rise: Any) -> Any:
    """log G at heights (..., phases)."""
    grown = rise**2 * (0.5 + 1.0 / plan.places[2] ** 2)
    if plan.law.replaces:
        grown = grown - plan.tilts[plan.theta] * np.log(np.cos(0.5 * plan.law.mean * rise))
    return grown


def _summed(plan: _Plan, on: _Weights, j: int, t: Any) -> tuple[Any, ...]:
    """log of A^n over its moment, n log1p(D / A), and their errors, at the points of phase j."""
    n, theta = plan.law.number[j], plan.tilts[plan.theta]
    near, far = (np.expm1(1j * at[:, None] * on.loss[:, j]) for at in (t[:NEAR], t[::NEAR]))
    part_a, part_d = (part[:, j] for part in on.parts)
    sums = [np.einsum("in,kn->ik", x * (1.0 + far), near) for x in (part_a, part_d)]
    a = (sums[0] + (part_a * far).sum(1)[:, None]).ravel()
    d = (sums[1] + (part_d * (1.0 + far)).sum(1)[:, None]).ravel()
    size_a, size_d = np.abs(part_a), np.abs(part_d)
    turn_a, turn_d = (t * np.sum(x * on.size[:, j], 0) for x in (size_a, size_d))
    error_a = on.rounded[j] * np.minimum(3.0 * np.sum(size_a), turn_a) + 2.0 * ULP * turn_a
    error_a = error_a + on.constant[0][j] + on.outside[j] * np.hypot(theta, t)
    error_d = on.rounded[j] * np.sum(size_d) + 2.0 * ULP * turn_d + on.constant[1][j]
    r0 = np.exp(plan.parts[1][plan.theta, j] - plan.parts[0][plan.theta, j])
    ratio = r0 * d / (1.0 + a)
    left = np.abs(1.0 + a) - error_a
    share = (r0 * error_d + np.abs(ratio) * error_a) / (left * np.abs(1.0 + ratio))
    bad = ~((left > 0) & (share < 0.5))
    of_power = np.where(bad, np.inf, n * np.log1p(error_a / np.where(bad, 1.0, left)))
    of_turns = np.where(bad, np.inf, -n * np.log1p(-np.where(bad, 0.0, share)))
    return n * _log1p(a), n * _log1p(ratio), of_power, of_turns


def _line(plan: _Plan, epsilon: float) -> _Line:
    law, theta = plan.law, plan.tilts[plan.theta]
    n, log_a = law.number, plan.parts[0][plan.theta]
    h = 2.0 * np.pi / plan.period
    t = h * np.arange(1.0 * plan.points)
    on = _weights(plan)
    phases = [_summed(plan, on, j, t) for j in range(n.size)]
    power, turns, of_power, of_turns = (np.sum(x, 0) for x in zip(*phases, strict=True))
    # Errors of A^n, and of the factor of D.
    of_power = of_power + 8.0 * ULP * (1.0 + np.abs(power))
    of_turns = of_turns + 8.0 * ULP * np.abs(turns)
    of_power, of_turns = (np.expm1(np.minimum(v, LARGEST)) for v in (of_power, of_turns))
    grown, z = np.expm1(turns), theta + 1j * t
    error = of_power * np.abs(grown) + (1.0 + of_power) * of_turns * np.exp(turns.real)
    rule = np.where(t == 0, 0.5, 1.0) * (h / np.pi) * np.exp(power) / (z * (z + 1.0))
    terms = rule * grown * np.exp(-1j * t * epsilon)
    error = np.sum(np.abs(rule) * error)
    error = error + ULP * np.sum(np.abs(terms) * (32.0 + 4.0 * t * epsilon))
    # The moments of A and D at the tilt.
    relative = (n * (1.0 + np.exp(-log_a)) + 1.0) @ on.rounded
    log_scale = float(np.sum(n * log_a) - theta * epsilon)
    # The remainder beyond the last point.
    end, log_bar = t[-1], np.inf
    rise = _heights(law)
    for up, log_growth in zip(rise, _log_growth(plan, rise), strict=True):
        ahead, behind = _ratios_above(law, float(up[0]))
        fall = plan.masses[1] + theta * law.loss - end * np.imag(ahead - behind)
        log_bar = np.fmin(log_bar, np.log(2.0) + log_growth + logsumexp(fall, axis=0))
    remainder = float(np.exp(_log_rest(n, log_bar - log_a)) / (np.pi * end))
    return _Line(plan, epsilon, t, terms, log_scale, (error, remainder, relative))


def _ratios_above(law: _Law, y: float) -> tuple[Any, Any]:
    """log of the densities of P and Q over N(0, 1) at a height; NaN if an angle is unknown."""
    x = (law.x + 0.0 * law.number)[:, :, None]
    height: Any = np.full((law.number.size, 1), y)
    re, im = loss_above(law.of, x, height)
    ahead = (re + 1j * im)[:, :, 0]
    if not law.replaces:
        return ahead, 0.0 * ahead
    re, im = loss_above(law.of, -x, height)
    return ahead, (re - 1j * im)[:, :, 0]


def _halves(x: Any, y: Any) -> Any:
    """erfc(x + i y) / 2."""
    from scipy.special import wofz

    z = np.where(x < 0, -1.0, 1.0) * (x + 1j * y)
    small = 0.5 * np.exp(-z * z) * wofz(1j * z)
    return np.where(x < 0, 1.0 - small, small)


def _beyond(last: Any, end: Any) -> Any:
    """Bound on the nodes beyond an end, where moduli fall."""
    return np.where(end <= 0.5 * last, 2.0 * end, np.inf)


def _log1p(z: Any) -> Any:
    """log(1 + z), of which the real part keeps its digits, unlike NumPy's."""
    square = 2.0 * z.real + np.abs(z) ** 2
    near = square > -0.5
    far = np.log(np.maximum(np.abs(1.0 + z), 1e-300))
    return np.where(near, 0.5 * np.log1p(np.where(near, square, 0.0)), far) + 1j * np.angle(1.0 + z)


def _lines(wide: _Law, epsilon: float) -> list[_Line]:
    """The contours of good plans at an epsilon, until one is close, else of the best plans."""
    lines, others = list[_Line](), list[_Plan]()
    for plan in PLANS:
        found = _planned(wide, epsilon, plan)
        if found is None:
            continue
        if found.log_error > ENOUGH:
            others.append(found)
            continue
        lines.append(_line(found, epsilon))
        lower, upper, _ = lines[-1].read(epsilon)
        if upper - lower < CLOSE:
            return lines[-1:]
    others = sorted(others, key=lambda x: x.log_error)[: max(TRIED - len(lines), 0)]
    return lines + [_line(plan, epsilon) for plan in others]


def _log_delta(wide: _Law, epsilon: float) -> tuple[float, float]:
    read: list[Any] = [line.read(epsilon) for line in _lines(wide, epsilon)]
    return max((x[0] for x in read), default=-np.inf), min((x[1] for x in read), default=np.inf)


def _epsilon(wide: _Law, delta: float) -> tuple[float, float]:
    # The first estimate is from the deltas of single releases.
    p, q = wide.log_above(wide.x + 0.0 * wide.number, 0.0)
    log_one = p + np.log1p(-np.exp(np.minimum(wide.loss + q - p, -ULP)))
    epsilons = np.geomspace(LEAST["log delta"], np.max(wide.loss), PLACES)
    each = [np.interp(epsilons, *row) for row in zip(wide.loss.T, log_one.T, strict=True)]
    total = logsumexp(np.stack(each) + np.log(wide.number)[:, None], axis=0)
    goal: Any = np.log(delta)
    epsilon: Any = np.interp(-goal, -total, epsilons)
    lower, upper = 0.0, np.inf
    for _ in range(ROUNDS):
        for line in _lines(wide, epsilon):
            found = inverse.epsilon_bounds(line.read, goal, epsilon, MOST * epsilon)
            lower, upper = max(lower, float(found.lower)), min(upper, float(found.upper))
        if not upper < np.inf or abs(upper - epsilon) <= NEAR_PLAN * epsilon:
            break
        epsilon = np.float64(upper)
    return lower, upper
