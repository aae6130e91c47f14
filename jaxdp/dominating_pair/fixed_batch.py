"""Batches of a fixed size, sampled without replacement, where one record is replaced."""

from __future__ import annotations

from typing import cast, final

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, log1m, log_probability, round_up
from jaxdp.dominating_pair.additive import Additive, full_shift
from jaxdp.dominating_pair.base import Law, Support, with_its_error
from jaxdp.dominating_pair.poisson import coin_renyi, log_mixed, mixed_slope
from jaxdp.dominating_pair.sampled_moments import SampledPair, sampled_largest, sampled_log_delta
from jaxdp.noise.base import Noise, expanded, mirrored_log_delta
from jaxdp.noise.nodes import LEFT_OUT, of_law
from jaxdp.noise.structure import Kinks, Singularities


@final
@pytree
class FixedBatch(SampledPair):
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
        noise, shift_column, rate = cast(
            tuple[Noise, Reals, Reals], expanded((self.noise, shift, self._q))
        )

        under_q = noise.log_density(nodes.x)
        ratio = noise.log_density(nodes.x - shift_column) - under_q
        rise = noise.log_density_slope(nodes.x - shift_column) - noise.log_density_slope(nodes.x)
        loss = log_mixed(ratio, rate)
        slope = rise * mixed_slope(ratio, loss, rate)
        outside = (nodes.x > 0.5 * shift_column) & (loss >= 0)
        mass = xp.where(outside, under_q + xp.log(nodes.weight), -xp.inf)
        density = under_q - xp.log(xp.abs(slope))
        half = xp.exp(self.noise.log_survival(0.5 * shift))
        log_atom = (log_probability(1.0 - self._q) + log1m(2.0 * half))[..., None]
        log_atom = xp.broadcast_to(log_atom, (*shift.shape, 1))

        def both(x: Reals, part: slice, middle: Reals, sign: float = 1.0) -> Reals:
            return xp.concatenate([sign * x[..., part][..., ::-1], middle, x[..., part]], axis=-1)

        def rule(part: slice) -> tuple[Reals, Reals]:
            # Above 0 the mass under P is the mass under Q times e^p.
            log_up = (mass + loss)[..., part]
            masses = xp.concatenate([mass[..., part][..., ::-1], log_atom, log_up], axis=-1)
            return both(loss, part, xp.zeros_like(log_atom), -1.0), masses

        support = self.support()
        first, second = slice(0, nodes.first), slice(nodes.first, None)
        no_density = xp.full_like(log_atom, xp.inf)
        dense = density[..., first]
        of_loss = [dense[..., ::-1], no_density, dense + loss[..., first]]
        law = Law(
            *rule(first),
            xp.concatenate(of_loss, axis=-1),
            rule(second),
            xp.full_like(shift, -LEFT_OUT),
            support.log_infinite,
            support.largest,
        )
        return with_its_error(law)

    def support(self) -> Support:
        """The largest loss of the noise, sampled; no loss is infinite."""
        largest, _ = xp.broadcast_arrays(self._largest, self._q + self.shift)
        return Support(largest, xp.full_like(largest, -xp.inf))

    def singularities(self) -> Singularities:
        """The atom at 0."""
        return Kinks((xp.zeros_like(self.shift + self.rate),))

    def reversed(self) -> FixedBatch:
        """The same pair."""
        return self

    @property
    def _whole(self) -> Additive:
        return Additive(self.noise, self.shift)

    @property
    def _q(self) -> Reals:
        return checks.guard(self.rate, 1.0)

    @property
    def _largest(self) -> Reals:
        largest = self.noise.pure_epsilon(self.shift)
        return sampled_largest(largest, self._q, xp.zeros_like(self._q))

    def _last(self, log_left_out: Reals) -> tuple[Reals, Reals]:
        """The last loss p(u), which is at most u."""
        law = self.law()
        last_loss = xp.max(xp.where(law.log_mass > -xp.inf, law.loss, -xp.inf), axis=-1)
        return last_loss, log_left_out

    def _beyond(self, tail: Reals, order: Reals, log_left_out: Reals) -> Reals:
        """The same with losses up to 0, whose moment is their probability at most."""
        return xp.logaddexp(tail, log_left_out)

    def _renyi_bound(self, order: Reals) -> Reals:
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
        two = excess * self._renyi_removed(order)
        two = two + xp.log1p(added * xp.exp(-two))
        two = xp.where(order > 1.0 + 1e-6, two / excess, xp.inf)
        bound = xp.minimum(coin, xp.where(xp.isnan(two), xp.inf, two))
        return round_up(bound, 16)
