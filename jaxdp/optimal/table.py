"""A mechanism that is a table: a law of outputs for each of some answers."""

from typing import final

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp import _check
from jaxdp._numeric.elementary import ULP
from jaxdp._pytree import pytree, static
from jaxdp._types import Key, RealLike, Reals
from jaxdp.noise.histogram import Certificate
from jaxdp.optimal.exact import TOTAL
from jaxdp.optimal.measure import MeasureLike, measure_of


@final
@pytree
class RangeMechanism:
    """Releases an answer in [low, high] by a table of laws, one for each of some nodes there.

    An answer between two nodes is rounded to one of them at random, without bias; the node's law
    draws an output among the same nodes. If the laws of nodes at most `sensitivity` apart (rounded
    up to whole steps) are (epsilon, delta)-close, so are those of all answers that are: the
    hockey-stick divergence is jointly convex, and on each triangle of the strip of close pairs of
    answers it is largest at a corner. weights[k][j] / 2^40: chance of output j at node k.
    """

    low: Reals
    high: Reals
    weights: tuple[tuple[int, ...], ...] = static()
    steps: int = static()
    certificate: Certificate = static()

    @property
    def nodes(self) -> Reals:
        """The possible outputs, and the answers with a law of their own."""
        return jnp.linspace(self.low, self.high, len(self.weights))

    @property
    def table(self) -> Reals:
        """Chances, (nodes, outputs)."""
        return jnp.asarray(self.weights, dtype=jnp.float64) / TOTAL

    def release(self, key: Key, value: RealLike) -> Reals:
        """One draw for each true answer in `value`, which is clamped to the range; NaN for NaN.

        Under jit and vmap. Floating-point rounding moves an answer by an ulp before it is rounded
        to a node, and the outputs lie on a lattice.
        """
        value = _check.real("value", value)
        count = len(self.weights) - 1
        ends = jnp.cumsum(jnp.asarray(self.weights, dtype=jnp.int64), axis=1)
        place = jnp.clip((value - self.low) / (self.high - self.low), 0.0, 1.0) * count
        known = jnp.where(jnp.isnan(place), 0.0, place)
        below = jnp.minimum(jnp.floor(known), count - 1.0)
        round_key, draw_key = jax.random.split(key)
        up = jax.random.uniform(round_key, value.shape, dtype=jnp.float64) < known - below
        node = (below + up).astype(int)
        pick = jax.random.randint(draw_key, value.shape, 0, TOTAL, dtype=jnp.int64)
        output = jnp.sum(pick[..., None] >= ends[node], axis=-1)
        return jnp.where(jnp.isnan(place), jnp.nan, self.nodes[output])

    def delta(self, epsilon: RealLike) -> Reals:
        """The worst delta of any two nodes within the sensitivity, an upper bound, epsilon >= 0."""
        epsilon = _check.nonnegative("epsilon", epsilon)
        flat = jax.lax.map(lambda e: _worst(self.table, self.steps, e), epsilon.ravel())
        return flat.reshape(epsilon.shape)

    def expected_loss(self, value: RealLike, loss: MeasureLike = "l1") -> Reals:
        """E c(output - value) at each concrete true answer in `value`."""
        value = np.asarray(_check.real("value", value))
        nodes, count = np.asarray(self.nodes), len(self.weights) - 1
        cost = measure_of(loss)(nodes - value[..., None])
        step = (nodes[-1] - nodes[0]) / count
        place = np.clip((value - nodes[0]) / step, 0.0, count)
        below = np.minimum(np.floor(place), count - 1).astype(int)
        share, table = (place - below)[..., None], np.asarray(self.table)
        return jnp.asarray(
            np.sum(((1 - share) * table[below] + share * table[below + 1]) * cost, -1)
        )


def _worst(table: Reals, steps: int, epsilon: Reals) -> Reals:
    # Smaller than e^epsilon by more than its rounding.
    growth = jnp.exp(jnp.minimum(epsilon, 600.0)) * (1.0 - 8.0 * ULP)
    worst = jnp.zeros(())
    for k in range(1, min(steps, table.shape[0] - 1) + 1):
        for a, b in ((table[k:], table[:-k]), (table[:-k], table[k:])):
            worst = jnp.maximum(worst, jnp.max(jnp.sum(jnp.maximum(a - growth * b, 0.0), axis=1)))
    worst = worst * (1.0 + (8.0 + table.shape[0]) * ULP)
    return jnp.where(jnp.isnan(epsilon), jnp.nan, jnp.minimum(worst, 1.0))
