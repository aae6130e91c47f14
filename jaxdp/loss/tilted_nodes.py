"""A sampled release's law tilted by e^(theta L), for the transform along a vertical line."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxdp._numeric.turning import Pair, Turned, excess_at, excess_once
from jaxdp._types import Bools, Complexes, Indices, Reals, RealsOrComplexes
from jaxdp.loss.pieces import Nodes, dot

# Of the transforms by all nodes and by every second one: its square is their error; of rounding.
_AGREED, _ROUNDED = 1e-6, 1e-13
# Of thinned atoms: from one to the next that count, of weights above a part of the largest.
_TURN, _NOTHING = 2.5, 1e-20
# Sizes of the weights, whose sum is 1: what cancels rounds.
_LARGEST = 1e3


class TiltedNodes(NamedTuple):
    """Nodes, perhaps off the axis, and what a line theta + i k step needs."""

    weights: Complexes  # of all nodes, and by what those of every second one differ: a first axis
    loss: RealsOrComplexes
    turned: Turned
    step: Reals
    scale: Reals  # t times that bounds the excess
    resolved: Bools
    highest: Reals  # t from which on thinned atoms may be in phase where the others are not

    @staticmethod
    def of(
        weight: RealsOrComplexes, share: Reals, loss: RealsOrComplexes, step: Reals, known: Bools
    ) -> "TiltedNodes":
        """Of weights in proportion, (*batch, nodes); `share`: see `Nodes`; `known`: see `Path`."""
        weight = weight / jnp.real(jnp.sum(weight, axis=-1, keepdims=True))
        weights = jnp.stack([weight, lax.stop_gradient(weight * (share - 1.0))]).astype(complex)
        turned = Turned.of(
            Pair.of(weights), Pair.of(loss[None]), step[None, ..., None], jnp.argmax(step)
        )
        size = jnp.abs(weight)
        # By the excess alone a share whose losses are near 0 could be wrong unseen.
        whole = jnp.abs(jnp.sum(weights[1], axis=-1)) <= _AGREED
        resolved = known & whole & (jnp.sum(size, axis=-1) < _LARGEST)
        scale = jnp.sum(size * jnp.abs(loss), axis=-1)
        return TiltedNodes(
            weights, loss, turned, step, scale, resolved, jnp.full_like(scale, jnp.inf)
        )

    @staticmethod
    def on_axis(
        nodes: Nodes, powers: tuple[Reals, ...], rising: tuple[float, ...], step: Reals
    ) -> "TiltedNodes":
        """Of g0 A+^u A-^v for `powers` (u, v); the loss is log A+, or log A+ - log A-."""
        exponent = nodes.log_weight + dot(powers, nodes.logs)
        top = lax.stop_gradient(jnp.max(exponent, axis=-1, keepdims=True))
        moved = [sign * log for sign, log in zip(rising, nodes.logs, strict=True)]
        loss = sum(moved[1:], start=moved[0])
        weight = jnp.exp(exponent - top)
        tilted = TiltedNodes.of(weight, nodes.share, loss, step, nodes.resolved)
        counts = weight > _NOTHING
        turn = jnp.where(counts[..., 1:] | counts[..., :-1], jnp.abs(jnp.diff(loss)), 0.0)
        steepest = lax.stop_gradient(jnp.max(turn, axis=-1))
        thinned = jnp.any(nodes.share != 1.0, axis=-1) & (steepest > 0)
        return tilted._replace(
            highest=jnp.where(thinned, _TURN / jnp.where(thinned, steepest, 1.0), jnp.inf)
        )

    def excess(self, indices: Indices) -> Complexes:
        """M(theta + i k step) / M(theta) - 1 for consecutive k, a new last axis; NaN if lost."""
        height = self.step[..., None] * indices[(None,) * self.step.ndim]
        return self._sure(height, *excess_at(self.turned, indices))

    def excess_above(self, heights: Reals) -> Complexes:
        """The same at any heights along a last axis, one after the other."""

        def at(height: Reals) -> Complexes:
            return excess_once(
                Pair.of(self.weights), Pair.of(self.loss[None]), height[None, ..., None]
            )

        found = lax.map(at, jnp.moveaxis(heights, -1, 0))
        return self._sure(heights, *jnp.moveaxis(found, 0, -1))

    def _sure(self, height: Reals, value: Complexes, off: Complexes) -> Complexes:
        size = height * self.scale[..., None]
        near = _AGREED * jnp.minimum(1.0, size * size) + _ROUNDED * size
        good = (jnp.abs(off) <= near) & self.resolved[..., None]
        good &= height <= self.highest[..., None]
        return jnp.where(good, value, jnp.nan)
