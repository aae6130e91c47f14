"""Samples where neighbours differ in the value of one record: by Poisson, or of a fixed size."""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import cast, final

import jax

from jaxdp._core import checks
from jaxdp._core.float64 import jitted
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Bools, Reals
from jaxdp._numeric.elementary import ULP, log1m, log_probability, round_up
from jaxdp._numeric.search import bisect
from jaxdp.dominating_pair.additive import Additive, full_shift
from jaxdp.dominating_pair.base import Law, Support, SymmetricPair, law_on, with_its_error
from jaxdp.dominating_pair.poisson import (
    SampledPair,
    coin_renyi,
    log_mixed,
    sampled_largest,
    sampled_log_delta,
)
from jaxdp.noise.base import Noise, expanded, mirrored_log_delta
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.nodes import LEFT_OUT, of_law
from jaxdp.noise.structure import Kinks, Singularities, Smooth


class SymmetricSample(SymmetricPair, SampledPair):
    """A sample of additive noise that is its own exchange, with losses up to `_largest`."""

    noise: Noise
    shift: Reals

    @property
    @abc.abstractmethod
    def _largest(self) -> Reals: ...

    @property
    def _whole(self) -> Additive:
        return Additive(self.noise, self.shift)

    def support(self) -> Support:
        """The largest loss of the noise, sampled; no loss is infinite."""
        largest, _ = xp.broadcast_arrays(self._largest, self._q + self.shift)
        return Support(largest, xp.full_like(largest, -xp.inf))


def _mixed(noise: Noise, x: Reals, shift: Reals, q: Reals) -> tuple[Reals, Reals]:
    """log of (1 - q) + q g(x - shift) / g(x), with g the density of the noise, and its slope."""
    ratio = noise.log_density(x - shift) - noise.log_density(x)
    rise = noise.log_density_slope(x - shift) - noise.log_density_slope(x)
    value = log_mixed(ratio, q)
    is_finite = ratio < xp.inf
    share = xp.where(is_finite, q * xp.exp(xp.where(is_finite, ratio - value, 0.0)), 1.0)
    return value, rise * share


@final
@pytree
class Replaced(SymmetricSample):
    """(1 - q) g(x) + q g(x - shift) against (1 - q) g(x) + q g(x + shift), log-concave g.

    It dominates all contributions of this size or less. Among the tests with the same probability
    under g, a half-line has the largest probability at `shift` and the least at -shift; for the
    Gaussian this holds in any dimension. The exchanged pair is the same. Proof: ours.
    """

    noise: Noise
    shift: Reals
    sampling_prob: Reals

    def __init__(self, noise: Noise, shift: ArrayLike, sampling_prob: ArrayLike):
        assign(
            self,
            noise=noise,
            shift=checks.distance("shift", shift, noise.on_integers),
            sampling_prob=checks.probability("sampling_prob", sampling_prob),
        )

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """See `replaced_log_delta`."""
        return replaced_log_delta(self.noise, self._q, self.shift, checks.real("epsilon", epsilon))

    def law(self) -> Law:
        """Law of the loss by the three densities between their kinks."""
        shift = full_shift(self)
        nodes = of_law(self.noise, (-shift, xp.zeros_like(shift), shift))
        support = self.support()
        noise, shift, q = cast(tuple[Noise, Reals, Reals], expanded((self.noise, shift, self._q)))
        (ahead, up), (behind, down) = (_mixed(noise, nodes.x, m, q) for m in (shift, -shift))
        loss, log_density, slope = ahead - behind, noise.log_density(nodes.x) + ahead, up - down
        return law_on(nodes, loss, log_density, slope, support.log_infinite, support.largest)

    def singularities(self) -> Singularities:
        """Smooth for a Gaussian."""
        if isinstance(self.noise, Gaussian):
            return Smooth()
        return Kinks((xp.full_like(self.shift + self.sampling_prob, xp.nan),))

    @property
    def _largest(self) -> Reals:
        return replaced_largest(self.noise.pure_epsilon(self.shift), self._q)

    def _log_tail(self, removed: Reals, order: Reals) -> Reals:
        """Q is at least (1 - q) g(x)."""
        return removed - (order - 1.0) * log1m(self._q)

    def _renyi_bound(self, removed: Callable[[Reals], Reals], order: Reals) -> Reals:
        """`coin_renyi` of the whole release at twice the shift.

        If smaller, as Q >= (1 - q) g(x), the divergence of "remove" plus -log(1 - q).
        """
        convex = coin_renyi(self.noise.renyi(2.0 * self.shift, order), order, self._q)
        return xp.minimum(convex, round_up(removed(order) - log1m(self._q), 4))


