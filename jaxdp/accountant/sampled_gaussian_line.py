"""delta of equal sampled Gaussians by inversion along one vertical contour, with its error.

Computes int (1 - e^(epsilon - y))_+ mu(dy) for mu = A^n, or mu = (A + D)^n - A^n, convolution
powers of the law below a smooth cut and between it and a smooth top (`sampled_gaussian_plan`); each
ends a few widths later, where the tilted law is next to nothing. Chosen by `sampled_gaussian`. With
the transform M(z) = int e^(z y) mu(dy) and any abscissa theta > 0 the trapezoidal sum

    (h / 2 pi) sum_k M(z_k) e^(-z_k epsilon) / (z_k (z_k + 1)),   z_k = theta + i h k

is the integral plus the aliased ones, at epsilon + 2 pi m / h and times e^(2 pi m theta / h). They
are positive, so that the sum is above the truth; Chernoff bounds at other tilts say by how much.

Errors added: truncation, as |phi(t)| <= sum_j |w_j| e^(-t Im l_j) on nodes of any height, which
falls in t, bounds all that is left; quadrature and rounding of phi, n |phi|^(n-1) times; losses
that top and ends leave out. Source: Abate & Whitt, Queueing Systems 10, 1992, for the sum.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._core.types import Complexes, Index, Indices, Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.accountant.sampled_gaussian_law import REAL_STRIDE, Nodes, law, log_tail
from jaxdp.accountant.sampled_gaussian_plan import TILTS, log_chernoff, log_excess

ALIASED = 25.0  # nats below delta of the aliased terms. chosen: 1e-11
SLACK = 1.0  # nats for real nodes in a bound. chosen: their error is below 1e-6 a release
# Tilts of other bounds, as multiples of the abscissa. chosen: denser around 1
OTHER_TILTS = np.asarray([0, 0.03, 0.1, 0.25, 0.45, 0.65, 0.8, 0.9, 1.1, 1.2, 1.4, 1.7, 2.2, 3, 6])
ZOOMS = (0.7, 0.25, 0.1)  # half-widths in log tilt. chosen: 1e-3 of the Chernoff bound
END = 10.0  # widths from a cut to the end. derived: e^-100, less what a tilt lifts
FALL = 24.0  # nats by which a tilted law falls to its end, times n. chosen: 4e-11
NOTHING = -1e30  # log weight where there is none
ROUNDING = 40.0  # ulps of one term's modulus. derived: a product's for each power up to 32
MOST = 100.0  # of a sum's logarithm, in its unit. chosen: beyond, it serves nothing
CUMULANT = 64.0  # ulps of a cumulant of real nodes. derived: log weights down to -37, and a sum


class Line(NamedTuple):
    """Terms, so that the sum is e^(scale - theta (epsilon - centre)) Re sum term e^(-i t (...))."""

    centre: Reals
    theta: Reals
    scale: Reals
    t: Reals
    term: Complexes
    noise: Reals  # quadrature, rounding and truncation, in units of e^scale
    steps: Steps

    def value(self, epsilon: Reals, size: Reals) -> tuple[Reals, Reals]:
        """The sum and its derivative in epsilon, in units of e^size; far above it infinite."""
        move = epsilon - self.centre
        log_scale = self.scale - self.theta * move - size
        scale = jnp.exp(jnp.minimum(log_scale, MOST))
        turned = self.term * jnp.exp(-1j * self.t * move)
        slope = jnp.sum((self.theta + 1j * self.t) * turned).real
        value = jnp.where(log_scale <= MOST, scale * jnp.sum(turned).real, jnp.inf)
        return value, -scale * slope

    def errors(self, epsilon: Reals, size: Reals) -> tuple[Reals, Reals, Reals]:
        """Errors of the sum and a bound, in units of e^size.

        By how much the truth may be below and above the sum; a bound of both.
        """
        move = epsilon - self.centre
        noise = self.noise * jnp.exp(self.scale - self.theta * move - size)
        steps = self.steps
        bounds = steps.bounds - steps.others * move - size
        gap = steps.others - self.theta
        images = bounds - jnp.log(jnp.expm1(jnp.abs(gap) * steps.period))
        aliased = sum(jnp.exp(jnp.min(jnp.where(x, images, jnp.inf))) for x in (gap < 0, gap > 0))
        dropped = jnp.minimum(steps.dropped, steps.dropped_tilted - self.theta * move)
        dropped = jnp.exp(dropped - size)
        return noise + aliased, noise + dropped, jnp.exp(jnp.min(bounds)) + dropped


class Steps(NamedTuple):
    """Abscissa and step of a line, and the bounds that they rest on."""

    theta: Reals
    period: Reals  # 2 pi over the step
    others: Reals  # tilts, and logarithms of Chernoff bounds there
    bounds: Reals
    dropped: Reals  # log of what the top leaves out: its mass, and its Chernoff bound
    dropped_tilted: Reals


class Split(NamedTuple):
    """Losses and log weights of A, of D and of what is left out, on some rows of nodes."""

    loss: Complexes
    small: Complexes
    large: Complexes
    out: Complexes


def _split(nodes: Nodes, part: str, sigma, q, sign, top, cut, rows: slice, stride: int) -> Split:
    levels = np.append(nodes.heights, 0.0)[rows, None]
    x = jnp.asarray(nodes.x[None, ::stride] + 1j * levels)
    loss, log_weight = law(sigma, q, sign, x, stride * nodes.step)

    def cuts(table, at):
        return nodes.cut(table[rows], at)[:, ::stride]

    small, out = log_weight + cuts(nodes.below, cut), log_weight + cuts(nodes.above, cut)
    nothing = jnp.full_like(small, NOTHING)
    if part == "plain":
        return Split(loss, small, nothing, out)
    large = out + cuts(nodes.below, top)
    if part == "small":
        return Split(loss, small, nothing, nothing)
    return Split(loss, small, large, out + cuts(nodes.above, top))


def _ends(nodes: Nodes, cut: Index, top: Index) -> Indices:
    """Last side nodes of A and of D, where their cuts have fallen; the tail beyond is dropped."""
    reach = int(END * nodes.width / nodes.step)
    last = (nodes.size - 1) // REAL_STRIDE
    return jnp.minimum((jnp.stack([cut, top]) + reach) // REAL_STRIDE, last)


def _ended(split: Split, ends: Indices, stride: int) -> Split:
    """A and D up to their ends; the rest is left out."""
    index = jnp.arange(split.loss.shape[-1]) * stride
    kept = (index[None] <= REAL_STRIDE * ends[:, None])[:, None]
    small, large = jnp.where(kept, jnp.stack([split.small, split.large]), NOTHING)
    if split.loss.shape[0] == 1:
        return Split(split.loss, small, large, split.out)
    beyond = jnp.where(kept, NOTHING, jnp.stack([split.small, split.large])).real
    out = jnp.logaddexp(split.out.real, jnp.logaddexp(beyond[0], beyond[1]))
    return Split(split.loss, small, large, out.astype(split.out.dtype))


def line(nodes: Nodes, part: str, sigma, q, sign, n, top, cut, tilt, epsilon, size) -> Line:
    """Terms near `epsilon` of the part "large", (A + D)^n - A^n; or A^n: "small", or "plain" alone.

    A "small" line leaves out what the "large" one adds; a "plain" one states all above the cut.
    """
    held = lax.stop_gradient
    args = (nodes, part, sigma, q, sign, nodes.nearest(top), nodes.nearest(cut))
    sides = held(_split(*args, slice(None), REAL_STRIDE))
    ends = _ends(nodes, args[-1], args[-2])
    sides = _ended(sides, ends, REAL_STRIDE)
    real = Split(*(x[-1].real for x in sides))
    steps = held(_steps(nodes, part, real, ends, sigma, q, sign, n, tilt, epsilon, size))
    theta, step = steps.theta, 2.0 * jnp.pi / steps.period
    split = Split(*(x[0] for x in _ended(_split(*args, slice(0, 1), 1), ends, 1)))
    loss, weights = split.loss, jnp.stack([split.small, split.large]) + theta * split.loss[None]
    weights = weights[: 1 + (part == "large")]
    largest = held(jnp.max(weights.real))
    weights = _exp(weights - largest)
    moment = jnp.sum(weights).real
    weights, log_moment = weights / moment, jnp.log(moment) + largest
    mean = held(jnp.sum(weights * loss[None]).real)
    t = step * jnp.arange(nodes.block**2)
    power, factors = _power(_transform(nodes.block, loss - mean, weights, step), n)
    z = theta + 1j * t
    weight = jnp.where(t == 0, 0.5, 1.0) * step / jnp.pi / (z * (z + 1.0))
    term = power * jnp.exp(1j * (t * (n * mean - epsilon))) * weight
    # Errors: of phi, relative to the moment; of turning its power; and all terms left out.
    above, tail = _moduli(nodes, sides, ends, sigma, theta, log_moment, t[-1] + step, n)
    modulus = jnp.abs(weights)
    of_phi = (np.exp(-2.0 * np.pi * nodes.height / nodes.step) + ROUNDING * ULP) * modulus.sum(-1)
    of_phi += above[: len(weights)]
    wander = jnp.sum(modulus * jnp.abs(loss - mean)[None], -1)
    of_phi = of_phi[:, None] + (ROUNDING * ULP) * wander[:, None] * t[None]
    turning = ULP * (t * (n * jnp.abs(mean) + epsilon) + ROUNDING * n + 40.0) * jnp.abs(power)
    noise = jnp.sum((jnp.sum(factors * of_phi, 0) + turning) * jnp.abs(weight))
    noise += tail / (jnp.pi * step * (nodes.block**2 - 1.0))
    # The n-th power of 1 and an error d is off by n d e^(n d).
    noise *= jnp.exp(jnp.minimum(n * jnp.sum(of_phi[:, 0]), 600.0))
    scale = n * log_moment - theta * epsilon
    return Line(epsilon, theta, scale, t, term, held(noise), steps)


def _exp(x: Complexes) -> Complexes:
    """exp where it is not negligible nor wrong: no subnormal numbers, none that overflow."""
    kept = jnp.abs(x.real) < 600.0
    return jnp.where(kept, jnp.exp(jnp.where(kept, x, 0.0)), 0.0)


def _transform(block: int, loss: Complexes, weights: Complexes, step: Reals) -> Complexes:
    """sum_j w_j e^(i k h l_j) for k < block^2 = a + block b, as one product; by rows of w."""
    near = _powers(jnp.exp(1j * step * loss), block)
    far = _powers(_exp(1j * (step * block) * loss), block)
    left = (weights[:, None] * far[None]).reshape(-1, loss.size)
    left, near = lax.optimization_barrier((left, near))  # else XLA makes them anew for each entry
    return (left @ near.T).reshape(len(weights), -1)


def _powers(x: Complexes, count: int) -> Complexes:
    """x^0 to x^(count - 1), one product each; real and imaginary parts. XLA fuses a scan best."""

    def step(power, _):
        re, im = power
        return (re * x.real - im * x.imag, re * x.imag + im * x.real), power

    first = jnp.ones_like(x.real), jnp.zeros_like(x.real)
    return lax.complex(*lax.scan(step, first, None, length=count)[1])


def _power(phi: Complexes, n: Reals) -> tuple[Complexes, Reals]:
    """A^n or (A + D)^n - A^n, and the derivative's modulus in each."""
    nonzero = jnp.where(phi[0] == 0, 1e-300, phi[0])
    log_small = jnp.log(nonzero)
    small = _exp(n * log_small)
    if len(phi) == 1:
        return small, n * jnp.exp((n - 1.0) * log_small.real)[None]
    whole = jnp.where(phi[0] + phi[1] == 0, 1e-300, phi[0] + phi[1])
    log_whole = jnp.log(whole)
    rise = n * jnp.log1p(phi[1] / nonzero)
    near = jnp.abs(rise) < 1.0
    gained = small * jnp.expm1(jnp.where(near, rise, 0.0))
    power = jnp.where(near, gained, _exp(n * log_whole) - small)
    both = jnp.maximum(log_small.real, log_whole.real)
    of_small = n * jnp.abs(n - 1.0) * jnp.abs(phi[1]) * jnp.exp(jnp.maximum(n - 2.0, 0.0) * both)
    return power, jnp.stack([of_small, n * jnp.exp((n - 1.0) * log_whole.real)])


