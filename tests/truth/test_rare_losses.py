"""Rare large losses, by their number: sums of few atoms that are exact, convolutions on a grid."""

import itertools
import math

import jax
import numpy as np
import pytest
from composition_checks import batch

import jaxdp as dp
from jaxdp._core.namespace import kernel
from jaxdp.accountant.contour import curve, number_of_rare_losses
from jaxdp.accountant.contour.engine import OF_LAWS, lanes_last
from jaxdp.accountant.contour.laws import laws_of
from jaxdp.accountant.contour.nodes import log_least_delta
from jaxdp.accountant.steps import LogBounds

pytestmark = pytest.mark.float64

SURE = 0.3  # a loss of probability 1
RARE = 20  # releases of the law with large losses
# Large losses and their probabilities. Of the second law two large losses decide above 5 nats, of
# the third one: there an error of one cell is seen.
LAWS = [{3.0: 1e-3, 5.0: 1e-5}, {1.0: 2e-5, 3.0: 1e-7}, {1.0: 4e-10, 3.0: 1.5e-13}]
EPSILON = np.array([0.5, 2.0, 2.9, 3.5, 4.9, 5.5])


def small(large):
    """The other loss of the law."""
    return math.log1p(-sum(large.values())) - math.log1p(
        -sum(p * math.exp(-x) for x, p in large.items())
    )


def composition(sure, large):
    """So many releases of the sure loss, and of a law with large ones."""
    certain = dp.PrivacyLoss.from_pmf([SURE], [1.0], [math.exp(-SURE)], "remove")
    losses = np.array([small(large), *large])
    masses = np.array([1.0 - sum(large.values()), *large.values()])
    masses_q = masses * np.exp(-losses)
    return sure * certain + RARE * dp.PrivacyLoss.from_pmf(losses, masses, masses_q, "remove")


def truth(sure, large, epsilon):
    """log delta, by the number of each large loss."""
    terms = []
    for counts in itertools.product(range(7), repeat=len(large)):
        rest = RARE - sum(counts)
        ways = math.factorial(RARE) / math.prod(map(math.factorial, (*counts, rest)))
        mass = ways * (1 - sum(large.values())) ** rest
        loss = sure * SURE + rest * small(large)
        for (x, p), k in zip(large.items(), counts, strict=True):
            mass, loss = mass * p**k, loss + k * x
        terms.append(mass * -math.expm1(min(epsilon - loss, 0.0)))
    return math.log(math.fsum(terms))


def bracket(loss, values):
    """The engine's bounds alone."""
    known = LogBounds(np.full(len(values), -np.inf), np.zeros(len(values)))
    with np.errstate(all="ignore"):
        return number_of_rare_losses.engine().solve(batch(loss, values), known, 1)


@pytest.mark.parametrize("large", LAWS, ids=str)
def test_any_cut_gives_a_bound(large):
    """Estimates of log delta from 0 to -40 cut the law at many places."""
    sure = 10
    loss, epsilon = composition(sure, large), sure * SURE + EPSILON
    exact = np.array([truth(sure, large, x) for x in epsilon])
    of = batch(loss, epsilon)
    with kernel(), jax.numpy_rank_promotion("allow"), np.errstate(all="ignore"):
        laws = lanes_last(laws_of(of)[0])
        for unit in (0.0, -5.0, -9.0, -14.0, -20.0, -28.6, -40.0):
            at = np.full(len(epsilon), unit)
            parts = number_of_rare_losses._parts(laws, at)
            none = log_least_delta(parts.whole, epsilon)[0]
            found = number_of_rare_losses._upper(of.terms, parts, at, epsilon, none)
            assert np.all(found >= exact - 1e-12), (unit, found - exact)


@pytest.mark.parametrize("large", LAWS, ids=str)
def test_few_atoms(large):
    loss = composition(0, large)
    exact = np.array([truth(0, large, x) for x in EPSILON])
    lower, upper = bracket(loss, EPSILON)
    assert np.all(upper >= exact - 1e-12), upper - exact
    # One rare loss decides.
    assert large != LAWS[2] or np.all(upper[:3] < exact[:3] + 1e-3)
    assert np.all(lower <= exact + 1e-12), lower - exact


