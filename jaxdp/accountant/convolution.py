"""The total loss of a composition as tilted masses: one FFT, and sums over them with their error.

Identity: with a_i the tilted masses of the total at losses l_i = epsilon + y_i, and U = K(theta) -
theta epsilon the logarithm of their unit,

    delta_U = e^U sum_i a_i w(y_i),   w(y) = e^(-theta y) (1 - e^-y)_+ <= w_max.

Errors, in units of e^U: a tilted mass m that is misplaced in one factor changes delta by w_max m at
most, since all other factors have mass 1. An error m of the tilted profile everywhere changes delta
by m.

* Windows: N points hold the total, which wraps around. Chernoff's bound, from the cumulant of the
  tilted masses themselves, bounds the mass outside.
* The transform: its relative l2 error is below 8 u log2 N, u = 2^-53 (Higham, Accuracy and
  Stability, theorem 24.2). A power n of a factor <= 1 multiplies the factor's error by n. Its
  products add a rounding below 12 n u, relative to the power. Short factors are multiplied by each
  other at fewer points first; each such transform adds its error. An l2 error E of a vector
  misplaces a mass of sqrt(N) E at most. It changes a sum with weights w by |w|_2 E at most.
* The coupling, which the lower bound subtracts. The chord law of the total is U = P + N, where N =
  sum N_i over the n releases whose losses are not on the grid, and E[e^-N | P] = 1. Given P, each
  N_i takes two values h apart. For s outside of (0, 1) then

    log E e^(-s N_i) <= s (s - 1) h^2 / 8,

  since it is 0 at both ends and its second derivative is at most h^2 / 4. At P = epsilon + y,

    y > 0: N adds E (e^(-N - y) - 1)_+,   (e^t - 1)_+ <= C e^((1 + lam) t),
    y < 0: N adds E (1 - e^(-y - N))_+,   (1 - e^-t)_+ <= C e^(lam t),

  both with C = lam^lam / (1 + lam)^(1 + lam). As |P - epsilon| >= |U - epsilon| - |N|, Jensen's
  inequality gives for every lam > 0

    0 <= delta_U - delta_P <= C exp(n lam (1 + lam) h^2 / 8 + lam m) E_U e^(-lam |U - epsilon|),

  with E|N| <= m = sqrt(n h^2 / 4 + (n h^2 / 8)^2). The best lam is near 2 / (sqrt(n) h).

Values at many epsilons: the sum over y_i > 0 of a_i e^(-theta y_i) (1 - e^(-y_i - o)) is the
difference of sums a_i e^(-theta y_i) and e^-o a_i e^(-(theta + 1) y_i), each a sum from some i on
of numbers that do not depend on epsilon, times an exponential. Norms of weights are bounded: a sum
over a grid of one peak is at most the peak and the integral over the step. The sums of the coupling
keep the masses near epsilon; each other weight is at most e^-`FAR`.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxdp._core.namespace import logsumexp, xp
from jaxdp._numeric.elementary import ULP, conversion_entropy
from jaxdp.accountant.batch import Table
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.inverse import Reading
from jaxdp.accountant.masses import Errors, Grid, masses_of, regridded
from jaxdp.accountant.window import Plan, total
from jaxdp.dominating_pair.base import log_of_infinite, rounding_of_infinite

RATES = (0.6, 1.0, 1.6)  # lam over 2 / (sqrt(n) h). chosen: 1 is best without a tilt
LARGEST_STEP = 500.0  # nats, of a lattice. measured: above 600 masses overflow
FAR = 45.0  # nats by which a weight of the coupling is small. derived: e^-45 is below rounding
LARGEST = 600.0  # exponent of a term. derived: sums of 2^16 of them are finite
LEAST = 1e-300  # bound on a term that underflows. derived: a normal number
TOGETHER = 2  # log2 of the vectors that are multiplied at once. chosen
PRODUCT = 4.0  # ulps of a product of two complex numbers. derived: 2 sqrt(2)
POWER = 8.0  # ulps of a power, a release. derived: products of squares, whose errors double
ELEMENTS = 2**16  # of the vectors of a block of releases. measured: arrays stay in a cache
SPARSE = 8  # times as many where profiles are evaluated on a lattice alone. chosen
BLOCK = 256  # terms of a block. chosen: the square root of the number of points


def _transform_error(points: int) -> float:
    return 4.0 * ULP * (points.bit_length() - 1)


def _power(spectrum: Any, count: float) -> Any:
    """spectrum^count of a whole count, by squares."""
    power, square, rest = 1.0, spectrum, int(count)
    while rest:
        power = power * square if rest & 1 else power
        rest >>= 1
        square = square * square if rest else square
    return power


def _cumulants(value: Any, grid: Grid, orders: tuple[Any, Any]) -> list[Any]:
    """log sum value e^(order loss) (R,), rounded up, without overflow at orders of 1e20."""
    rows, columns = np.nonzero(value)
    value, loss = value[rows, columns], grid.loss_at(rows, columns)
    starts = np.flatnonzero(np.diff(rows, prepend=-1))
    sizes, found = np.diff(starts, append=rows.size), []
    for order in orders:
        exponent = order * loss
        largest = np.maximum.reduceat(exponent, starts)
        sums = np.add.reduceat(value * np.exp(exponent - np.repeat(largest, sizes)), starts)
        cumulant = np.full(len(grid.base), np.nan)
        cumulant[rows[starts]] = largest + np.log(sums) + 1e-11 + 4.0 * ULP * np.abs(largest)
        found.append(cumulant)
    return found


class _Product:
    """The spectrum of a convolution of vectors at `points` points, and its l2 error."""

    def __init__(self, points: int):
        self.points = points
        self.spectrum, self.error = np.ones(points // 2 + 1, complex), 0.0

    def multiply(self, value: Any, count: Any) -> None:
        """Multiply by vectors (R, n) of total mass 1, each `count` times."""
        is_once = count == 1
        for row in self._together(value[is_once]):
            self.spectrum = self.spectrum * self._transformed(row, 1.0)
        for row, times in zip(value[~is_once], count[~is_once], strict=True):
            power = _power(self._transformed(row, times), times)
            norm = np.sqrt(2.0 * np.sum(np.abs(power) ** 2) / self.points)
            self.error += (POWER * times + 20.0) * ULP * norm
            self.spectrum = self.spectrum * power

    def _together(self, value: Any) -> Any:
        """Convolutions of vectors with each other, as long as they fit the points."""
        while len(value) > 1:
            length = value.shape[1]
            points = 1 << ((length - 1).bit_length() + TOGETHER)
            if points >= self.points:
                break
            size = min((points - 1) // (length - 1), len(value))
            self.error += np.sum(_error_of(value, points))
            spectra = np.fft.rfft(value, points)
            product = np.multiply.reduceat(spectra, np.arange(0, len(value), size), axis=0)
            value = np.fft.irfft(product, points)[:, : size * (length - 1) + 1]
            self.error += np.sum(_error_of(value, points))
        return value

    def _transformed(self, row: Any, times: Any) -> Any:
        self.error += times * _error_of(row, self.points)
        return np.fft.rfft(row, self.points)


def _error_of(value: Any, points: int) -> Any:
    """l2 errors of transforms of vectors (..., n), and of their products with another."""
    return (_transform_error(points) + PRODUCT * ULP) * np.sqrt(np.sum(value**2, axis=-1))


def _blocks(rows: Any, plan: Plan, points: int) -> list[Any]:
    """Rows with grids of about the same length, some at a time."""
    most = ELEMENTS * SPARSE if np.any(plan.own[rows] > plan.step) else ELEMENTS
    rows = rows[np.argsort(-(plan.below + plan.above)[rows], kind="stable")]
    lengths = zip(plan.below[rows].tolist(), plan.above[rows].tolist(), strict=True)
    starts, first, below, above = [], 0, 0, 0
    for i, (down, up) in enumerate(lengths):
        below, above = max(below, down), max(above, up)
        if below + above > points or (i + 1 - first) * (below + above) > most:
            first, below, above = i, down, up
            starts.append(i)
    return [x for x in np.split(rows, starts) if x.size]


def _grids(plan: Plan, anchor: Any, rows: Any) -> tuple[Grid, Grid | None]:
    """The grid of some rows, and one with each lattice's own unit as its step, or None."""

    def grid(step: Any, below: Any, above: Any) -> Grid:
        # Each anchor lies on it, and a loss of 0 has the same place in all rows.
        zero, after = int(np.max(below)), int(np.max(above))
        base = anchor - (np.floor(anchor / step) + zero) * step
        columns = base, np.broadcast_to(step, base.shape), plan.log_norm[rows]
        base, step, log_norm = (x[:, None] for x in columns)
        return Grid(base, step, plan.tilt, log_norm, zero, zero + after)

    step, own, ends = plan.step, plan.own[rows], (plan.below[rows], plan.above[rows])
    has_own = own[0] > step
    far = (np.ceil(x * step / own) + 2.0 for x in ends)
    return grid(step, *ends), grid(own, *far) if has_own else None


