"""Divergences of Poisson-sampled releases: high-precision values, steep ratios, large orders."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from references import expected, records

import jaxdp as dp

pytestmark = pytest.mark.float64


def test_reference_renyi():
    for quantity, direction in (("rdp", "remove"), ("rdp_add", "add")):
        for row in records("subsampled_gaussian", quantity):
            params, order = row["params"], float(row["inputs"]["alpha_order"])
            release = dp.Mechanism(dp.Gaussian(params["sigma"]), 1.0, params["q"], direction)
            value = float(dp.privacy_loss(release).renyi(order))
            excess = value / float(expected(row)) - 1.0
            assert 0 <= excess < 1e-9, (row["id"], excess)


def log_moment(sigma, q, order, relation):
    """log E[(P / Q)^a] under Q by the trapezoidal rule, which converges like e^(-20 / h^2)."""
    s, p, a, step = mp.mpf(sigma), mp.mpf(q), mp.mpf(order), mp.mpf(sigma) / 4
    total = mp.mpf(0)
    for k in range(-48, 48 + int(4 * order / sigma)):
        x = k * step
        ahead, behind = (1 - p + p * mp.exp((y * x - mp.mpf(0.5)) / s**2) for y in (1, -1))
        ratio = {
            "remove": lambda f: f**a,
            "add": lambda f: f ** (1 - a),
            "replace_one": lambda f, behind=behind: f**a * behind ** (1 - a),
        }[relation](ahead)
        total += ratio * mp.npdf(x / s) / 4
    return mp.log(total)


@pytest.mark.parametrize("relation", ["remove", "add", "replace_one"])
def test_divergences_of_sampled_gaussians_at_random(relation):
    """Real and whole orders, most of them where one hit at every order begins to matter."""
    rng = np.random.default_rng(13)
    sigma, q = np.exp(rng.uniform(np.log([0.5, 1e-6]), np.log([10.0, 0.5]), (24, 2))).T
    band = 2 * sigma**2 * np.log(1 / q) * rng.uniform(0.5, 1.2, 24)
    order = np.clip(np.where(rng.random(24) < 0.7, band, 1 + sigma * rng.random(24)), 1.01, 1000)
    order[::2] = np.maximum(np.round(order[::2]), 2.0)
    order[:3], sigma[:3], q[:3] = (220, 54, 53.5), (4, 2.5, 2.5), (1e-3, 0.01, 0.01)
    mechanism = dp.Mechanism(dp.Gaussian(sigma), 1.0, q, relation)
    value = np.asarray(dp.privacy_loss(mechanism).renyi(order))
    with mp.workdps(30):
        truth = [log_moment(*at, relation) for at in zip(sigma, q, order, strict=True)]
        truth = np.array([float(m / (a - 1)) for m, a in zip(truth, order, strict=True)])
    excess = value / truth - 1.0
    assert np.all(excess >= 0)
    assert np.max(excess) < 0.07
    assert np.median(excess) < 1e-11


def test_divergences_of_a_wide_sampled_lattice():
    """Nodes that stand for several integers give every order, to its rounding."""
    scale, q, order = 200.0, 0.01, np.array([1.5, 2.0, 2.5, 30.0, 220.0])
    mechanism = dp.Mechanism(dp.DiscreteGaussian(scale), 1.0, q, "remove")
    value = np.asarray(dp.privacy_loss(mechanism).renyi(order))
    with mp.workdps(30):
        k = range(-2600, 2900)
        density = [mp.exp(-(mp.mpf(i) ** 2) / (2 * mp.mpf(scale) ** 2)) for i in k]
        mixed = [1 - mp.mpf(q) + q * mp.exp((i - mp.mpf(0.5)) / mp.mpf(scale) ** 2) for i in k]
        total = mp.fsum(density)
        moments = [mp.fdot(density, [x**a for x in mixed]) / total for a in order]
        truth = [float(mp.log(m) / (a - 1)) for m, a in zip(moments, order, strict=True)]
    excess = value / np.array(truth) - 1
    assert np.all((excess >= 0) & (excess < 1e-8)), excess


@pytest.mark.long
def test_slopes_of_divergences_where_hits_at_every_order_matter():
    def renyi(sigma, order):
        step = dp.Mechanism(dp.Gaussian(sigma), 1.0, 1e-3, "remove")
        return dp.privacy_loss(step).renyi(order)

    sigma, order = np.full(4, 4.0), np.array([200.0, 220.0, 240.0, 2000.0])
    ends = (np.asarray(renyi(sigma * (1 + h), order)) for h in (1e-6, -1e-6))
    slope = jax.grad(lambda s: jnp.sum(renyi(s, order)))(sigma)
    np.testing.assert_allclose(slope, (next(ends) - next(ends)) / 8e-6, rtol=1e-5)


@pytest.mark.long
def test_epsilon_is_that_of_a_peers_orders():
    """What dp_accounting finds with the same orders, to a millionth."""
    rdp = pytest.importorskip("dp_accounting.rdp")
    event = pytest.importorskip("dp_accounting.dp_event")
    runs = [(4.0, 1e-3, 1000), (2.5, 0.01, 10), (1.0, 0.01, 1000), (0.7, 1e-4, 100)]
    order = np.array([*np.arange(2.0, 64.0), 128.0, 256.0, 512.0, 1024.0])
    sigma, q, count = np.array(runs).T
    one = dp.privacy_loss(dp.Mechanism(dp.Gaussian(sigma), 1.0, q, "add_remove"))
    epsilon = np.asarray(dp.to_rdp(count * one, order).epsilon(1e-6))
    for (s, p, n), value in zip(runs, epsilon, strict=True):
        peer = rdp.RdpAccountant(order)
        peer.compose(event.PoissonSampledDpEvent(p, event.GaussianDpEvent(s)), n)
        assert abs(value / peer.get_epsilon(1e-6) - 1.0) < 1e-6, (s, p, n)


@pytest.mark.long
def test_moments_of_steep_ratios_keep_their_tails():
    """E (1 - q + q r)^w - 1 of small q is a tail's: of r^2, which lives at twice the shift."""
    for shift, q, w in (
        (3.3, 1e-8, 3.0),
        (2.0, 1e-6, 5.0),
        (3.3, 1e-4, -2.0),
        (0.02, 0.03, 1500.0),
    ):
        release = dp.Mechanism(dp.Gaussian(1.0), shift, q, "add" if w < 0 else "remove")
        z = -w if w < 0 else w - 1.0
        value = z * float(dp.privacy_loss(release).renyi(1.0 + z))
        with mp.workdps(60):
            c, p = mp.mpf(shift), mp.mpf(q)

            def integrand(x, c=c, p=p, w=w):
                return (mp.mpf(1) - p + p * mp.exp(c * x - c * c / 2)) ** w * mp.npdf(x)

            truth = mp.log(mp.quad(integrand, mp.linspace(-15, 15 + 3 * shift, 60)))
            assert abs(value / truth - 1) < 1e-7, (shift, q, w)


