"""Batches of a fixed size, sampled without replacement, where one record is replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast, final

from jaxdp._core import checks
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, log1m, log_probability, round_up
from jaxdp.dominating_pair.additive import full_shift
from jaxdp.dominating_pair.base import Law, with_its_error
from jaxdp.dominating_pair.poisson import coin_renyi, log_mixed, mixed_slope
from jaxdp.dominating_pair.replaced import SymmetricSample
from jaxdp.dominating_pair.sampled_moments import sampled_largest, sampled_log_delta
from jaxdp.noise.base import Noise, expanded, mirrored_log_delta
from jaxdp.noise.nodes import LEFT_OUT, of_law
from jaxdp.noise.structure import Kinks, Singularities


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