class Total:
    """Tilted masses of the loss of a composition (F,) at the plan for an epsilon."""

    def __init__(self, terms: Terms, table: Table, plan: Plan, points: int):
        self.plan = plan
        self.drift, self.largest, log_finite = (
            total(table.number, x) for x in (table.drift, table.largest, table.log_finite)
        )
        self.log_infinite = log_of_infinite(log_finite)
        self.infinite_rounding = rounding_of_infinite(self.log_infinite, table.used)
        product = _Product(points)
        # Of all releases: sums of log norms, of bases, of the terms' sizes, of the cumulants at the
        # upper and the lower order, and the number of releases off the grid.
        self.sums, self.errors = np.zeros(6), Errors(*[0.0] * 6)
        dropped = beyond = -np.inf
        ends = np.cumsum([0, *(term.count.size for term in terms)])
        for term, start in zip(terms, ends, strict=False):
            used = start + np.flatnonzero(table.number[start : start + term.count.size])
            has_own = plan.own[used] > plan.step
            parts = used[has_own], used[~has_own]
            for rows in (x for part in parts for x in _blocks(part, plan, points)):
                pair = jax.tree.map(lambda x, at=rows - start: x[at, None], term.pair)
                count, (grid, own) = table.number[rows], _grids(plan, table.anchor[rows], rows)
                of_rows = jax.tree.map(lambda x, at=rows: x[at, None], table)
                if own is None:
                    masses = masses_of(pair, of_rows, grid, plan.exact[rows])
                else:
                    masses = masses_of(pair, of_rows, own, np.ones(rows.size, bool))
                    masses = regridded(masses, own, grid)
                product.multiply(masses.value, count)
                base, orders = grid.base[:, 0], (plan.order_high, -plan.order_low)
                sizes = 1.0 + np.abs(masses.log_norm) + plan.tilt * np.abs(base)
                cumulants = _cumulants(masses.value, grid, orders)
                columns = masses.log_norm, base, sizes, *cumulants, 1.0 - plan.exact[rows]
                self.sums += [np.sum(count * x) for x in columns]
                found = (np.sum(count * x) for x in masses.errors)
                self.errors = Errors(*map(np.add, self.errors, found))
                log_count = np.log(count)
                dropped = np.logaddexp(dropped, logsumexp(log_count + masses.log_infinite))
                beyond = np.logaddexp(beyond, logsumexp(log_count + masses.log_beyond))
        self.log_norm, self.base, self.size, self.high, self.low, self.coupled = self.sums
        self.log_dropped = dropped  # finite mass that is counted as infinite
        self.log_beyond = np.logaddexp(dropped, beyond)  # and at the last points of the grids
        self._in_window(product, points)

    def _in_window(self, product: _Product, points: int) -> None:
        """Masses outside of the window, or below the error, are dropped and counted."""
        plan = self.plan
        first = np.floor((plan.low - self.base) / plan.step)
        value = np.roll(np.fft.irfft(product.spectrum, points), -int(np.mod(first, 1.0 * points)))
        self.loss = self.base + plan.step * (first + np.arange(1.0 * points))
        transformed = (_transform_error(points) + 12.0 * ULP) * np.sqrt(np.sum(value**2))
        grown = product.error * np.exp(product.error * np.sqrt(1.0 * points))
        self.error = grown + transformed  # l2
        high, low = min(plan.high, self.loss[-1]), max(plan.low, self.loss[0])
        outside = np.exp(self.high - plan.order_high * high)
        outside = outside + np.exp(self.low + plan.order_low * low)
        is_kept = (value > self.error) & (self.loss >= low) & (self.loss <= high)
        self.outside = outside + np.sum(np.where(is_kept, 0.0, np.maximum(value, 0.0)))
        self.value = np.where(is_kept, value, 0.0)
        used = np.flatnonzero(self.value)
        self._centre = self.loss[used[used.size // 2]] if used.size else 0.0
        self._span = np.abs(self.loss[used]).max(initial=0.0) + np.abs(self._centre)
        self._sums = [self._from_each_on(rate) for rate in (plan.tilt, plan.tilt + 1.0)]
        self._before = np.concatenate([[0.0], np.cumsum(self.value)])

    def _from_each_on(self, rate: Any) -> Any:
        """Sums of a_i e^(-rate (l_i - centre)) from each point on; infinite if a term overflows."""
        exponent = -rate * (self.loss - self._centre)
        terms = self.value * np.exp(np.minimum(exponent, LARGEST))
        terms = np.where((exponent > LARGEST) & (self.value > 0), np.inf, terms)
        within = np.cumsum(terms[::-1].reshape(-1, min(BLOCK, terms.size)), axis=1)
        before = np.concatenate([[0.0], np.cumsum(within[:-1, -1])])
        return np.append((within + before[:, None]).ravel()[::-1], 0.0)

    @property
    def end(self) -> Any:
        """An epsilon >= 0 at the end of the losses, or of the window."""
        return max(self.largest if self.largest < np.inf else self.drift + self.plan.high, 0.0)

    @np.errstate(all="ignore")
    def read(self, epsilon: Any) -> Reading:
        """Bounds on log delta at epsilons >= 0."""
        at, tilt, errors = epsilon - self.drift, self.plan.tilt, self.errors
        span = np.max(np.abs(self.loss)) + np.abs(at)
        offset = 8.0 * ULP * (span + self.size / tilt)
        unit = self.log_norm - tilt * at
        relative = ULP * (2.0 * self.value.size + 16.0 + 8.0 * (self.size + tilt * span))
        value, rounding, fall = self._weighted(at, offset)
        slack = self._slack(errors.blur, errors.rounding)[1] + self._norm(offset) * self.error
        upper = unit + np.log(value + rounding + slack) + relative
        upper = np.logaddexp(upper, self.log_dropped) + 8.0 * ULP
        offset = -offset - errors.misplacement
        less, rounding, _ = self._weighted(at, offset)
        misplaced, error = self._slack(errors.blur + errors.below + errors.shared, errors.excess)
        error = error + self._norm(offset) * self.error + self._coupling(at, misplaced)
        lower = unit + np.log(np.maximum(less - rounding - error, 0.0)) - relative
        if self.plan.step > LARGEST_STEP:
            lower, upper = np.full_like(at, -np.inf), np.zeros_like(at)
        lower = self._with_infinite(np.where(np.isnan(lower), -np.inf, lower), -1.0)
        upper = self._with_infinite(np.where(np.isnan(upper), 0.0, upper), 1.0)
        return Reading(lower, upper, unit + np.log(fall))

    def _with_infinite(self, finite: Any, side: float) -> Any:
        """A bound on log delta with infinite losses, rounded to a side."""
        infinite = self.log_infinite + side * self.infinite_rounding
        return np.minimum(np.logaddexp(finite, infinite), 0.0)

    def _slack(self, mass: Any, profile: Any) -> tuple[Any, Any]:
        """Misplaced tilted mass, and the error of delta by it and `profile`, in units of e^U."""
        # Errors of several factors multiply: prod (1 + m) - 1.
        misplaced = 1.01 * (np.expm1(mass) + self.outside)
        return misplaced, self.plan.largest_weight * misplaced + 1.01 * np.expm1(profile)

    def _weighted(self, at: Any, offset: Any) -> tuple[Any, Any, Any]:
        """sum a_i w(y_i + offset), its rounding beyond that of a sum, and minus its slope."""
        tilt, size = self.plan.tilt, self.loss.size
        first = np.searchsorted(self.loss, at + np.maximum(-offset, 0.0), side="right")
        move, span = at - self._centre, self._span + np.abs(at)
        less = np.exp(tilt * move) * self._sums[0][first]
        more = np.exp((tilt + 1.0) * move - offset) * self._sums[1][first]
        rounding = ULP * (2.0 * BLOCK + 8.0 * (tilt + 1.0) * span) * (less + more)
        rounding = rounding + np.exp(tilt * np.maximum(move, 0.0)) * size * LEAST
        # A mass that is less than an offset below epsilon.
        below = np.searchsorted(self.loss, at - np.maximum(offset, 0.0), side="left")
        rounding = rounding + np.maximum(offset, 0.0) * (self._before[first] - self._before[below])
        value = less - more
        for i in np.flatnonzero(np.isnan(value + rounding)):
            y = self.loss - at[i]
            shrunk = self.value * np.exp(-tilt * np.maximum(y, 0.0))
            terms = shrunk * -np.expm1(-np.maximum(y + offset[i], 0.0))
            value[i], rounding[i] = np.sum(terms), 0.0
            more[i] = np.sum(np.where(terms > 0, shrunk - terms, 0.0))
        return value, rounding, more

    def _norm(self, offset: Any) -> Any:
        """A bound on the l2 norm of w(y_i + offset)."""
        tilt, step, points = self.plan.tilt, self.plan.step, self.loss.size
        peak = self.plan.largest_weight**2
        integral = 1.0 / (tilt * (2.0 * tilt + 1.0) * (2.0 * tilt + 2.0))
        aside = np.abs(offset) * np.sqrt(2.0 + 1.0 / (2.0 * tilt * step))
        return np.sqrt(np.minimum(peak + integral / step, points * peak)) + aside

    def _coupling(self, at: Any, misplaced: Any) -> Any:
        """Upper bounds on delta_U - delta_P, in units of e^U."""
        tilt, step, n = self.plan.tilt, self.plan.step, self.coupled
        if n == 0:
            return np.zeros_like(at)
        drift = 0.125 * n * step**2
        mean = np.sqrt(0.25 * n * step**2 + drift**2)
        far_mass = np.exp(self.log_beyond - self.log_norm + tilt * at)
        bounds = []
        for rate in RATES:
            lam = max(rate * 2.0 / (np.sqrt(max(n, 1.0)) * step), tilt)
            near, norm = self._near(at, lam)
            factor = drift * lam * (1.0 + lam) + lam * mean - conversion_entropy(xp.asarray(lam))
            near = near + misplaced + norm * self.error + far_mass
            bounds.append(near * np.exp(factor + 1e-9))
        return np.min(bounds, axis=0)

    def _near(self, at: Any, lam: Any) -> tuple[Any, Any]:
        """sum a_i e^(-theta y_i - lam |y_i|), rounded up, and the l2 norm of these weights."""
        tilt, step, points = self.plan.tilt, self.plan.step, self.loss.size
        apart = max(lam - tilt, 1e-300)
        norm = 1.0 + 0.5 / (step * (lam + tilt)) + 0.5 / (step * apart)
        reach, found = min(FAR / (apart * step), 1.0 * points), np.empty_like(at)
        first = np.searchsorted(self.loss, at)
        for i, (low, high) in enumerate(np.stack([first - reach - 1, first + reach + 1], 1)):
            part = slice(max(int(low), 0), max(int(high), 0))
            y = self.loss[part] - at[i]
            found[i] = np.sum(self.value[part] * np.exp(-tilt * y - lam * np.abs(y)))
        return found + 2.0 * np.exp(-FAR), np.sqrt(min(norm, 1.0 * points))
