"""Noises to audit: every sampler in floating point, and every release from a lattice."""

from functools import partial

import jax
import jax.numpy as jnp

import jaxdp as dp
from benchmarks._tools.audited import Case, Cases

TRIALS = 100_000
# To which sums in floating point are rounded, as their last bits tell 0 from 1. chosen: far below
# every scale; what is left is the law of the noise
_ROUNDED = 2.0**-20


@dp.own.pytree
class Logistic(dp.own.NumericalNoise):
    """A noise of one's own, by its density and survival function alone."""

    scale: jax.Array

    def _log_density(self, x):
        y = jnp.abs(x) / self.scale
        return -y - 2.0 * jnp.log1p(jnp.exp(-y)) - jnp.log(self.scale)

    def _log_survival(self, x):
        return -jnp.logaddexp(0.0, x / self.scale)

    def kinks(self):
        return ()


# With the delta at which each is audited: above what it promises at no epsilon.
NOISES = {
    "gaussian": (dp.Gaussian(1.0), 1e-2),
    "laplace": (dp.Laplace(1.0), 0.0),
    "flipped_huber": (dp.FlippedHuber(0.5, 1.0), 1e-2),
    "offset_gaussian": (dp.OffsetGaussian(0.5, 1.0), 1e-2),
    "truncated_laplace": (dp.TruncatedLaplace(1.0, 3.0), 0.05),
    "histogram": (dp.Histogram(0.5, [1, 2, 4, 8, 4, 2, 1], atom=0.01), 0.2),
    "discrete_gaussian": (dp.DiscreteGaussian(1.0), 1e-2),
    "discrete_laplace": (dp.DiscreteLaplace(1.0), 0.0),
    "discrete_histogram": (dp.DiscreteHistogram([1, 2, 4, 8, 4, 2, 1]), 0.06),
    "staircase": (dp.Staircase(1.0, 1.0, 0.4), 0.0),
    "subbotin": (dp.Subbotin(1.0, 1.5), 1e-2),
    "logistic, one's own": (Logistic(jnp.asarray(0.7)), 0.0),
}


def sampler(name: str) -> Case:
    noise, delta = NOISES[name]

    def mechanism(value, keys):
        drawn = value + noise.sample(keys[0], (len(keys),))
        return jnp.round(drawn / _ROUNDED) * _ROUNDED

    return Case(mechanism, (0.0, 1.0), dp.Mechanism(noise, 1.0), delta, TRIALS, TRIALS)


def release(name: str) -> Case:
    noise, delta = NOISES[name]
    pair = (0, 1) if noise.on_integers else (0.0, 1.0)
    mechanism = dp.Mechanism(noise, 1.0)
    return Case(mechanism, pair, mechanism, delta, TRIALS)


def table() -> Case:
    """A count and a sum under one budget; the record that is added reaches every bound."""
    count = {"statistic": "count", "noise": "discrete_laplace"}
    total = {"statistic": "sum", "column": "x", "lower": -1, "upper": 1, "noise": "laplace"}
    plan = dp.tables.plan({"epsilon": 2.0, "delta": 1e-3, "release": [count, total]})

    def mechanism(values, key):
        return [row.value for row in dp.tables.release({"x": values}, plan, key).rows]

    return Case(mechanism, ([0.0, 1.0], [0.0]), 2.0, 1e-3, 400)


def in_floating_point() -> Case:
    """A sum whose last bits are read: it is refuted."""
    noise = dp.Gaussian(1.0)
    mechanism = lambda value, keys: value + noise.sample(keys[0], (len(keys),))  # noqa: E731
    return Case(mechanism, (0.0, 1.0), dp.Mechanism(noise, 1.0), 1e-2, TRIALS, TRIALS)


SAMPLERS: Cases = {name: partial(sampler, name) for name in NOISES}
# `dp.release` draws no staircase.
RELEASES: Cases = {name: partial(release, name) for name in NOISES if name != "staircase"}
RELEASES |= {"table of a count and a sum": table}
