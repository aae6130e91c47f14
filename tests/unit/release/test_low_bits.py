"""The attack on low bits: outputs of one value that the noise cannot make of a neighbouring one.

Source: Mironov, On significance of the least significant bits for differential privacy, CCS 2012.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.noise.kernels import whole_draws
from jaxdp.noise.kernels.whole_draws import WholeLaw

pytestmark = pytest.mark.float64  # of internal kernels, in arrays of JAX

SIZE = 200_000
# Least probability of a step that the sampler's 117 bits tell from 0.
LEAST = 2.0**-85
# Uniform numbers to either side of the one that is nearest. derived: an output's rounding interval
# and the inverse's error are below 8 of them
WINDOW = np.arange(-16, 17)[None]

RELEASES = {
    "gaussian": (dp.Gaussian(1.0), None),
    "gaussian coarse": (dp.Gaussian(5.3), 0.5),
    "gaussian wide": (dp.Gaussian(3.0e12), None),
    "laplace odd": (dp.Laplace(0.13), None),
    "laplace coarse": (dp.Laplace(2.7), 2.0**-10),
    "discrete gaussian": (dp.DiscreteGaussian(1.7), None),
    "discrete laplace": (dp.DiscreteLaplace(0.9), None),
}


def impossible(released, noise, value):
    """Outputs that no whole draw makes of `value`: by the lattice and the sampler's support."""
    unit = noise.scale if not noise.on_integers else jnp.ones(())
    fine = 1.0 if noise.on_integers else 2.0 ** (int(np.frexp(float(unit))[1]) - 33)
    coarse = float(np.ravel(released.granularity)[0])
    outputs = np.asarray(released.value, np.float64)
    # Of the draws that a coarse lattice rounds to the output the one in their middle.
    draws = outputs / fine - np.round(value / fine)
    is_off = (outputs / coarse != np.round(outputs / coarse)) | (draws != np.round(draws))
    return is_off | ~in_support(noise, np.abs(draws), fine)


def in_support(noise, size_of_draw, fine):
    """True where a block is drawn, and the place in it is taken, with probabilities above 0."""
    kind = "normal" if isinstance(noise, dp.Gaussian | dp.DiscreteGaussian) else "exponential"
    scale = jnp.asarray(float(noise.scale) / fine)
    law = WholeLaw(kind, scale)
    block_size = np.ceil(0.5 * float(scale))
    block, place = np.divmod(size_of_draw, block_size)
    at = jnp.asarray(block), jnp.asarray(place), block_size
    chance = np.exp(-np.asarray(whole_draws.exponent(law, *at)))
    return (block < whole_draws._BLOCKS[kind]) & (chance > LEAST)


@pytest.mark.parametrize("name", RELEASES)
def test_no_released_output_is_impossible_under_a_neighbour(name):
    noise, granularity = RELEASES[name]
    one = not isinstance(noise, dp.DiscreteGaussian)
    batch = noise if one else jax.tree.map(lambda x: jnp.full(SIZE, x), noise)
    mechanism = dp.Mechanism(batch, 1.0 if one else jnp.ones(SIZE))
    released = dp.release(mechanism, np.zeros(SIZE, int), jax.random.key(4), granularity)
    for value in (0.0, 1.0):
        assert np.sum(impossible(released, noise, value)) == 0
    # It finds what is there to be found: outputs of a value that was not rounded.
    shifted = dp.Released(
        released.value + 0.1 * float(np.ravel(released.granularity)[0]),
        *(released.mechanism, released.granularity, released.sampling_error, False),
    )
    assert np.mean(impossible(shifted, noise, 0.0)) > 0.99


def uniform(number, lower):
    """The number-th double that `jax.random.uniform` draws from [lower, 1)."""
    return jnp.maximum(lower, number * 2.0**-52 * (1.0 - lower) + lower)


FLOATS = {
    "laplace": (
        dp.Laplace(1.0),
        -1.0 + np.finfo(float).epsneg,
        lambda u: jnp.sign(u) * jnp.log1p(-jnp.abs(u)),
        lambda t: jnp.sign(t) * jnp.expm1(-jnp.abs(t)),
    ),
    "gaussian": (
        dp.Gaussian(1.0),
        np.nextafter(-1.0, 0.0),
        lambda u: np.sqrt(2.0) * jax.scipy.special.erfinv(u),
        lambda t: jax.scipy.special.erf(t / np.sqrt(2.0)),
    ),
}


def unreachable(name, outputs, value):
    """Outputs that value + noise is for none of the uniform numbers that may lead there."""
    _, lower, draw, inverse = FLOATS[name]
    nearest = jnp.round((inverse(outputs - value) - lower) / (1.0 - lower) * 2.0**52)
    numbers = jnp.clip(nearest[:, None] + WINDOW, 0.0, 2.0**52 - 1.0)
    return np.asarray(jnp.all(value + draw(uniform(numbers, lower)) != outputs[:, None], axis=1))


@pytest.mark.parametrize("name", FLOATS)
def test_the_attack_works_on_floating_point_noise(name):
    """Some nine outputs in ten give the value away; the true one is excluded by next to none.

    Next to: other compilations of log1p differ in the last bit of some.
    """
    outputs = 0.0 + FLOATS[name][0].sample(jax.random.key(2), (10_000,))
    assert np.mean(unreachable(name, outputs, 0.0)) < 0.01
    assert np.mean(unreachable(name, outputs, 1.0)) > 0.5
    moved = 1.0 + FLOATS[name][0].sample(jax.random.key(3), (10_000,))
    assert np.mean(unreachable(name, moved, 1.0)) < 0.01
    assert np.mean(unreachable(name, moved, 0.0)) > 0.5
