"""Poisson-sampled Laplaces: moments on and off the axis, and compositions of few."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._numeric.sampled_laplace import log_moment
from jaxdp._numeric.sampled_laplace_line import TiltedLaplace, excess

# shift / scale, sampling probability, real part of the argument.
LAWS = [
    (0.8, 0.1, 1.3),
    (0.8, 0.1, -40.0),
    (3.0, 0.2, -62.0),
    (3.0, 1.0, 700.0),
    (13.4, 1e-3, 5.0),
    (13.4, 1e-3, -1e4),
    (22.0, 0.13, -8.0),
    (17.0, 0.23, 0.025),
    (40.0, 0.9, 1.05),
    (1e-3, 1e-2, 1e5),
]


def test_moments():
    """All tilts: from 60 nats across the losses on these were bounds, by up to 0.7."""
    found = log_moment(*jnp.array(LAWS).T)
    for (r, q, w), value in zip(LAWS, np.asarray(found), strict=True):
        with mp.workdps(30):
            expected = float(exact_log_moment(*(mp.mpf(x) for x in (r, q, w))))
        assert value == pytest.approx(expected, rel=1e-13 / min(1.0, 100 * q * abs(w)))


def test_moments_of_order_one_are_one():
    """Half of the first is the upper atom's and the density's next to it, of mass e^-1000."""
    found = log_moment(jnp.array([1e3, 20.0, 0.1]), jnp.array([0.5, 1e-6, 1.0]), jnp.ones(3))
    np.testing.assert_allclose(found, 0.0, atol=2e-14)


def test_nothing_known_is_not_no_loss():
    """NaN stays NaN on and off the axis; a shift or a probability of 0 is no loss."""
    r, q, w = jnp.array(
        [(np.nan, 0.5, 2), (1, np.nan, 2), (1, 0.5, np.nan), (0, 0.5, 2), (1, 0, 2)]
    ).T
    bad = np.array([True, True, True, False, False])
    for height in (3.0, 3e4):
        found = excess(r, q, w, jnp.full(5, height))
        np.testing.assert_array_equal(np.isnan(np.asarray(found)), bad)
        np.testing.assert_array_equal(np.asarray(found)[~bad], 0)
    np.testing.assert_array_equal(np.asarray(log_moment(r, q, w)), np.where(bad, np.nan, 0))


def exact_log_moment(r, q, w):
    def loss(plain):
        return mp.log(1 - q + q * mp.exp(plain))

    def density(plain):
        return mp.exp(-(plain + r) / 2 + w * loss(plain)) / 4

    near = [r * mp.mpf(2) ** -k for k in range(50)]
    total = mp.quad(density, sorted({-r, r} | {x - r for x in near} | {r - x for x in near}))
    return mp.log(total + (mp.exp(w * loss(-r)) + mp.exp(w * loss(r) - r)) / 2)


def moment_off_axis(r, q, w, t):
    """G(w + it) / G(w) by panels of a radian, in the wider floating point."""
    r, q, w, t = (np.longdouble(x) for x in (r, q, w, t))
    nodes, weights = np.polynomial.legendre.leggauss(24)

    def loss(plain):
        return np.log1p(q * np.expm1(plain))

    low, high = loss(-r), loss(r)
    apart = np.linspace(low, high, int(t * (high - low)) + 40)[1:-1]
    near = 2 * r * np.longdouble(2) ** -np.arange(0, 60, 0.5)
    edges = [np.array([-r, r]), np.log1p(np.expm1(apart) / q), near - r, r - near]
    edges = np.unique(np.clip(np.concatenate([*edges, np.linspace(-r, r, 400)]), -r, r))
    half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
    plain = np.concatenate([(middle[:, None] + half[:, None] * nodes).ravel(), [-r, r]])
    mass = np.concatenate([(half[:, None] * weights / 2).ravel(), [1, 1]])
    exponent = -(plain + r) / 2 + w * loss(plain)
    mass *= np.exp(exponent - exponent.max())
    return np.sum(mass * np.exp(1j * t * loss(plain))) / np.sum(mass)


def test_moments_off_the_axis():
    """On the axis and by the detour; beyond 140 radians across the losses there was none."""
    r, q, w = np.array([law for law in LAWS if law[1] < 1]).T
    largest = np.log1p(q * np.expm1(r))
    reach = largest - np.log1p(q * np.expm1(-r))

    @jax.jit
    def points(step, start):
        line = TiltedLaplace.of(*(jnp.asarray(x) for x in (r, q, w)), step)
        return line.excess(start + jnp.arange(8)) + 1.0

    for turns in (3.0, 60.0, 150.0, 2000.0, 30000.0):
        t = turns / reach
        expected = [moment_off_axis(*at) for at in zip(r, q, w, t, strict=True)]
        for start in (0, 7):
            found = points(t / 7, start)[:, 7 - start]
            error = np.abs(np.asarray(found) - np.array(expected, complex))
            assert np.all(error < 2e-13 + 1e-15 * (t + np.abs(w)) * largest), (turns, start)


def few_sampled_laplaces(scale, q, added, count, epsilon):
    """The delta of one release averaged over the loss of the others: two atoms and a density."""
    r = 1 / scale
    nodes, weights = np.polynomial.legendre.leggauss(60)

    def loss(plain):
        return (1 - 2 * added) * np.log1p(q * np.expm1(plain))

    def delta(count, epsilon):
        if count == 1:
            one = dp.Mechanism(dp.Laplace(scale), 1.0, q, "add" if added else "remove")
            return np.exp(np.asarray(one.log_delta(epsilon.ravel()))).reshape(epsilon.shape)
        # The kinks of what is left: where epsilon less this loss is a sum of the others' atoms.
        ends = np.array([-r, r])
        sums = np.array(sorted({(count - 1 - i) * loss(-r) + i * loss(r) for i in range(count)}))
        found = np.empty(epsilon.size)
        for k, e in enumerate(epsilon.ravel()):
            likely = np.expm1((1 - 2 * added) * (e - sums))
            kinks = np.log1p(likely[likely / q > -1] / q)
            edges = np.unique([-r, *kinks[(kinks > -r) & (kinks < r)], r])
            half = np.diff(edges)[:, None] / 2
            plain = (edges[:-1] + edges[1:])[:, None] / 2 + half * nodes
            mass = half * weights * np.exp(-(plain + r) / 2) / 4
            points = np.concatenate([plain.ravel(), ends])
            mass = np.concatenate([mass.ravel(), [0.5, 0.5 * np.exp(-r)]])
            mass *= 1.0 if added else np.exp(loss(points))
            found[k] = np.sum(mass * delta(count - 1, e - loss(points)))
        return found.reshape(epsilon.shape)

    return np.log(delta(count, np.array([epsilon]))[0])


@pytest.mark.parametrize(("added", "count"), [(0.0, 2), (1.0, 2), (0.0, 3)])
def test_few_releases(added, count):
    """Their pairs of atoms are split off: 3 of scale 2.26 at q = 0.444 were 6 % too high."""
    one = dp.Mechanism(dp.Laplace(2.26), 1.0, 0.444, "add" if added else "remove")
    loss = count * dp.privacy_loss(one)
    for share in (0.2, 0.75):
        epsilon = share * count * float(dp.privacy_loss(one).renyi(np.inf))
        error = float(loss.log_delta(epsilon))
        error -= few_sampled_laplaces(2.26, 0.444, added, count, epsilon)
        assert -1e-11 < error < 1e-8, (share, error)


def test_beside_gaussians():
    """Tilts of hundreds, which only the Gaussians ask for: it was 0.5 to 5 nats above `bounds`."""
    gaussians = 20 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(30.0), 1.0))
    release = dp.Mechanism(dp.Laplace(1.0), 1.0, 0.3, "add")
    loss = gaussians + 5 * dp.privacy_loss(release)
    # `bounds` at these, of log delta.
    lower = np.array([-21.47406345999882, -57.12903092973112, -206.3056039944848])
    upper = np.array([-21.47184914024435, -57.12632531331059, -206.2921957799459])
    found = np.asarray(loss.log_delta(jnp.array([1.8, 2.5, 4.0])))
    assert np.all((lower <= found) & (found <= upper)), (lower, found, upper)