@pytest.mark.long
@pytest.mark.parametrize("relation", ["add", "remove"])
def test_slopes_of_divergences_where_all_records_take_part(relation):
    def slopes(q):
        def renyi(q):
            one = dp.privacy_loss(dp.Mechanism(dp.Gaussian(1.0), 1.0, q, relation))
            return one.renyi(jnp.array([2.5, 4.0]))

        return jax.jvp(renyi, (jnp.full(2, q),), (jnp.ones(2),))[1]

    # Not analytic there: where nobody is hit the ratio is 0.
    np.testing.assert_allclose(slopes(1.0), slopes(1.0 - 1e-7), rtol=1e-2)


def test_divergences_of_large_orders():
    """Where no nodes resolve the moment: by nothing but hits, off by less than 1e-8."""
    for ratio, q in ((1.0, 0.01), (0.2, 0.1), (5.0, 1e-3)):
        for order in (3e3, 3e4, 3e6):
            step = dp.Mechanism(dp.Gaussian(1.0), ratio, q, "remove")
            value = float(dp.privacy_loss(step).renyi(order))
            # With a hit alone, which is less, and as much of the rest as there can be.
            hit = 0.5 * order * ratio**2 + order / (order - 1.0) * np.log(q)
            assert hit * (1 - 1e-12) <= value <= hit * (1 + 1e-8) + 1e-8, (ratio, q, order)


@pytest.mark.parametrize("relation", ["add_remove", "zero_out", "replace_one"])
@pytest.mark.parametrize("noise", [dp.Gaussian(1.3), dp.Laplace(1.3)])
def test_a_batch_in_which_every_record_is_sampled_somewhere(noise, relation):
    """At probability 1 it is the release itself, and at 0 nothing."""
    rate = np.array([0.0, 0.1, 1.0])[:, None]
    orders = np.array([1.0, 1.5, 2.0, 3.7, 30.0, 1025.5, np.inf])
    value = dp.privacy_loss(dp.Mechanism(noise, 1.0, rate, relation)).renyi(orders)
    whole = noise.renyi(2.0 if relation == "replace_one" else 1.0, orders)
    np.testing.assert_array_equal(value[0], 0.0)
    np.testing.assert_allclose(value[2], whole, rtol=1e-11)
    assert np.all(np.asarray(value[1]) <= np.asarray(value[2]))