# Noise, q, steps, epsilon; log delta by convolutions on a grid or proved, its error; nats above.
CONVOLVED = [
    (dp.Gaussian(0.4), 1e-5, 1e3, 0.85510639, -13.81597, 1e-4, 5e-4),
]
MORE = [
    (dp.Gaussian(0.753), 9.4e-7, 2749.0, 0.1027015, -43.8628, 2e-3, 0.1),
    (dp.Gaussian(0.676), 1.9e-7, 132.0, 2.5816132, -81.2754, 1e-4, 0.1),
    (dp.DiscreteGaussian(0.393), 1e-6, 2219.0, 2.571508, -35.29591, 1e-4, 0.05),
    (dp.FlippedHuber(0.94, 1.0), 2.5e-5, 10.0, 0.7519, -66.2251, 1e-4, 0.12),
    (dp.FlippedHuber(0.3, 1.0), 1e-5, 100.0, 2.0, -95.8175, 1e-4, 0.15),
]


@pytest.mark.parametrize(
    "row", [*CONVOLVED, *(pytest.param(x, marks=pytest.mark.long) for x in MORE)]
)
def test_one_rare_loss_decides(row):
    noise, q, steps, epsilon, known, error, most = row
    loss = steps * dp.privacy_loss(dp.Mechanism(noise, 1.0, q, "remove"))
    found = float(loss.log_delta(epsilon))
    assert known - error <= found <= known + error + most
    assert found - float(loss.log_delta_error(epsilon)) <= known + error
    # The bound on delta has an error of its own.
    assert epsilon - 1e-7 <= float(loss.epsilon(np.exp(found))) <= epsilon * 1.01


def test_a_contour_that_resolves_nothing_is_no_bound():
    """Its nodes end before the tilted law does; log delta by an earlier engine, to 1e-11."""
    step = dp.Mechanism(dp.Gaussian(3.705), 1.0, 7.096e-06, "remove")
    loss = 27 * dp.privacy_loss(step)
    assert 0.00702 <= float(loss.epsilon(np.exp(-340.7398297))) <= 0.0071


def test_what_a_law_leaves_out_bounds_a_delta_far_below_it():
    """In the unit of the delta of the law's nodes, e^-750, the bound overflowed to 0."""
    scheme = dp.sampling.RandomAllocation(100)
    step = dp.Mechanism(dp.Gaussian(0.45), 1.0, sampling=scheme, relation="add")
    of = batch(3 * dp.privacy_loss(step), [20.0])
    with kernel(), jax.numpy_rank_promotion("allow"), np.errstate(all="ignore"):
        laws = lanes_last(laws_of(of)[0])
        found = curve.log_delta_bounds(OF_LAWS, laws, of.values, np.full(1, np.nan), 1)[0].upper
    np.testing.assert_allclose(found, laws.log_left_out, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("noise", [dp.Staircase(14.0, 1.0, 0.3), dp.DiscreteLaplace(0.1)], ids=str)
def test_lanes_of_a_batch_are_lanes_alone(noise):
    loss = 2000 * dp.privacy_loss(dp.Mechanism(noise, 1.0, 1e-6, "remove"))
    epsilons = [0.5, 1.0, 2.6]
    together = bracket(loss, epsilons)
    assert np.all(together.lower <= together.upper)
    for i, epsilon in enumerate(epsilons):
        alone = bracket(loss, [epsilon])
        np.testing.assert_allclose([x[0] for x in alone], [x[i] for x in together], rtol=1e-6)


def test_a_loss_that_is_rarely_large_by_itself_has_a_lower_bound():
    """20 epochs of 50,000 steps, of which each holds the record once: one large loss decides."""
    scheme = dp.sampling.RandomAllocation(50_000, 1)
    mechanism = dp.Mechanism(dp.Gaussian(0.6), 1.0, sampling=scheme, relation="remove")
    loss, truth = 20 * dp.privacy_loss(mechanism), np.log(2.6615367890390128e-11)
    value, error = float(loss.log_delta(2.0)), float(loss.log_delta_error(2.0))
    assert value - error <= truth <= value <= truth + 1e-3
    assert error < 0.1
