"""Few releases with atoms: brackets of log delta around truths of 30 digits, narrower than 1e-6."""

import closed_forms
import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.accountant import evaluate
from jaxdp.dominating_pair.additive import Additive

LONG = pytest.mark.long
# Widest bracket of log delta.
WIDTH = 1e-6


def laplaces(count, loss):
    """`count` Laplaces whose largest loss is `loss`."""
    return count * dp.privacy_loss(dp.Mechanism(dp.Laplace(1.0), loss))


def bracket(total, epsilon):
    upper, error = (np.asarray(f(epsilon)) for f in (total.log_delta, total.log_delta_error))
    return upper - error, upper


def check(total, epsilon, truths, width=WIDTH):
    lower, upper = bracket(total, epsilon)
    for low, high, truth in zip(lower.ravel(), upper.ravel(), truths, strict=True):
        assert mp.mpf(low) <= truth <= mp.mpf(high), (low, truth, high)
    assert np.all(upper - lower <= width), upper - lower


@pytest.mark.parametrize("loss", [0.03125, 0.25, 1.0, 3.0])
@pytest.mark.parametrize("count", [2, 3, 5, *(pytest.param(n, marks=LONG) for n in (9, 20))])
def test_equal_laplaces(count, loss):
    # The third one is an atom of the total where count is odd, or a multiple of 4.
    epsilon = count * loss * np.array([0.02, 0.31, 1.0 / count, 0.62, 0.9, 0.99])
    truths = [closed_forms.laplaces_log_delta(count, loss, float(e)) for e in epsilon]
    check(laplaces(float(count), loss), epsilon, truths)


def test_a_batch_of_counts_equals_each_alone():
    """Lanes with more combinations of atoms than are counted keep theirs in the contour."""
    counts = np.array([2.0, 3.0, 50.0, 1e5])
    epsilon = 0.3 * np.array([2.0, 3.0, 10.0, 100.0])
    together = bracket(laplaces(counts, 0.5), epsilon)
    for i, count in enumerate(counts):
        alone = bracket(laplaces(float(count), 0.5), float(epsilon[i]))
        for one, all_ in zip(alone, together, strict=True):
            np.testing.assert_allclose(one, all_[i], rtol=0, atol=1e-8)
    assert np.all((together[1] - together[0])[:3] <= WIDTH)


def two_laplaces_and_a_response(first, second, response, epsilon):
    """log delta by averages over the losses of one Laplace and of the response."""

    def delta(y):
        return mp.exp(closed_forms.laplaces_log_delta(1, second, y)) if y < second else mp.mpf(0)

    def averaged(y):
        inner = mp.quad(
            lambda s: mp.exp((s - first) / 2) / 4 * delta(y - s),
            sorted({-first, first, *(x for x in (y - second, y + second) if abs(x) < first)}),
        )
        return inner + delta(y - first) / 2 + mp.exp(-first) * delta(y + first) / 2

    p = 1 / (1 + mp.exp(-mp.mpf(response)))
    return mp.log(p * averaged(epsilon - response) + (1 - p) * averaged(epsilon + response))


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 1.4])
def test_different_losses(epsilon):
    first, second, response = 0.75, 0.5, 0.25
    total = laplaces(1.0, first) + laplaces(1.0, second) + dp.privacy_loss(dp.PureDP(response))
    truth = two_laplaces_and_a_response(*map(mp.mpf, (first, second, response, epsilon)))
    check(total, np.asarray(epsilon), [truth])


@pytest.mark.parametrize(
    "noise",
    [dp.FlippedHuber(2.0, 0.7), dp.OffsetGaussian(2.0, 0.9), dp.Subbotin(2.0, 2.2)],
    ids=lambda noise: type(noise).__name__,
)
def test_the_grid_agrees(noise):
    """The grid shares with the contour no more than the profile of one release."""
    total = 3.0 * dp.privacy_loss(dp.Mechanism(noise, 1.0))
    epsilon = np.asarray([0.4, 1.1])
    lower, upper = bracket(total, epsilon)
    grid = evaluate.log_bounds(total.terms, epsilon, False, 2**16)
    assert np.all((lower <= grid.upper) & (grid.lower <= upper))
    assert np.all(upper - lower < WIDTH)


def test_an_infinite_loss_beside_atoms():
    """Its probability counts once, in the profiles and in the total."""
    total = 3.0 * dp.privacy_loss(dp.Mechanism(dp.TruncatedLaplace(1.0, 6.0), 0.5))
    epsilon = np.asarray([0.2, 0.9, 1.45])
    lower, upper = bracket(total, epsilon)
    grid = evaluate.log_bounds(total.terms, epsilon, False, 2**16)
    assert np.all((lower <= grid.upper) & (grid.lower <= upper))
    assert np.all(upper - lower <= WIDTH)


class Unchecked(dp.own.DominatingPair):
    """A Laplace whose law does not say which nodes of its second rule are atoms."""

    def __init__(self, loss):
        self.loss = loss

    @property
    def pair(self):
        return Additive(dp.Laplace(jnp.ones_like(self.loss)), self.loss)

    def log_delta(self, epsilon):
        return self.pair.log_delta(epsilon)

    def law(self):
        return self.pair.law()._replace(check_log_density=None)

    def singularities(self):
        return self.pair.singularities()

    def reversed(self):
        return self

    def renyi(self, order):
        return self.pair.renyi(order)


jax.tree_util.register_pytree_node(
    Unchecked, lambda x: ((x.loss,), None), lambda _, leaves: Unchecked(*leaves)
)


def test_a_law_without_the_density_of_its_second_rule():
    total = 3.0 * dp.privacy_loss(Unchecked(jnp.asarray(0.5)))
    check(total, np.asarray([0.7]), [closed_forms.laplaces_log_delta(3, 0.5, 0.7)], 1e-2)


def test_epsilon_meets_delta():
    total = laplaces(5.0, 0.5)
    for log_delta in (-1.0, -3.0, -8.0):
        epsilon = float(total.epsilon(np.exp(log_delta)))
        at, below = (
            closed_forms.laplaces_log_delta(5, 0.5, e) for e in (epsilon, epsilon * (1 - 1e-6))
        )
        assert at <= log_delta + 1e-12
        assert below > log_delta


@LONG
def test_inside_a_trace():
    """Unknown numbers of releases, and slopes: those of the known values."""

    def log_delta(count, loss, epsilon):
        return laplaces(count, loss).log_delta(epsilon)

    counts, loss, epsilon = jnp.array([2.0, 7.0, 20.0]), 0.75, jnp.array([0.5, 1.7, 3.3])
    found = jax.jit(jax.vmap(log_delta, (0, None, 0)))(counts, loss, epsilon)
    known = laplaces(counts, loss).log_delta(epsilon)
    np.testing.assert_allclose(found, known, rtol=0, atol=1e-7)
    slope = jax.grad(log_delta, 1)(7.0, loss, 1.7)
    step = 1e-4
    ends = [float(log_delta(7.0, x, 1.7)) for x in (loss - step, loss + step)]
    np.testing.assert_allclose(slope, (ends[1] - ends[0]) / (2 * step), rtol=1e-3)
