"""Compositions of truncated Laplace noise, sampled or not: finite losses, and infinite ones."""

import itertools

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp

pytestmark = pytest.mark.float64

# Scale, bound, shift: far and near ends, a short bound, a shift beyond the bound, the uniform law.
CASES = (
    (1.0, 10.0, 1.0),
    (20.0, 90.0, 1.0),
    (0.3, 2.0, 1.0),
    (2.0, 1.5, 1.0),
    (1.0, 0.7, 1.0),
    (np.inf, 3.0, 1.0),
)


class Law:
    """The noise in 30 digits, a shift apart; everything is in units of the density's peak."""

    def __init__(self, scale, bound, shift):
        self.rate = mp.mpf(0) if scale == np.inf else 1 / mp.mpf(scale)
        self.bound, self.shift = mp.mpf(bound), mp.mpf(shift)
        ends = -self.bound, self.bound - self.shift
        kinks = [x for x in (-self.shift, mp.mpf(0)) if ends[0] < x < ends[1]]
        # Where both densities are positive.
        self.pieces = [ends[0], *kinks, ends[1]]
        self.mass = mp.quad(self.density, [-self.bound, 0, self.bound])
        self.infinite = mp.quad(self.density, self._above(ends[1])) / self.mass

    def _above(self, t):
        return [t, 0, self.bound] if t < 0 else [t, self.bound]

    def density(self, t):
        return mp.exp(-abs(t) * self.rate)

    def loss(self, t):
        return (abs(t + self.shift) - abs(t)) * self.rate

    def finite(self, value):
        """E[value(L); L < inf]."""
        found = mp.quad(lambda t: self.density(t) * value(self.loss(t)), self.pieces)
        return found / self.mass

    def largest(self):
        return self.rate * min(self.shift, 2 * self.bound - self.shift)

    def delta(self, epsilon):
        """The closed form of `TruncatedLaplace.log_delta`."""
        if epsilon < 0:
            return 1 - mp.exp(epsilon) * (1 - self.delta(-epsilon))
        r, end = self.rate * self.shift, mp.exp(-self.rate * self.bound)
        if epsilon >= self.largest():
            return self.infinite
        inside = 2 * (1 - mp.exp((epsilon - r) / 2)) + end * (mp.exp(epsilon) - 1)
        return inside / (2 * (1 - end))

    def twice(self, epsilon):
        """An average over the first loss, between the kinks of the second one's delta."""
        points = [(e / self.rate - self.shift) / 2 for e in (-epsilon, 0, epsilon)]
        points += [((epsilon + s * self.largest()) / self.rate - self.shift) / 2 for s in (1, -1)]
        inside = [t for t in points if self.pieces[0] < t < self.pieces[-1]]
        pieces = sorted({*self.pieces, *inside})

        def value(t):
            return self.density(t) * self.delta(epsilon - self.loss(t))

        return mp.quad(value, pieces) / self.mass + self.infinite


def loss_of(scale, bound, shift=1.0):
    return dp.privacy_loss(dp.Mechanism(dp.TruncatedLaplace(scale, bound), shift))


@pytest.mark.long
@pytest.mark.parametrize("case", CASES[:5])
def test_two_releases(case):
    epsilons = np.array([0.0, 0.2, 0.7, 1.3]) / case[0]
    loss = 2 * loss_of(*case)
    found, error = (np.asarray(f(epsilons)) for f in (loss.log_delta, loss.log_delta_error))
    lower, upper = (np.asarray(x) for x in loss.bounds(epsilons))
    with mp.workdps(30):
        law = Law(*case)
        truth = np.array([float(mp.log(law.twice(mp.mpf(float(e))))) for e in epsilons])
    digits = 1e-14
    assert np.all(found >= truth - digits)
    assert np.all(found - error <= truth + digits)
    assert np.max(error) < 1e-4
    assert np.all(lower <= np.exp(truth) * (1 + digits))
    assert np.all(upper >= np.exp(truth) * (1 - digits))
    assert np.all(upper - lower < 1e-4 * upper)


def test_a_shift_that_the_bound_does_not_show():
    """Some losses are infinite all the same, and are not forgotten."""
    for scale, bound, shift in ((1.0, 3.0, 1e-300), (0.01, 3.0, 1e-4), (1e6, 1.0, 1e-5)):
        x, r = mp.mpf(bound) / mp.mpf(scale), mp.mpf(shift) / mp.mpf(scale)
        with mp.workdps(50):
            truth = mp.log1p(-mp.expm1(r) / (2 * mp.expm1(x)))
        found = float(dp.TruncatedLaplace(scale, bound).structure(shift).log_finite)
        assert -1e-12 < (found - truth) / -truth <= 1e-15
    assert loss_of(1.0, 3.0, 1e-300).log_delta(0.2) > -700.0


