"""Compositions of sampled releases against averages over one release's loss."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from composition_checks import check, loss_of

import jaxdp as dp

pytestmark = pytest.mark.float64


def losses_of(noise, q, relation, edges):
    """Losses and masses of one sampled release of shift 1, at Gauss-Legendre nodes."""
    nodes, weights = np.polynomial.legendre.leggauss(16)
    half = 0.5 * np.diff(edges)[:, None]
    x = (edges[:-1, None] + half * (1.0 + nodes)).ravel()
    weight = (half * weights).ravel()
    centre = noise.log_density(x)
    ahead, behind = (
        jnp.log1p(q * jnp.expm1(noise.log_density(x - side) - centre)) for side in (1.0, -1.0)
    )
    loss = {"remove": ahead, "add": -ahead, "replace_one": ahead - behind}[relation]
    return loss, jnp.exp(centre + (0.0 if relation == "add" else ahead)) * weight


def averaged_over(noise, q, relation, count, rest, epsilon):
    """log delta of `count` sampled releases and a Gaussian, whose closed form is averaged."""
    kinks = [float(k) + move for k in noise.kinks() for move in (-1.0, 0.0, 1.0)]
    edges = np.unique(np.concatenate([kinks, np.linspace(-48.0, 48.0, 97)]))
    loss, law = losses_of(noise, q, relation, edges)
    total, mass = jnp.zeros(1), jnp.ones(1)
    for _ in range(count):
        total = (total[:, None] + loss).ravel()
        mass = (mass[:, None] * law).ravel()
    assert abs(float(jnp.sum(mass)) - 1.0) < 1e-13
    return np.log([float(jnp.sum(mass * rest.delta(1.0, e - total))) for e in epsilon])


HUBER, OFFSET = dp.FlippedHuber(2.0, 1.5), dp.OffsetGaussian(0.7, 1.0)


@pytest.mark.parametrize(
    ("noise", "relation", "count"),
    [
        (HUBER, "remove", 1),
        pytest.param(HUBER, "replace_one", 2, marks=pytest.mark.long),
        pytest.param(HUBER, "add", 2, marks=pytest.mark.long),
        (OFFSET, "add", 1),
        pytest.param(OFFSET, "remove", 2, marks=pytest.mark.long),
        pytest.param(dp.Subbotin(1.5, 3.0), "remove", 2, marks=pytest.mark.long),
        pytest.param(dp.Laplace(1.2), "replace_one", 1, marks=pytest.mark.long),
    ],
)
def test_sampled_beside_a_gaussian(noise, relation, count):
    with jax.numpy_rank_promotion("allow"):
        q, rest, epsilon = 0.1, dp.Gaussian(3.0), np.array([0.1, 0.6, 1.5])
        truth = averaged_over(noise, q, relation, count, rest, epsilon)
    both = count * loss_of(noise, 1.0, q, relation) + loss_of(rest)
    check(both, epsilon, truth, 1e-4)


def few_sampled_laplaces(scale, q, added, count, epsilon):
    """log delta of one release averaged over the loss of the others: two atoms and a density."""
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


@pytest.mark.parametrize(
    ("added", "count"), [(0.0, 2), (1.0, 2), pytest.param(0.0, 3, marks=pytest.mark.long)]
)
def test_few_sampled_laplaces(added, count):
    one = loss_of(dp.Laplace(2.26), 1.0, 0.444, "add" if added else "remove")
    epsilon = np.array([0.2, 0.75]) * count * float(one.renyi(np.inf))
    truth = [few_sampled_laplaces(2.26, 0.444, added, count, e) for e in epsilon]
    check(count * one, epsilon, truth, 1e-4)


def test_sampled_laplaces_beside_gaussians():
    """Tilts of hundreds, which only the Gaussians ask for; between brackets known before."""
    gaussians = 20 * loss_of(dp.Gaussian(30.0))
    loss = gaussians + 5 * loss_of(dp.Laplace(1.0), 1.0, 0.3, "add")
    lower = np.array([-21.47406345999882, -57.12903092973112, -206.3056039944848])
    upper = np.array([-21.47184914024435, -57.12632531331059, -206.2921957799459])
    found = np.asarray(loss.log_delta(jnp.array([1.8, 2.5, 4.0])))
    assert np.all((lower <= found) & (found <= upper)), (lower, found, upper)


def atoms_of(noise, shift, q, relation):
    """Losses and masses of one sampled release of noise on the integers."""
    k = np.arange(-400, 401)
    zero, one = (np.exp(np.asarray(noise.log_density(k - m))) for m in (0, shift))
    mixed = (1 - q) * zero + q * one
    p, other = (mixed, zero) if relation == "remove" else (zero, mixed)
    held = (p > 1e-280) & (other > 1e-280)
    return np.log(p[held] / other[held]), p[held]


@pytest.mark.long
@pytest.mark.parametrize("relation", ["remove", "add"])
@pytest.mark.parametrize(
    ("noise", "shift"), [(dp.DiscreteLaplace(2.0), 5.0), (dp.DiscreteGaussian(1.7), 2.0)]
)
def test_sampled_lattice_noise(noise, shift, relation):
    """Two releases over all pairs of atoms, and beside a Gaussian."""
    q, epsilon = 0.1, np.array([0.05, 0.2, 0.5])
    loss, mass = atoms_of(noise, shift, q, relation)
    total, mass = np.add.outer(loss, loss).ravel(), np.multiply.outer(mass, mass).ravel()
    two = 2 * loss_of(noise, shift, q, relation)
    alone = [np.sum(mass * np.maximum(-np.expm1(e - total), 0.0)) for e in epsilon]
    with np.errstate(divide="ignore"):  # beyond the largest loss
        alone = np.log(alone)
    check(two, epsilon, alone, 1e-3)
    rest = dp.Gaussian(3.0)
    beside = [np.sum(mass * np.asarray(rest.delta(1.0, e - total))) for e in epsilon]
    check(two + loss_of(rest), epsilon, np.log(beside), 1e-8)


def test_replacing_tells_more_than_adding_and_less_than_everything():
    epsilon = jnp.linspace(0.0, 3.0, 13)
    for noise in (dp.Gaussian(1.0), dp.Laplace(0.5)):
        replaced, either = (
            dp.Mechanism(noise, 1.0, 0.1, relation) for relation in ("replace_one", "add_remove")
        )
        assert bool(jnp.all(replaced.log_delta(epsilon) >= either.log_delta(epsilon)))
        group = jnp.log(0.1) + noise.log_delta(2.0, epsilon)
        assert bool(jnp.all(replaced.log_delta(epsilon) <= group + 1e-12))
