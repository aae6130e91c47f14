"""Compositions of Subbotins: two against an average over one's loss, more within their bounds."""

from typing import Any

import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from subbotin_closed_form import log_delta, threshold

import jaxdp as dp


def delta_of_two(
    shift: float, power: float, epsilon: float, other_shift: float, other_power: float
) -> Any:
    """E delta(epsilon - L) over the loss L of the other release, by mpmath's own quadrature."""
    m, p, e = mp.mpf(other_shift), mp.mpf(other_power), mp.mpf(epsilon)

    def integrand(t: Any) -> Any:
        loss: Any = (abs(t + m) ** p - abs(t) ** p) / p
        return mp.exp(-(abs(t) ** p) / p + log_delta(shift, e - loss, power))

    kink: Any = mp.mpf(shift) ** mp.mpf(power) / mp.mpf(power)
    kinks = [threshold_of(e + sign * kink, m, p) for sign in (-1, 1)]
    reach: Any = (p * 75) ** (1 / p)
    cuts = sorted({-reach - m, -m, -m / 2, mp.mpf(0), reach, *kinks})
    cuts = [c for c in cuts if -reach - m <= c <= reach]
    return mp.quad(integrand, cuts) / (2 * p ** (1 / p - 1) * mp.gamma(1 / p))


def threshold_of(loss: Any, shift: Any, power: Any) -> Any:
    """The t where the loss is `loss`, of either sign."""
    if loss < 0:
        return -shift - threshold_of(-loss, shift, power)
    return threshold(shift, loss, power)


@pytest.mark.long
@pytest.mark.parametrize(
    ("power", "shift", "epsilon"),
    [
        (1.5, 0.2, 0.6),
        (3.0, 0.5, 1.5),
        (4.0, 0.5, 3.0),
        # Nearly atoms: at +-1, and at 0.
        (1.05, 1.0, 0.5),
        (8.0, 0.5, 0.3),
    ],
)
def test_two_releases(power, shift, epsilon):
    with mp.workdps(20):
        truth = delta_of_two(shift, power, epsilon, shift, power)
        total = 2 * dp.privacy_loss(dp.Mechanism(dp.Subbotin(1.0, power), shift))
        excess = mp.mpf(float(total.log_delta(epsilon))) - mp.log(truth)
    error = float(total.log_delta_error(epsilon))
    assert 0 <= excess <= error < 1e-4, (excess, error)


@pytest.mark.long
def test_two_unequal_releases():
    """The other one's profile over the loss of the first, by the oracle's own quadrature."""
    pairs = (((0.5, 3.0), (0.2, 8.0), 0.7), ((1.0, 1.3), (0.5, 4.0), 1.5))
    for one, other, epsilon in pairs:
        shifts, powers = (jnp.array(x) for x in zip(one, other, strict=True))
        total = dp.privacy_loss(dp.Mechanism(dp.Subbotin(1.0, powers), shifts)).sum()
        truth = mp.log(delta_of_two(*one, epsilon, *other))
        excess = float(float(total.log_delta(epsilon)) - truth)
        error = float(total.log_delta_error(epsilon))
        assert 0 <= excess <= error < 1e-4, (one, other, excess, error)


@pytest.mark.long
@pytest.mark.parametrize("power", [1.5, 3.0, 8.0])
def test_three_and_four_releases_lie_within_their_bounds(power):
    for count in (3.0, 4.0):
        total = count * dp.privacy_loss(dp.Mechanism(dp.Subbotin(1.0, power), 0.7))
        lower, upper = total.bounds(1.1)
        # Two bounds from above, of two engines.
        assert lower <= total.delta(1.1) <= upper * (1 + 1e-6)
        apart = dp.Subbotin(jnp.ones(int(count)), power)
        added = dp.privacy_loss(dp.Mechanism(apart, 0.7)).sum()
        np.testing.assert_allclose(added.log_delta(1.1), total.log_delta(1.1), atol=1e-4)
