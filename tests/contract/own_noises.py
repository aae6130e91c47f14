"""Noises of a user's own, from two formulas each, with the same checks of a scale as the others."""

import jax
import jax.numpy as jnp

import jaxdp as dp
from jaxdp._core import checks


@dp.own.pytree
class Logistic(dp.own.NumericalNoise):
    """The density e^(-x / scale) / (scale (1 + e^(-x / scale))^2)."""

    scale: jax.Array

    def _log_density(self, x):
        y = jnp.abs(x) / self.scale
        return -y - 2.0 * jnp.log1p(jnp.exp(-y)) - jnp.log(self.scale)

    def _log_survival(self, x):
        return -jnp.logaddexp(0.0, x / self.scale)

    def kinks(self):
        return ()


@dp.own.pytree
class Sech(dp.own.NumericalNoise):
    """The density 1 / (pi scale cosh(x / scale))."""

    scale: jax.Array

    def _log_density(self, x):
        y = jnp.abs(x) / self.scale
        return jnp.log(2.0 / jnp.pi) - y - jnp.log1p(jnp.exp(-2.0 * y)) - jnp.log(self.scale)

    def _log_survival(self, x):
        y = x / self.scale
        tail = jnp.log(2.0 / jnp.pi) - abs(y) + jnp.log(_arctan_ratio(jnp.exp(-abs(y))))
        return jnp.where(y > 0, tail, jnp.log1p(-jnp.exp(tail)))

    def kinks(self):
        return ()


@dp.own.pytree
class Twin(dp.own.NumericalNoise):
    """One of the package's noises by its two formulas alone."""

    of: dp.own.Noise

    def _log_density(self, x):
        return self.of._log_density(x)

    def _log_survival(self, x):
        return self.of._log_survival(x)

    def kinks(self):
        return self.of.kinks()


def _arctan_ratio(z):
    """arctan(z) / z."""
    safe = jnp.maximum(z, 1e-9)
    return jnp.where(z > 1e-9, jnp.arctan(safe) / safe, 1.0)


def logistic(scale):
    return Logistic(checks.positive("scale", scale))


def sech(scale):
    return Sech(checks.positive("scale", scale))
