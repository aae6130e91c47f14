"""Flipped Hubers next to others: the far part of the line over the edges of their losses."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._numeric import flipped_huber_cgf
from jaxdp._numeric.flipped_huber_far import far_height, far_parts
from jaxdp.loss.ray_sum import QUADRATURE, RADII
from jaxdp.loss.ray_sum import WEIGHTS as WHOLE

NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
# Towards the ends of a panel, where what is integrated may have a root.
GRADES = np.concatenate([[0.0], 0.5 * 4.0 ** np.arange(-14.0, 0.0), [0.5]])
GRADES = np.concatenate([GRADES, 1.0 - GRADES[-2::-1]])
# Narrow, between, wide; shift 1. And one that is nearly a Laplace.
HUBERS = ((2.0, 1.5), (0.7, 1.0), (0.3, 0.8), (6.0, 2.0))


def edges(noise):
    z = jnp.array([1e3j])
    far = noise.far_edges(jnp.array(1.0), z)
    return np.asarray(far.at)[np.isfinite(np.real(np.asarray(far.log_part)[:, 0]))]


def averaged(first, second, epsilon):
    """log delta of both at shift 1: the second's closed form averaged over the first's output."""
    alpha, gamma = (float(x) for x in (first.alpha, first.gamma))

    def loss(t):
        return np.asarray(first.log_density(t) - first.log_density(t + 1.0))

    ends = [-1.0 - alpha, -1.0, -alpha, alpha - 1.0, 0.0, alpha, -0.5]
    ends += [x for k in range(1, 40) for x in (alpha + k * gamma, -1.0 - alpha - k * gamma)]
    low, high = min(ends), max(ends)
    for kink in edges(second):
        left, right = low, high
        for _ in range(80):
            middle = 0.5 * (left + right)
            left, right = (middle, right) if loss(middle) < epsilon - kink else (left, middle)
        ends.append(left)
    ends = np.unique(ends)
    panels = ends[:-1, None] + np.diff(ends)[:, None] * GRADES
    start, length = panels[:, :-1, None], np.diff(panels, axis=-1)[..., None]
    t = (start + 0.5 * length * (1.0 + NODES)).ravel()
    weights = np.broadcast_to(0.5 * length * WEIGHTS, (*length.shape[:2], NODES.size)).ravel()
    logs = np.asarray(first.log_density(t) + second.log_delta(1.0, epsilon - loss(t)))
    most = np.max(logs)
    return most + np.log(np.sum(weights * np.exp(logs - most)))


def at_edges(first, second):
    """Epsilons at sums of edges, and others; the least way from each to such a sum."""
    sums = np.add.outer(edges(first), edges(second)).ravel()
    epsilon = np.concatenate([np.sort(sums[sums > 0.05])[:3], [0.0, 0.1, 0.3, 1.1, 2.3, 5.0, 12.0]])
    return epsilon, np.min(np.abs(np.subtract.outer(epsilon, sums)), axis=-1)


def check(loss, pairs):
    points = [at_edges(*pair) for pair in pairs]
    epsilon, way = (np.stack(x) for x in zip(*points, strict=True))
    found, stated = (np.asarray(f(epsilon)) for f in (loss.log_delta, loss.log_delta_error))
    truth = np.array(
        [[averaged(*pair, e) for e in row] for pair, row in zip(pairs, epsilon, strict=True)]
    )
    assert np.all(found > truth - 1e-12 * (1.0 - truth))
    assert np.all(found - truth <= stated + 1e-12 * (1.0 - truth))
    # At the largest sum of two atoms the saddle is far above what is left.
    assert np.all(stated < np.where(way < 1e-12, 1e-7, 2e-10))


@pytest.mark.long
def test_two_flipped_hubers_against_an_average():
    pairs = list(itertools.combinations_with_replacement(HUBERS, 2))
    alpha, gamma = np.moveaxis(np.array(pairs), -1, 0)[:, :, None]
    both = dp.Mechanism(dp.FlippedHuber(alpha, gamma), sensitivity=1.0)
    check(dp.privacy_loss(both).sum(), [[dp.FlippedHuber(*x) for x in pair] for pair in pairs])


@pytest.mark.long
def test_beside_a_laplace_against_an_average():
    alpha, gamma, scale = np.array([[2.0, 1.5, 1.3], [0.3, 0.8, 0.4]]).T[..., None]
    pair = dp.FlippedHuber(alpha, gamma), dp.Laplace(scale)
    losses = [dp.privacy_loss(dp.Mechanism(noise, sensitivity=1.0)) for noise in pair]
    pairs = [[type(x)(*(y[i, 0] for y in jax.tree.leaves(x))) for x in pair] for i in range(2)]
    check(losses[0] + losses[1], pairs)


def test_parts_add_up_to_the_cumulant():
    rng = np.random.default_rng(1)
    a, d = (10.0 ** rng.uniform(-2.0, 1.5, 2000) for _ in range(2))
    d[:200], d[200:400] = a[:200], 2.0 * a[200:400]
    theta = rng.uniform(-0.99, 3.0, 2000)
    height = np.maximum(
        far_height(jnp.asarray(d)), 4.0 * np.abs(theta) + 2.0
    ) * 10.0 ** rng.uniform(0, 3, 2000)
    a, d, theta, z = (jnp.asarray(x) for x in (a, d, theta, theta + 1j * height))
    at, log_part = far_parts(a, d, z)
    whole = flipped_huber_cgf.cgf(a, d, theta)
    found = jnp.sum(jnp.exp(log_part + z[None] * at - whole[None]), axis=0)
    expected = jnp.exp(flipped_huber_cgf.cgf(a, d, z) - whole)
    # The phase of a loss of some a d + d^2.
    assert np.all(np.abs(found - expected) < 1e-14 + 1e-15 * height * d * (a + d))


def test_the_quadrature_holds_its_error():
    """Of what falls like a power from some height on, whatever the way to the edge."""
    for height, power in itertools.product((64.5, 511.5), (2.0, 2.5, 3.0)):
        for way in (0.0, 1e-6, 1e-3, 0.1, 1.0, np.pi):
            z = RADII / height
            found = np.sum(WHOLE * np.exp(-way * RADII) * (1.0 - 1j * z) ** -power)
            # By parts: a shorter rule of another kind on panels that grow.
            ends = np.concatenate([[0.0], 2.0 ** np.arange(-3.0, 60.0)])
            half = 0.5 * np.diff(ends)[:, None]
            r = ends[:-1, None] + half * (1.0 + NODES)
            expected = np.sum(half * WEIGHTS * np.exp(-way * r) * (1.0 - 1j * r / height) ** -power)
            assert abs(found - expected) < QUADRATURE * height


@pytest.mark.long
def test_gradients_by_differences():
    def value(x):
        hubers = dp.FlippedHuber(x[:2], x[2:4])
        loss = dp.privacy_loss(dp.Mechanism(hubers, sensitivity=x[4:6])).sum()
        return loss.log_delta(x[6])

    at = jnp.array([2.0, 1.2, 1.5, 1.1, 1.0, 0.8, 0.9])
    slopes = jax.jit(jax.grad(value))(at)
    steps = 1e-5 * jnp.eye(at.size)
    values = jax.jit(jax.vmap(value))(jnp.concatenate([at[None] + steps, at[None] - steps]))
    expected = (values[: at.size] - values[at.size :]) / 2e-5
    assert np.allclose(slopes, expected, rtol=1e-5, atol=1e-6)


def test_equal_releases_count_together():
    hubers = dp.FlippedHuber(jnp.array([2.0, 2.0, 3.0]), jnp.array([1.5, 1.5, 2.0]))
    counts = jnp.array([[1, 1, 1], [2, 0, 1], [0, 2, 1]])[:, None]
    loss = (counts * dp.privacy_loss(dp.Mechanism(hubers, sensitivity=1.0))).sum()
    found = loss.log_delta(jnp.array([[0.2, 0.9, 2.5]]))
    assert np.allclose(found[1:], found[:1], rtol=0, atol=1e-11)
