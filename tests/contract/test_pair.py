"""Dominating pairs: laws, profiles, exchange and divergences of one release agree."""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
import pytest
from compositions import SCHEMES

import jaxdp as dp
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import kernel
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import is_whole
from jaxdp.dominating_pair.finite import worst_of_shifts
from jaxdp.dominating_pair.known_guarantee import BoundedRange, RandomisedResponse, Response
from jaxdp.dominating_pair.poisson import Poisson
from jaxdp.dominating_pair.replaced import Replaced

pytestmark = pytest.mark.float64

NOISES = {
    "gaussian": dp.Gaussian(1.3),
    "laplace": dp.Laplace(1.3),
    "flipped_huber": dp.FlippedHuber(1.5, 1.1),
    "offset_gaussian": dp.OffsetGaussian(0.7, 1.2),
    "subbotin": dp.Subbotin(1.3, 1.7),
    "staircase": dp.Staircase(0.8, 1.0, 0.3),
    "truncated_laplace": dp.TruncatedLaplace(1.0, 6.0),
    "discrete_laplace": dp.DiscreteLaplace(1.7),
    "discrete_gaussian": dp.DiscreteGaussian(1.7),
}
HISTOGRAM = dp.Histogram(0.5, np.array([1.0, 3, 9, 3, 2]), 0.1)
PAIRS = {
    **{name: Additive(noise, 1.0) for name, noise in NOISES.items()},
    **{f"removed_{name}": Poisson(Additive(x, 1.0), 0.1, 0.0) for name, x in NOISES.items()},
    **{f"added_{name}": Poisson(Additive(x, 1.0), 0.1, 1.0) for name, x in NOISES.items()},
    "replaced_gaussian": Replaced(NOISES["gaussian"], 1.0, 0.1),
    "replaced_laplace": Replaced(NOISES["laplace"], 1.0, 0.1),
    "pure": Response(0.7, 0.0),
    "approximate": Response(0.7, 0.01),
    "randomised_response": RandomisedResponse(0.7, 5.0),
    "range": BoundedRange(0.7),
    "histogram": worst_of_shifts(HISTOGRAM, 1.0),
    "sampled_response": Poisson(Response(0.7, 0.0), 0.2, 0.0),
    **{name: term.pair for name, release in SCHEMES.items() for term in release(1.2).terms},
}
SYMMETRIC = ("truncated-replaced", "fixed-replaced", "group-replaced")
every_pair = pytest.mark.parametrize("name", PAIRS)


@in_float64
def asked(method, *arguments):
    """The answer of a pair's method as engines ask: constants meet batches, nothing compiles."""
    with jax.numpy_rank_promotion("allow"):
        return method(*arguments)


def one(pair):
    """With an axis along which releases compose."""
    return jax.tree.map(lambda x: np.broadcast_to(x, (1,)), pair)


def law_of(pair):
    """Losses and logarithms of masses of a pair's law, its largest and its infinite loss."""
    law = asked(pair.law)
    parts = (law.loss, law.log_mass, law.largest, law.log_infinite)
    return tuple(np.asarray(x)[0] for x in parts)


@every_pair
def test_a_law_is_that_of_the_profile(name):
    """Both ways: masses of P and Q, largest and infinite losses, delta at every epsilon."""
    pair = one(PAIRS[name])
    back = asked(pair.reversed)
    for side, other in ((pair, back), (back, pair)):
        law = asked(side.law)
        assert is_whole(law)[0]
        assert law.log_left_out[0] < (-50.0 if name == "allocation" else -290.0)
        loss, log_mass, largest, log_infinite = law_of(side)
        mass, infinite, hidden = np.exp(log_mass), np.exp(log_infinite), np.exp(law_of(other)[3])
        np.testing.assert_allclose(mass.sum() + infinite, 1.0, atol=1e-11)
        held = log_mass > -600.0
        under_q = np.exp((log_mass - loss)[held]).sum()
        np.testing.assert_allclose(under_q + hidden, 1.0, atol=1e-11)
        assert np.all(loss[held] <= largest * (1.0 + 1e-12) + 1e-12)
        for epsilon in (-0.3, 0.0, 0.02, 0.2, 0.5, 1.5):
            # By nodes across the kink: quadrature of a function that is not smooth there.
            sticks = (mass * np.maximum(-np.expm1(epsilon - loss), 0.0)).sum() + infinite
            profile = np.exp(float(asked(side.log_delta, epsilon)[0]))
            np.testing.assert_allclose(sticks, profile, rtol=5e-3, atol=1e-9)


@every_pair
def test_exchanged_twice_it_is_the_pair(name):
    pair = one(PAIRS[name])
    back = asked(pair.reversed)
    assert jax.tree.structure(back) == jax.tree.structure(pair)
    jax.tree.map(np.testing.assert_array_equal, asked(back.reversed), pair)
    for epsilon in (0.02, 0.3, 1.5):
        forward, same = (np.exp(float(asked(pair.log_delta, e)[0])) for e in (-epsilon, epsilon))
        backward = np.exp(float(asked(back.log_delta, epsilon)[0]))
        # delta'(e) = 1 - e^e (1 - delta(-e)).
        mirrored = 1.0 - np.exp(epsilon) * (1.0 - forward)
        # The shares of a public coin are rounded up.
        slack = 1e-11 if name in SCHEMES else 1e-12
        np.testing.assert_allclose(backward, mirrored, rtol=1e-9, atol=slack)
        if name in SYMMETRIC:
            assert backward == pytest.approx(same, rel=1e-12)


