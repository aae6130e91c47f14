"""Sampled releases of log-concave noise on the line: transforms, and compositions of them."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.loss import reported
from jaxdp.loss.mixture import Mixture
from jaxdp.loss.sampled import Sampled

HUBER = dp.FlippedHuber(2.0, 1.5)
OFFSET = dp.OffsetGaussian(1.0, 1.2)
POWER = dp.Subbotin(1.5, 1.5)


def oracle_density(noise):
    """log g but for a constant, and its kinks."""
    if isinstance(noise, dp.FlippedHuber):
        a, g = mp.mpf(float(noise.alpha)), mp.mpf(float(noise.gamma))
        inside = lambda x: -a * abs(x) / g**2  # noqa: E731
        return lambda x: inside(x) if abs(x) <= a else -(x * x + a * a) / (2 * g * g), (-a, 0, a)
    if isinstance(noise, dp.OffsetGaussian):
        m, s = mp.mpf(float(noise.offset)), mp.mpf(float(noise.scale))
        return lambda x: -((abs(x) + m) ** 2) / (2 * s * s), (0,)
    if isinstance(noise, dp.Subbotin):
        p, s = mp.mpf(float(noise.power)), mp.mpf(float(noise.scale))
        return lambda x: -(abs(x / s) ** p) / p, (0,)
    scale = mp.mpf(float(noise.scale))
    return lambda x: -abs(x) / scale, (0,)


def exact_turn(noise, q, added, replaced, theta, height):
    """M(theta + i height) / M(theta) at a shift of 1, by quadrature between kinks."""
    log_density, kinks = oracle_density(noise)
    q = mp.mpf(q)

    def ratio(x, shift):
        return mp.log1p(q * mp.expm1(log_density(x - shift) - log_density(x)))

    def integrand(x, z):
        forward = ratio(x, 1)
        if replaced:
            exponent = (1 + z) * forward - z * ratio(x, -1)
        else:
            exponent = -z * forward if added else (1 + z) * forward
        return mp.exp(exponent + log_density(x))

    edges = {k + move for k in kinks for move in ((0, 1, -1) if replaced else (0, 1))}
    edges |= {mp.mpf(j) for j in range(-24, 25, 2)} | {mp.mpf(-48), mp.mpf(48)}
    edges = sorted(edges)
    whole = mp.quad(lambda x: integrand(x, mp.mpf(theta)), edges)
    return mp.quad(lambda x: integrand(x, mp.mpc(theta, height)), edges) / whole


@pytest.mark.parametrize(
    ("noise", "added", "replaced"),
    [
        (HUBER, 0.0, False),
        (HUBER, 1.0, False),
        pytest.param(OFFSET, 0.0, False, marks=pytest.mark.long),
        pytest.param(HUBER, 0.0, True, marks=pytest.mark.long),
        pytest.param(OFFSET, 1.0, False, marks=pytest.mark.long),
        (POWER, 0.0, False),
        pytest.param(POWER, 1.0, False, marks=pytest.mark.long),
        pytest.param(dp.Laplace(1.2), 0.0, True, marks=pytest.mark.long),
    ],
)
def test_transforms(noise, added, replaced):
    q, cases = 0.2, [(1.0, 0.3), (0.4, 7.0), (2.0, 30.0), (-0.3, 2.0)]
    theta, height = (jnp.array(x) for x in zip(*cases, strict=True))
    mixture = Mixture(noise, q, added, replaced)
    value = mixture.cgf(1.0, theta + 1j * height)
    turned = np.exp(np.asarray(value - mixture.cgf(1.0, theta)))
    with mp.workdps(20):
        truth = [complex(exact_turn(noise, q, added, replaced, *case)) for case in cases]
    np.testing.assert_allclose(turned, truth, rtol=0, atol=5e-14)
    mirrored = mixture.cgf(1.0, theta - 1j * height)
    np.testing.assert_allclose(mirrored, np.conj(value), rtol=1e-14)


@pytest.mark.parametrize("added", [0.0, pytest.param(1.0, marks=pytest.mark.long)])
def test_far_up_a_line(added):
    """Against the way around that the Laplace has of its own, to 1e4 over its largest loss."""
    z = jnp.array([[0.7], [3.0]]) + 1j * jnp.array([[1.0, 30.0, 1e3, 1e5, 1e6]])
    noise = dp.Laplace(1.3)
    ours = Mixture(noise, 0.02, added).cgf(1.0, z)
    theirs = Sampled(noise, 0.02, added).cgf(1.0, z)
    # Phases are some 1e4.
    np.testing.assert_allclose(np.exp(ours - theirs), 1.0, rtol=2e-11)


def averaged_over(noise, q, relation, count, rest, epsilon):
    """delta of `count` sampled releases and a Gaussian, whose closed form is averaged."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    kinks = [float(k) + move for k in noise.kinks() for move in (-1.0, 0.0, 1.0)]
    edges = np.unique(np.concatenate([kinks, np.linspace(-48.0, 48.0, 97)]))
    half = 0.5 * np.diff(edges)[:, None]
    x = (edges[:-1, None] + half * (1.0 + nodes)).ravel()
    weight = (half * weights).ravel()
    centre = noise.log_density(x)
    ahead, behind = (
        jnp.log1p(q * jnp.expm1(noise.log_density(x - side) - centre)) for side in (1.0, -1.0)
    )
    loss = {"remove": ahead, "add": -ahead, "replace_one": ahead - behind}[relation]
    law = jnp.exp(centre + (0.0 if relation == "add" else ahead)) * weight
    total, mass = jnp.zeros(1), jnp.ones(1)
    for _ in range(count):
        total = (total[:, None] + loss[None]).ravel()
        mass = (mass[:, None] * law[None]).ravel()
    assert abs(float(jnp.sum(mass)) - 1.0) < 1e-13
    return np.array([float(jnp.sum(mass * rest.delta(1.0, e - total))) for e in epsilon])


