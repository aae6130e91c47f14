"""What a release will be worth: agrees with what is released, and with the noise's moments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp

NOISES = {
    "gaussian": dp.Gaussian(3.0),
    "discrete_laplace": dp.DiscreteLaplace(2.0),
}


@pytest.mark.float64
@pytest.mark.parametrize("name", NOISES)
def test_releases_have_the_error_that_was_expected(name):
    size, level = 20_000, 0.9
    noise = NOISES[name]
    step = 0.0 if noise.on_integers else 0.5
    batch = jax.tree.map(lambda x: jnp.broadcast_to(x, (size,)), noise)
    released = dp.release(
        dp.Mechanism(batch, jnp.ones(size)), np.full(size, 7), jax.random.key(3), step or None
    )
    error = dp.expected_error(dp.Mechanism(noise, 1.0), level, step)
    drawn = np.abs(np.asarray(released.value) - 7)
    assert np.sqrt(np.mean(drawn**2.0)) == pytest.approx(float(error.standard_deviation), rel=0.03)
    assert np.mean(drawn) == pytest.approx(float(error.mean_absolute), rel=0.03)
    assert np.mean(drawn <= error.half_width) > level - 0.01
    # Not by much more than a step of the lattice.
    assert np.mean(drawn <= error.half_width - step - 1.0) < level


def test_the_half_width_is_that_of_the_release():
    mechanism = dp.Mechanism(dp.Gaussian(3.0), 1.0)
    released = dp.release(mechanism, 5.0, granularity=0.25)
    expected = dp.expected_error(mechanism, 0.8, 0.25).half_width
    assert released.half_width(0.8) == expected


def test_it_is_compiled_and_differentiated():
    def width(scale):
        return dp.expected_error(dp.Gaussian(scale)).half_width

    assert jax.jit(jax.grad(width))(2.0) == pytest.approx(1.959963984540054, rel=1e-12)
    assert jnp.isnan(jax.jit(width)(-1.0))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: dp.expected_error(2.0), "mechanism"),
        (lambda: dp.expected_error(dp.Laplace(1.0), 1.5), "level must lie in"),
        (lambda: dp.expected_error(dp.Laplace(1.0), granularity=-1.0), "granularity must lie in"),
    ],
)
def test_bad_arguments_are_named(call, said):
    with pytest.raises((ValueError, TypeError), match=said):
        call()