def _moduli(nodes, sides: Split, ends, sigma, theta, log_moment, t, n) -> tuple[Reals, Reals]:
    """Quadrature errors of A and D from above the line, and a bound of the power beyond `t`."""
    height = jnp.asarray(nodes.heights)
    analytic = height < 0.97 * jnp.pi * sigma
    loss = sides.loss[:-1]
    logs = (
        jnp.stack([sides.small[:-1], sides.large[:-1]]).real
        + (theta * loss.real - log_moment)[None]
    )
    rise = jnp.exp(-2.0 * jnp.pi * (height - nodes.height) / nodes.step)
    rise = jnp.where(analytic & (height > nodes.height), rise, jnp.inf)
    above = jnp.min(rise[None] * jnp.sum(jnp.exp(logs), -1), -1)
    # An end costs the way down to the real axis, in nodes, times the largest modulus there.
    edge = jnp.stack([jnp.max(logs[k, :, at]) for k, at in enumerate(ends)])
    edge = jnp.exp(edge) + jnp.exp(jnp.max(logs[:, :, 0], -1))
    above += (2.0 + nodes.height / nodes.step) / REAL_STRIDE * edge
    small, large = jnp.sum(jnp.exp(logs - t * loss.imag[None]), -1)
    plain = jnp.min(jnp.where(analytic, n * jnp.log(small), jnp.inf))
    cut = jnp.log(n * large) + (n - 1.0) * jnp.log(small + large)
    cut = jnp.min(jnp.where(analytic, cut, jnp.inf))
    return above, jnp.exp(jnp.where(jnp.all(large == 0), plain, cut))


