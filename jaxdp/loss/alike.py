"""Equal releases of a composition, taken together."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax

from jaxdp._types import Reals


class Groups(NamedTuple):
    """Of releases (*batch, n): each group in the place of its first release."""

    weights: Reals  # how often the group of one has each other, (*batch, n, n)
    fold: Reals  # 0 of all but the first

    def mean(self, x: Reals) -> Reals:
        """x (*batch, n, ...), equal within a group, with the mean of the derivatives there."""
        shape = x.shape
        x = x.reshape(*self.fold.shape, -1)
        some = jnp.isfinite(x)
        mixed = jnp.einsum("...ij,...jk->...ik", self.weights, jnp.where(some, x, 0.0))
        total = jnp.sum(self.weights, axis=-1, keepdims=True)
        mixed /= jnp.where(total > 0, total, 1.0)
        still = lax.stop_gradient(x)
        return (still + jnp.where(some, mixed - lax.stop_gradient(mixed), 0.0)).reshape(shape)


def alike(keys: tuple[Reals, ...], count: Reals) -> Groups:
    """Groups of equal `keys` (*batch, n) among those with a count."""
    count = lax.stop_gradient(count)
    same = (count[..., :, None] > 0) & (count[..., None, :] > 0)
    for key in lax.stop_gradient(keys):
        same &= key[..., :, None] == key[..., None, :]
    before = jnp.tril(jnp.ones(same.shape[-2:], dtype=bool), -1)
    first = ~jnp.any(same & before[(None,) * (same.ndim - 2)], axis=-1)
    weights = jnp.where(same, count[..., None, :], 0.0)
    return Groups(weights, jnp.where(first, jnp.sum(weights, axis=-1), 0.0))