@every_pair
def test_divergences_are_moments_of_the_law(name):
    """From above, growing with the order; the largest loss at infinity."""
    pair, orders = one(PAIRS[name]), (1.0, 1.25, 1.5, 2.0, 4.0, 8.0)
    for side in (pair, asked(pair.reversed)):
        loss, log_mass, largest, log_infinite = law_of(side)
        infinite = log_infinite > -np.inf
        found = np.asarray(asked(side.renyi, np.array(orders))).tolist()
        for a, value in zip(orders[1:], found[1:], strict=True):
            moment = np.logaddexp.reduce(log_mass + (a - 1.0) * loss) / (a - 1.0)
            if infinite:
                assert value == np.inf
            elif name == "range":  # an adversary who may not choose anew is told less
                assert value < moment
            else:
                assert value >= moment * (1.0 - 1e-9) - 1e-11
                assert value == pytest.approx(moment, rel=1e-8) or name in SCHEMES
        assert sorted(found) == found
        end = float(asked(side.renyi, np.inf)[0])
        assert end == (np.inf if infinite else pytest.approx(largest, rel=1e-12))


# A scale, and how far a second parameter lies between its ends.
SIZED = {
    "laplace": lambda scale, _: dp.Laplace(scale),
    "subbotin": lambda scale, part: dp.Subbotin(scale, 1.0 + 7.0 * part),
    "truncated_laplace": lambda scale, part: dp.TruncatedLaplace(
        scale, scale * (1.0 + 20.0 * part)
    ),
    "discrete_laplace": lambda scale, _: dp.DiscreteLaplace(scale),
    "gaussian": lambda scale, _: dp.Gaussian(scale),
    "flipped_huber": lambda scale, part: dp.FlippedHuber(scale, scale * (0.1 + part)),
    "offset_gaussian": lambda scale, part: dp.OffsetGaussian(3.0 * part, scale),
    "discrete_gaussian": lambda scale, _: dp.DiscreteGaussian(scale),
}


@pytest.mark.parametrize("name", SIZED)
def test_laws_of_any_size_add_up(name):
    """Sampled or not; up to shifts of 5 scales but for what lies beyond the last node."""
    rng = np.random.default_rng(7)
    scale, part, q = np.exp(rng.uniform(0.0, 8.0, 60)), rng.random(60), rng.random(60) ** 6
    ratio = np.exp(rng.uniform(-8.0, 8.0, 60))
    shift, added = np.ceil(ratio * scale), rng.integers(0, 2, 60).astype(float)
    whole = Additive(SIZED[name](scale, part), shift)
    for pair in (whole, Poisson(whole, q, added)):
        law = asked(pair.law)
        assert np.all(is_whole(law))
        stated = np.asarray(law.log_left_out)[shift <= 5.0 * scale]
        assert np.all(stated < -290.0), stated.max()


def test_randomised_response_is_exact():
    """k answers: profile and divergences by both atoms and the rest, in 40 digits."""
    for bound, categories in ((0.7, 2.0), (0.7, 5.0), (3.0, 1000.0), (1e-3, 7.0)):
        pair = RandomisedResponse(bound, categories)
        with mp.workdps(40):
            b, k = mp.mpf(bound), mp.mpf(categories)
            whole = mp.exp(b) + k - 1
            atoms = [(b, mp.exp(b) / whole), (-b, 1 / whole), (mp.mpf(0), (k - 2) / whole)]
            for epsilon in (-2.0 * bound, -0.4 * bound, 0.0, 0.6 * bound):
                e = mp.mpf(epsilon)
                truth = mp.log(mp.fsum(p * max(1 - mp.exp(e - x), 0) for x, p in atoms))
                excess = float(mp.mpf(float(pair.log_delta(epsilon))) - truth)
                assert -1e-30 <= excess < 1e-11 * (1 + abs(float(truth))), (bound, epsilon)
            for order in (1.5, 2.0, 30.0):
                s = mp.mpf(order) - 1
                truth = mp.log(mp.fsum(p * mp.exp(s * x) for x, p in atoms)) / s
                value = float(pair.renyi(order))
                assert -1e-30 <= value / truth - 1 < 1e-9, (bound, order)
        assert pair.log_delta(bound) == -np.inf


def test_bad_values():
    for make in (lambda x: Response(x, 0.0), lambda x: BoundedRange(x)):
        with pytest.raises(ValueError, match="must lie in"):
            make(-1.0)
        assert bool(jnp.isnan(jax.jit(lambda x, m=make: m(x).log_delta(0.1))(-1.0)))
    with pytest.raises(ValueError, match="sampling_prob must lie in"):
        Poisson(PAIRS["gaussian"], 1.5, 0.0)
    with pytest.raises(ValueError, match="categories"):
        RandomisedResponse(1.0, 1.0)
    assert bool(jnp.isnan(jax.jit(RandomisedResponse(1.0, 3.0).log_delta)(jnp.nan)))
    for name in ("laplace", "removed_gaussian", "replaced_gaussian"):
        bad = jax.tree.map(lambda _: np.full(1, np.nan), PAIRS[name])
        with kernel():
            assert all(np.isnan(x).all() for x in (bad.log_delta(0.1), bad.renyi(2.0))), name