def _steps(nodes, part, real: Split, ends, sigma, q, sign, n, tilt, epsilon, size) -> Steps:
    """Abscissa where the integrand's modulus is least, and the step that Chernoff bounds allow."""

    def moments(tilts):
        small, large = (
            jax.nn.logsumexp(x[None] + tilts[:, None] * real.loss[None], -1)
            for x in (real.small, real.large)
        )
        return log_excess(small, large, n) if part == "large" else n * small

    def modulus(tilts):
        ends_high = jnp.full_like(tilts, -jnp.inf)
        for at, x in zip(ends, (real.small, real.large), strict=True):
            kept = jax.nn.logsumexp(x[None] + tilts[:, None] * real.loss[None], -1)
            ends_high = jnp.maximum(
                ends_high, jnp.where(x[at] > NOTHING, x[at] + tilts * real.loss[at] - kept, NOTHING)
            )
        penalty = 1e3 * jnp.maximum(ends_high + jnp.log(n) + FALL, 0.0)
        return moments(tilts) - tilts * epsilon - jnp.log(tilts) - jnp.log1p(tilts) + penalty

    theta = tilt
    if part != "plain":  # the tilt of a law that ends at the cut is not that of a smooth cut
        theta = jnp.asarray(TILTS)[jnp.argmin(modulus(jnp.asarray(TILTS)))]
    for width in ZOOMS:
        tilts = theta * jnp.exp(width * jnp.linspace(-1.0, 1.0, 5))
        theta = tilts[jnp.argmin(modulus(tilts))]
    others = jnp.append(theta * OTHER_TILTS, theta)
    kept = jnp.maximum(real.small, real.large) > NOTHING
    largest = jnp.max(jnp.where(kept, jnp.abs(real.loss), 0.0))
    slack = SLACK + n * ULP * (CUMULANT + 8.0 * others * largest)
    bounds = moments(others) + log_chernoff(others) - others * epsilon + slack
    reach, gap = bounds - size + ALIASED, others - theta
    period = jnp.array([
        jnp.min(jnp.where(side, reach / jnp.abs(gap), jnp.inf)) for side in (gap < 0, gap > 0)
    ])  # fmt: skip
    period = jnp.maximum(jnp.max(period), 1.0 / theta)
    tilts = jnp.stack([jnp.zeros_like(theta), theta])
    out = jax.nn.logsumexp(real.out[None] + tilts[:, None] * real.loss[None], -1)
    end = nodes.x[-1]
    tail = jnp.stack([log_tail(sigma, q, sign, x, end) for x in (tilts[0], theta)])
    out = jnp.logaddexp(out, tail) + jnp.log(n) + SLACK
    if part == "small":
        out = jnp.full_like(out, -jnp.inf)
    kept = jnp.logaddexp(
        *(jax.nn.logsumexp(x + theta * real.loss) for x in (real.small, real.large))
    )
    tilted = out[1] + (n - 1.0) * kept + jnp.exp(out[1] - kept) + log_chernoff(theta) + slack[-1]
    return Steps(theta, period, others, bounds, out[0], tilted - theta * epsilon)
