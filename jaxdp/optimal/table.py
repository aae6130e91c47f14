"""A mechanism that is a table: a law of outputs for each of some answers."""

from __future__ import annotations

from typing import final

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from jaxdp._core import checks
from jaxdp._core.pytree import pytree, static
from jaxdp._core.random_key import checked_key
from jaxdp._core.types import ArrayLike, Indices, Key, Reals
from jaxdp._numeric.elementary import ULP
from jaxdp.noise.histogram import Certificate
from jaxdp.optimal.close_pairs import close_points, felt_sensitivity
from jaxdp.optimal.exact import TOTAL
from jaxdp.optimal.measure import MeasureLike, measure_of


@final
@pytree
class RangeMechanism:
    """Releases an answer in [low, high] by a table of laws, one for each of some nodes there.

    An answer between two nodes is rounded to one of them at random, without bias; the node's law
    draws an output among the same nodes. All answers at most `certificate.sensitivity` apart are
    (epsilon, delta)-close, those between the nodes too (`close_pairs`). weights[k][j] / 2^40:
    chance of output j at node k. Made by `dp.optimal.mechanism`.
    """

    nodes: tuple[float, ...] = static()
    weights: tuple[tuple[int, ...], ...] = static()
    certificate: Certificate = static()

    @property
    def table(self) -> Reals:
        """Chances, (nodes, outputs)."""
        return jnp.asarray(self.weights, dtype=jnp.float64) / TOTAL

    def release(self, key: Key, value: ArrayLike) -> Reals:
        """One draw for each true answer in `value`, which is clamped to the range; NaN for NaN.

        Under jit and vmap. Floating-point rounding moves an answer by 4 ulp of its part at most,
        which the certificate knows of. The outputs are nodes: they leak nothing through rounding.
        """
        value, nodes = checks.real("value", value), jnp.asarray(self.nodes)
        ends = jnp.cumsum(jnp.asarray(self.weights, dtype=jnp.int64), axis=1)
        answer = jnp.clip(jnp.where(jnp.isnan(value), nodes[0], value), nodes[0], nodes[-1])
        below = jnp.clip(jnp.searchsorted(nodes, answer, side="right") - 1, 0, nodes.size - 2)
        share = (answer - nodes[below]) / (nodes[below + 1] - nodes[below])
        round_key, draw_key = jax.random.split(checked_key(key, value))
        is_upper = jax.random.uniform(round_key, value.shape, dtype=jnp.float64) < share
        node = below + is_upper.astype(int)
        pick = jax.random.randint(draw_key, value.shape, 0, TOTAL, dtype=jnp.int64)
        output = jnp.sum(pick[..., None] >= ends[node], axis=-1)
        return jnp.where(jnp.isnan(value), jnp.nan, nodes[output])

    def delta(self, epsilon: ArrayLike) -> Reals:
        """The worst delta of any answers within the sensitivity, an upper bound, epsilon >= 0."""
        epsilon = checks.real("epsilon", epsilon, 0.0)
        felt = felt_sensitivity(self.nodes, self.certificate.sensitivity)
        points = close_points(self.nodes, felt)
        laws = jnp.asarray(points.mix @ (np.array(self.weights, dtype=float) / TOTAL))
        pairs = jnp.asarray(points.pairs[:, :2])
        return _worst(laws, pairs, epsilon.ravel()).reshape(epsilon.shape)

    def expected_loss(self, value: ArrayLike, loss: MeasureLike = "l1") -> Reals:
        """E c(output - value) at each concrete true answer in `value`."""
        value = np.asarray(checks.real("value", value))
        nodes, table = np.asarray(self.nodes), np.asarray(self.table)
        answer = np.clip(value, nodes[0], nodes[-1])
        below = np.clip(np.searchsorted(nodes, answer, side="right") - 1, 0, nodes.size - 2)
        share = ((answer - nodes[below]) / (nodes[below + 1] - nodes[below]))[..., None]
        cost = measure_of(loss)(nodes - value[..., None])
        return jnp.asarray(
            np.sum(((1 - share) * table[below] + share * table[below + 1]) * cost, -1)
        )


@jax.jit
def _worst(laws: Reals, pairs: Int[Array, "pairs two"], epsilon: Reals) -> Reals:
    def one(e: Reals) -> Reals:
        # Smaller than e^epsilon by more than the rounding of both and of the mixtures.
        growth = jnp.exp(jnp.minimum(e, 600.0)) * (1.0 - 16.0 * ULP)

        def pair(ab: Indices) -> Reals:
            return jnp.sum(jnp.maximum(laws[ab[0]] * (1.0 + 8.0 * ULP) - growth * laws[ab[1]], 0.0))

        worst = jnp.max(jax.lax.map(pair, pairs)) * (1.0 + (16.0 + laws.shape[0]) * ULP)
        return jnp.where(jnp.isnan(e), jnp.nan, jnp.minimum(worst, 1.0))

    return jax.lax.map(one, epsilon)