# Range of log t, in widths of the noise, where L = epsilon. chosen: beyond, convexity bounds it
_LOG_REACH = (-40.0, 20.0)


@jitted
def replaced_log_delta(noise: Noise, sampling_prob: Reals, shift: Reals, epsilon: Reals) -> Reals:
    """log of P[X > t] - e^epsilon Q[X > t] for the P and Q of `Replaced`, L(t) = epsilon.

    L = log A+ - log A- is odd and rises. The result is an upper bound whose terms are small where
    delta is. With the noise's delta_0 of the whole release at 2 shift, S the survival function, and
    any loss e_0,

        q (delta_0(e_0) + (e^e_0 - e^e) S(t + shift)) - (1 - q) (e^e - 1) S(t)

    equals delta if e_0 is the loss of the whole release in t. The bound never exceeds q
    delta_0(epsilon), by joint convexity. delta(-e) = 1 - e^-e + e^-e delta(e).
    """
    arguments = noise, sampling_prob, shift, epsilon
    shape = xp.broadcast_shapes(*(xp.shape(x) for x in jax.tree.leaves(arguments)))
    noise, q, shift, epsilon = jax.tree.map(lambda x: xp.broadcast_to(x, shape), arguments)
    size = xp.abs(epsilon)
    convex = round_up(noise.log_delta(2.0 * shift, size) + xp.log(q), 4)
    tails = _tails(noise, shift, q, size)
    upper = xp.where(tails < convex, tails, convex)
    outside = (q == 0) | (size >= replaced_largest(noise.pure_epsilon(shift), q))
    upper = xp.where(outside, -xp.inf, xp.minimum(upper, 0.0))
    value = xp.where(epsilon < 0, mirrored_log_delta(upper, size, 1.0), upper)
    return xp.where(xp.isnan(convex) | xp.isnan(q + epsilon), xp.nan, value)


def replaced_largest(largest: Reals, sampling_prob: Reals) -> Reals:
    """The largest loss, from the whole release's: the largest losses of both directions add up."""
    zero = xp.zeros_like(sampling_prob)
    sides = (sampled_largest(largest, sampling_prob, side) for side in (zero, zero + 1.0))
    return round_up(sum(sides, start=zero), 1)


def _tails(noise: Noise, shift: Reals, q: Reals, epsilon: Reals) -> Reals:
    width = xp.exp(-noise.log_density(xp.zeros_like(epsilon)))

    def is_below(log_t: Reals) -> Bools:
        x = width * xp.exp(log_t)
        centre = noise.log_density(x)
        ahead, behind = (log_mixed(noise.log_density(x - m) - centre, q) for m in (shift, -shift))
        return ahead - behind < epsilon

    low, high = (xp.full_like(epsilon, end) for end in _LOG_REACH)
    high = bisect(is_below, low, high)[1]
    # delta is stationary in t, so the error of t does not matter.
    t = xp.where(epsilon == 0, 0.0, width * xp.exp(high))
    near, centre, far = (noise.log_survival(t + side * shift) for side in (-1.0, 0.0, 1.0))
    loss = noise.log_density(t - shift) - noise.log_density(t + shift)
    loss, largest = xp.maximum(loss, epsilon), noise.pure_epsilon(2.0 * shift)
    ended = loss >= largest * (1.0 - 8.0 * ULP)
    gained = xp.exp(noise.log_delta(2.0 * shift, xp.where(ended, 0.0, loss)) - near)
    gained, loss = xp.where(ended, 0.0, gained), xp.where(ended, largest, loss)
    gained = gained - (xp.exp(loss + far - near) * xp.expm1(epsilon - loss))
    loss_part = xp.expm1(epsilon) * xp.exp(centre - near)
    value = q * gained - (1.0 - q) * loss_part
    sizes = q * gained + (1.0 - q) * loss_part
    value = value + ULP * (64.0 + 8.0 * xp.abs(near)) * sizes
    log_tail = near + xp.log(value)
    return xp.where(value > 0, round_up(log_tail, 4), xp.nan)


