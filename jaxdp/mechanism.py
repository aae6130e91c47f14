"""A noise bound to the sensitivity of what it is added to, perhaps over a Poisson sample."""

from __future__ import annotations

from typing import Literal, final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.pytree import assign, pytree, static
from jaxdp._core.types import ArrayLike, Reals
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.replaced import require_log_concave
from jaxdp.dominating_pair.replaced_profile import replaced_log_delta
from jaxdp.dominating_pair.sampled_profile import sampled_log_delta
from jaxdp.guarantee.base import epsilon_of
from jaxdp.guarantee.zcdp import ZCDP
from jaxdp.noise.base import Noise, exp_up

# What neighbours differ in, see `Mechanism`.
Relation = Literal["add_remove", "add", "remove", "replace_one"]
RELATIONS = ("add_remove", "add", "remove", "replace_one")


@final
@in_float64
@pytree
class Mechanism:
    """One release of query + noise, batched: parameters broadcast, every element is a release.

    relation None: the query moves by at most `sensitivity` between neighbours. Else neighbours
    differ in one record, whose contribution is at most `sensitivity`: "add_remove" (the worse of
    "add" and "remove", which can be asked for alone) or "replace_one", where the query moves by
    twice that. With sampling_prob < 1, where the relation is required, every record takes part
    with that probability, on its own (Poisson); fixed-size samples are another mechanism. A sampled
    replacement is for log-concave noise on the reals, see `dominating_pair.replaced`.

    Coordinates released together compose: see `privacy_loss`. The noises are symmetric.
    """

    noise: Noise
    sensitivity: Reals
    sampling_prob: Reals
    relation: Relation | None = static()

    def __init__(
        self,
        noise: Noise,
        sensitivity: ArrayLike,
        sampling_prob: ArrayLike = 1.0,
        relation: Relation | None = None,
    ):
        if not isinstance(noise, Noise):
            raise ValueError(
                f"noise must be a distribution such as Gaussian(scale), got {noise!r}: guarantees "
                "and the exponential mechanism go into privacy_loss as they are"
            )
        sensitivity = checks.nonnegative("sensitivity", sensitivity)
        # Known before it becomes an array: whether there is any sampling shapes the program.
        always = checks.is_concrete(sampling_prob) and bool(np.all(np.asarray(sampling_prob) == 1))
        sampling_prob = checks.probability("sampling_prob", sampling_prob, lift=True)
        if relation is not None:
            checks.one_of("relation", relation, RELATIONS)
        elif not always:
            raise ValueError(
                f"relation must be one of {', '.join(RELATIONS)} where sampling_prob may be "
                "below 1: adding, removing and replacing a record differ"
            )
        if relation == "replace_one" and not always:
            require_log_concave(noise)
        if always:
            sensitivity = sensitivity * (2.0 if relation == "replace_one" else 1.0)
            # The batch of the probabilities is one of the mechanism, where nothing is sampled too.
            shape = jnp.broadcast_shapes(sensitivity.shape, sampling_prob.shape)
            relation, sensitivity = None, jnp.broadcast_to(sensitivity, shape)
        assign(
            self,
            noise=noise,
            sensitivity=sensitivity,
            sampling_prob=sampling_prob,
            relation=relation,
        )

    @property
    def sampled(self) -> bool:
        """True if records are sampled."""
        return self.relation is not None

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log of the least delta at `epsilon`: an upper bound, as tight as its noise says."""
        if not self.sampled:
            return self.noise.log_delta(self.sensitivity, epsilon)
        epsilon = checks.real("epsilon", epsilon)
        if self.relation == "replace_one":
            shift = self.sensitivity
            return self._known(replaced_log_delta(self.noise, self.sampling_prob, shift, epsilon))
        whole = Additive(self.noise, self.sensitivity)
        bounds = [
            sampled_log_delta(whole, self.sampling_prob, added, epsilon)
            for added in directions(self.relation)
        ]
        return self._known(jnp.maximum(bounds[0], bounds[-1]))

    def delta(self, epsilon: ArrayLike) -> Reals:
        """exp(log_delta), rounded up; never 0 where the true delta is not."""
        return exp_up(self.log_delta(epsilon))

    def epsilon(self, delta: ArrayLike) -> Reals:
        """The least epsilon >= 0 with delta(epsilon) <= `delta`: safe side, by a few ulps."""
        return self._known(_epsilon(self, checks.probability("delta", delta)))

    def renyi(self, order: ArrayLike) -> Reals:
        """The Renyi divergence of an order >= 1, in nats; sampled: `privacy_loss(...).renyi`."""
        if self.sampled:
            raise ValueError("use privacy_loss(mechanism).renyi(order) with sampling_prob < 1")
        return self.noise.renyi(self.sensitivity, order)

    def zcdp(self) -> ZCDP:
        """The (xi, rho) of `noise.zcdp`; of a sampled release that of the whole one."""
        return ZCDP(*self.noise.zcdp(self._largest_shift))

    def pure_epsilon(self) -> Reals:
        """The least epsilon with delta = 0, inf where none; the whole release's if sampled."""
        return self.noise.pure_epsilon(self._largest_shift)

    def _known(self, answer: Reals) -> Reals:
        """The answer; where that is no number, a `ValueError` if the noise contradicts itself."""
        if checks.is_concrete(answer) and not (np.asarray(answer) < np.inf).all():
            self.noise.is_consistent()
        return answer

    @property
    def _largest_shift(self) -> Reals:
        """Largest shift between neighbours, where all records take part."""
        return self.sensitivity * (2.0 if self.relation == "replace_one" else 1.0)


def directions(relation: Relation | None) -> tuple[Reals, ...]:
    """The values of `Poisson.added` whose worst a relation reports."""
    removed, added = jnp.zeros(()), jnp.ones(())
    if relation == "add_remove":
        return removed, added
    return (added,) if relation == "add" else (removed,)


@jax.jit
def _epsilon(mechanism: Mechanism, delta: Reals) -> Reals:
    return epsilon_of(mechanism.log_delta, delta)
