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
class Twin(dp.own.NumericalNoise):
    """One of the package's noises by its two formulas alone."""

    of: dp.own.Noise

    def _log_density(self, x):
        return self.of._log_density(x)

    def _log_survival(self, x):
        return self.of._log_survival(x)

    def kinks(self):
        return self.of.kinks()


def logistic(scale):
    return Logistic(checks.positive("scale", scale))