def test_infinite_losses_remain():
    case = 2.0, 5.0, 1.0
    with mp.workdps(30):
        none = (1 - Law(*case).infinite) ** 30
        infinite = float(mp.log(1 - none))
    loss = 30 * loss_of(*case)
    assert float(loss.log_delta(16.0)) == pytest.approx(infinite, abs=1e-13)
    assert np.isinf(float(loss.epsilon(0.5 * np.exp(infinite))))
    assert 0 < float(loss.epsilon(1.5 * np.exp(infinite))) < 15.0
    assert float(loss.renyi(2.0)) == np.inf
    nothing = 2 * loss_of(1.0, 0.4)  # supports that do not meet
    assert float(nothing.log_delta(3.0)) == 0.0
    assert float(nothing.bounds(3.0)[0]) > 1 - 1e-12


@pytest.mark.parametrize("sampled", [(), pytest.param((0.1, "add_remove"), marks=pytest.mark.long)])
def test_no_bound_is_a_laplace(sampled):
    cut, whole = (
        3 * dp.privacy_loss(dp.Mechanism(noise, 1.0, *sampled))
        for noise in (dp.TruncatedLaplace(2.0, np.inf), dp.Laplace(2.0))
    )
    epsilon = jnp.array([0.0, 0.1, 1.2])
    np.testing.assert_allclose(cut.log_delta(epsilon), whole.log_delta(epsilon), atol=1e-6)


@pytest.mark.long
def test_fitted_noise_of_two_coordinates():
    budget = dp.Budget(1.0, 1e-3)
    noise = dp.fit_noise("truncated_laplace", budget, 1.0, count=2)
    assert float((2 * dp.privacy_loss(dp.Mechanism(noise, 1.0))).delta(1.0)) <= 1e-3
    laplace = dp.fit_noise("laplace", budget, 1.0, count=2)
    assert float(noise.variance()) < float(laplace.variance())


def test_infinite_sensitivity_is_no_privacy():
    for bound in (5.0, np.inf):
        loss = 3 * loss_of(2.0, bound, jnp.array([np.inf, 1.0]))
        assert float(loss.delta(0.3)[0]) == 1.0


def sampled_loss(scale, bound, shift, q, relation="add_remove"):
    return dp.privacy_loss(dp.Mechanism(dp.TruncatedLaplace(scale, bound), shift, q, relation))


def nodes(shift, bound):
    """Gauss-Legendre between all kinks, 500 times: what bends in between costs 1e-6."""
    unit, weight = np.polynomial.legendre.leggauss(8)
    kinks = np.unique([m + s for m in (0.0, shift) for s in (-bound, 0.0, bound)])
    edges = np.concatenate([np.linspace(a, b, 501)[:-1] for a, b in itertools.pairwise(kinks)])
    edges = np.append(edges, kinks[-1])
    half = 0.5 * np.diff(edges)[:, None]
    middle = 0.5 * (edges[1:] + edges[:-1])[:, None]
    return (middle + half * unit).ravel(), (half * weight).ravel()


def densities(shift, bound, q, relation):
    """P and Q at the nodes, times the weights."""
    t, weight = nodes(shift, bound)
    whole = -2.0 * np.expm1(-bound)
    base, moved = (
        np.where(np.abs(t - m) <= bound, np.exp(-np.abs(t - m)), 0.0) * weight / whole
        for m in (0.0, shift)
    )
    pair = (1.0 - q) * base + q * moved, base
    return pair[::-1] if relation == "add" else pair


@pytest.mark.parametrize("relation", ["add", "remove"])
@pytest.mark.parametrize(("shift", "bound", "q"), [(0.8, 3.0, 0.1), (2.5, 2.0, 0.3)])
def test_one_and_two_releases(relation, shift, bound, q):
    p, other = densities(shift, bound, q, relation)
    release = dp.Mechanism(dp.TruncatedLaplace(1.0, bound), shift, q, relation)
    loss = dp.privacy_loss(release)
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.where(p > 0, np.log(p) - np.log(other), 0.0)
    for epsilon in (-0.3, 0.04, 0.2):
        once = np.sum(np.maximum(p - np.exp(epsilon) * other, 0.0))
        left = np.asarray(release.delta(np.where(losses < np.inf, epsilon - losses, 0.0)))
        twice = np.sum(p * np.where(losses < np.inf, left, 1.0))
        for count, truth in ((1, once), (2, twice)):
            lower, upper = (float(b) for b in (count * loss).bounds(epsilon))
            assert lower * (1 - 1e-5) <= truth <= upper * (1 + 1e-5) + 1e-15
            assert upper <= lower * (1 + 2e-3) + 1e-15
        np.testing.assert_allclose(release.delta(epsilon), once, rtol=1e-5, atol=1e-15)


def test_infinite_losses_remain_in_a_sample():
    loss = 2 * sampled_loss(1.0, 4.0, 1.0, 0.05, "remove")
    infinite = float(jnp.exp(dp.TruncatedLaplace(1.0, 4.0).log_survival(3.0)))
    total = -np.expm1(2 * np.log1p(-0.05 * infinite))
    np.testing.assert_allclose(loss.bounds(20.0), total, rtol=1e-12)
    assert loss.renyi(2.0) == jnp.inf