@final
@pytree
class FixedBatch(SymmetricSample):
    """The pair of a replaced record that is in a sample with probability `rate`.

    delta(e) = g delta_s(log(1 + (e^e - 1) / g)) at e >= 0, delta(-e) = 1 - e^-e + e^-e delta(e),
    with g the rate and delta_s the profile of log-concave noise at the `shift` s of the whole
    batch's answer. One release attains this delta at every e. The pair dominates compositions but
    need not be attained by them. The worse of the compositions of "add" and of "remove" is not a
    bound, since an adversary can change direction between releases.

    The exchanged pair is the same. The loss is p(u) = log(1 - g + g e^u) or -p(u), u > 0 the loss
    of the whole release, or 0 with probability (1 - g) (1 - 2 S(s / 2)), S the noise's survival
    function.

    Sources: Balle, Barthe & Gaboardi, NeurIPS 2018, theorem 9; composed, Zhu, Dong & Wang, AISTATS
    2022, theorem 10.
    """

    noise: Noise
    shift: Reals
    rate: Reals

    def __init__(self, noise: Noise, shift: ArrayLike, rate: ArrayLike):
        assign(
            self,
            noise=noise,
            shift=checks.distance("shift", shift, noise.on_integers),
            rate=checks.probability("rate", rate),
        )

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """See the class: exact, rounded up."""
        epsilon = checks.real("epsilon", epsilon)
        size, backward = xp.abs(epsilon), epsilon < 0
        upper = sampled_log_delta(self._whole, self._q, xp.zeros(()), size)
        return xp.where(backward, mirrored_log_delta(upper, size, 1.0), upper)

    def law(self) -> Law:
        """Losses on both sides of 0 from the noise beyond half of the shift, and the atom."""
        shift = full_shift(self)
        nodes = of_law(self.noise, (xp.zeros_like(shift), 0.5 * shift, shift))
        columns = cast(tuple[Noise, Reals, Reals], expanded((self.noise, shift, self._q)))
        noise, shift_column, rate = columns
        under_q = noise.log_density(nodes.x)
        loss, slope = _mixed(noise, nodes.x, shift_column, rate)
        outside = (nodes.x > 0.5 * shift_column) & (loss >= 0)
        mass = xp.where(outside, under_q + xp.log(nodes.weight), -xp.inf)
        density = under_q - xp.log(xp.abs(slope))
        half = xp.exp(self.noise.log_survival(0.5 * shift))
        log_atom = (log_probability(1.0 - self._q) + log1m(2.0 * half))[..., None]
        log_atom = xp.broadcast_to(log_atom, (*shift.shape, 1))

        def mirrored(below: Reals, middle: Reals, above: Reals) -> Reals:
            return xp.concatenate([below[..., ::-1], middle, above], axis=-1)

        zero, no_density = xp.zeros_like(log_atom), xp.full_like(log_atom, xp.inf)
        rules = []
        for part in (slice(0, nodes.first), slice(nodes.first, None)):
            p, log_mass, dense = (x[..., part] for x in (loss, mass, density))
            # Above 0 the mass under P is the mass under Q times e^p.
            log_masses = mirrored(log_mass, log_atom, log_mass + p)
            of_loss = mirrored(dense, no_density, dense + p)
            rules.append((mirrored(-p, zero, p), log_masses, of_loss))
        (losses, log_masses, of_loss), (*check, _) = rules
        support, left_out = self.support(), xp.full_like(shift, -LEFT_OUT)
        rest = left_out, support.log_infinite, support.largest
        law = Law(losses, log_masses, of_loss, (check[0], check[1]), *rest)
        return with_its_error(law)

    def singularities(self) -> Singularities:
        """The atom at 0."""
        return Kinks((xp.zeros_like(self.shift + self.rate),))

    @property
    def _q(self) -> Reals:
        return checks.guard(self.rate, 1.0)

    @property
    def _largest(self) -> Reals:
        largest = self.noise.pure_epsilon(self.shift)
        return sampled_largest(largest, self._q, xp.zeros_like(self._q))

    def _log_tail(self, removed: Reals, order: Reals) -> Reals:
        """The moment of losses up to 0 is their probability at most."""
        return xp.logaddexp(removed, -LEFT_OUT)

    def _renyi_bound(self, removed: Callable[[Reals], Reals], order: Reals) -> Reals:
        """`coin_renyi` of the whole release, or the bound by "remove".

        For the second, E[e^(s L)] is at most the moment of "remove" of order a = s + 1, plus the
        contribution of losses up to 0.
        """
        rate, excess = self._q, xp.where(order > 1, order - 1.0, 1.0)
        coin = coin_renyi(self.noise.renyi(self.shift, order), order, rate)
        tail = xp.exp(self.noise.log_survival(0.5 * self.shift))
        added = (1.0 - rate) * (1.0 - 2.0 * tail) + tail
        added = added - (xp.exp(order * log1m(xp.minimum(rate, 1.0 - ULP))) * (1.0 - tail))
        added = xp.maximum(added, 0.0) + 16.0 * ULP
        two = excess * removed(order)
        two = two + xp.log1p(added * xp.exp(-two))
        two = xp.where(order > 1.0 + 1e-6, two / excess, xp.inf)
        bound = xp.minimum(coin, xp.where(xp.isnan(two), xp.inf, two))
        return round_up(bound, 16)