@pytest.mark.parametrize(
    ("noise", "relation", "count"),
    [
        (HUBER, "remove", 1),
        pytest.param(HUBER, "replace_one", 2, marks=pytest.mark.long),
        pytest.param(HUBER, "add", 2, marks=pytest.mark.long),
        pytest.param(OFFSET, "add", 1, marks=pytest.mark.long),
        pytest.param(OFFSET, "remove", 2, marks=pytest.mark.long),
        pytest.param(dp.Subbotin(1.5, 3.0), "remove", 2, marks=pytest.mark.long),
        pytest.param(dp.Laplace(1.2), "replace_one", 1, marks=pytest.mark.long),
    ],
)
def test_beside_a_gaussian(noise, relation, count):
    q, rest, epsilon = 0.1, dp.Gaussian(3.0), np.array([0.1, 0.6, 1.5])
    sampled = dp.privacy_loss(dp.Mechanism(noise, 1.0, q, relation))
    both = count * sampled + dp.privacy_loss(dp.Mechanism(rest, 1.0))
    truth = averaged_over(noise, q, relation, count, rest, epsilon)
    found, error = np.asarray(both.delta(epsilon)), np.asarray(both.log_delta_error(epsilon))
    assert np.all(found > truth * (1 - 1e-12))
    assert np.all(error < 2e-10)
    assert np.all(found * np.exp(-error) < truth * (1 + 1e-12))


@pytest.mark.long
def test_many_releases():
    """Sums add up, the grid brackets them, and delta falls in epsilon."""
    step = dp.privacy_loss(dp.Mechanism(HUBER, 1.0, 0.01, relation="add_remove"))
    epsilon = jnp.array([0.2, 0.6, 1.5])
    found = (1000 * step).log_delta(epsilon)
    assert bool(jnp.all((1000 * step).log_delta_error(epsilon) < 1e-9))
    np.testing.assert_allclose((600 * step + 400 * step).log_delta(epsilon), found, rtol=1e-9)
    lower, upper = (1000 * step).bounds(epsilon[:1])
    assert float(lower[0]) <= float(jnp.exp(found[0])) <= float(upper[0])
    assert bool(jnp.all(jnp.diff(found) < 0))
    least = (1000 * step).epsilon(1e-4)
    assert float((1000 * step).delta(least)) <= 1e-4
    assert float((1000 * step).delta(least * (1 - 1e-7))) > 1e-4


@pytest.mark.long
def test_derivatives_and_bad_values():
    def log_delta(q, alpha, epsilon):
        noise = dp.FlippedHuber(alpha, 1.5)
        loss = dp.privacy_loss(dp.Mechanism(noise, 1.0, q, relation="remove"))
        return reported.log_delta((300 * loss).terms, epsilon, False)

    at = 0.02, 2.0, 0.5
    slopes = jax.jit(jax.grad(log_delta, (0, 1, 2)))(*at)
    evaluate = jax.jit(log_delta)
    for k, slope in enumerate(slopes):
        step = 1e-4 * at[k]
        ends = [evaluate(*(x + s * step * (i == k) for i, x in enumerate(at))) for s in (1, -1)]
        assert float(slope) == pytest.approx(float(ends[0] - ends[1]) / (2 * step), rel=1e-5)
    for bad in (jnp.nan, -0.5, 1.5):
        assert not float(evaluate(bad, 2.0, 0.5)) < -1e-12
    assert not float(evaluate(0.02, jnp.nan, 0.5)) < -1e-12
