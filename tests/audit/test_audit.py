"""Audits: true claims stand, planted bugs are caught, and the bounds are Clopper and Pearson's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.audit.bounds import Rates, clopper_pearson, least_epsilon

KEY = jax.random.key(11)
TRIALS = 2500
# What is claimed of sums of records in [0, 1], Laplace noise of scale 1 on each.
CLAIM = dp.PureDP(1.0)
RECORDS = np.array([1.0, 1.0, 0.0])
NEIGHBOUR = np.array([1.0, 1.0, 1.0])


def laplace(key, shape=(), scale=1.0):
    return np.random.default_rng(np.asarray(jax.random.key_data(key))).laplace(0, scale, shape)


def right(data, key):
    return np.clip(data, 0, 1).sum() + laplace(key)


def half_the_noise(data, key):
    return data.sum() + laplace(key, scale=0.5)


def noise_reused(data, key):
    noise = laplace(key)
    return np.array([data.sum() + noise, noise])


def no_clipping(data, key):
    return data.sum() + laplace(key)


def wrong_relation(data, key):
    """Noise for a record in [-1, 1] that is added, where one is replaced."""
    return data.sum() + laplace(key, scale=1.0)


def low_bits(data, key):
    """Noise of 1,000 deviations in float64: rounding tells small sums from large ones."""
    return 2.0**-40 * (data.sum() > 2.5) + np.round(1e3 * laplace(key) * 2**20) / 2**20


def unequal_lengths(data, key):
    return np.concatenate([laplace(key, len(data))])


BUGS = {
    "half the noise": (half_the_noise, RECORDS, NEIGHBOUR),
    "noise reused": (noise_reused, RECORDS, NEIGHBOUR),
    "no clipping": (no_clipping, RECORDS, np.array([1.0, 1.0, 5.0])),
    "wrong relation": (wrong_relation, np.array([1.0, 1.0, -1.0]), NEIGHBOUR),
    "wrong sensitivity": (lambda x, k: 3.0 * x.sum() + laplace(k), RECORDS, NEIGHBOUR),
    "low bits": (low_bits, RECORDS, NEIGHBOUR),
    "unequal lengths": (unequal_lengths, RECORDS, NEIGHBOUR[:2]),
}


@pytest.mark.parametrize("name", BUGS)
def test_planted_bugs_are_caught(name):
    mechanism, data, other = BUGS[name]
    trials = TRIALS if name in ("half the noise", "wrong relation") else 1500
    found = dp.audit(mechanism, (data, other), trials, claim=CLAIM, key=KEY, progress=False)
    assert found.is_refuted, found


def test_a_right_mechanism_stands():
    found = dp.audit(right, (RECORDS, NEIGHBOUR), TRIALS, claim=CLAIM, key=KEY, progress=False)
    assert not found.is_refuted
    assert found.epsilon_lower > 0.6


@pytest.mark.parametrize(
    ("noise", "delta"),
    [
        (dp.Gaussian(1.0), 1e-2),
        (dp.Laplace(1.0), 0.0),
        (dp.FlippedHuber(0.5, 1.0), 1e-2),
        (dp.DiscreteGaussian(2.0), 1e-2),
        (dp.DiscreteLaplace(1.0), 0.0),
        (dp.Histogram(0.5, [1, 2, 4, 8, 4, 2, 1]), 0.5),
    ],
)
def test_releases_meet_their_claim(noise, delta):
    pair = (0, 1) if noise.on_integers else (0.0, 1.0)
    mechanism = dp.Mechanism(noise, 1.0)
    found = dp.audit(mechanism, pair, 60_000, delta=delta, key=KEY, progress=False)
    assert not found.is_refuted, found
    assert found.epsilon_lower > 0.4 * min(found.claimed, 3.0)


@pytest.mark.long
def test_a_solver_meets_its_claim():
    """One update of coordinate descent by noise from the lattice, a record at either threshold."""
    descent, trials = dp.solvers.coordinate_descent, 4000
    arguments = {"smoothness": [1.0], "clip": 1.0, "records": 4, "passes": 1, "order": "cyclic"}
    made = descent.plan((1.5, 1e-2), relation="replace_one", **arguments)

    def run(extreme, key):
        targets = jnp.append(jnp.array([0.1, 0.2, -0.3]), extreme)
        problem = dp.Problem(jnp.ones((1, 4)), -targets, dp.L2(0.0), "squared")
        return descent.run(problem, made, key)

    drawn = jax.jit(jax.vmap(run, (None, 0)))
    keys = jax.random.split(KEY, (2, trials))
    outputs = [iter(np.asarray(drawn(9.0 - 18.0 * i, keys[i]))) for i in (0, 1)]
    found = dp.audit(
        lambda i, _: next(outputs[i]),
        (0, 1),
        trials,
        claim=made.guarantee,
        delta=1e-2,
        progress=False,
    )
    assert not found.is_refuted, found
    assert found.epsilon_lower > 0.4 * found.claimed


def test_false_alarms_are_as_rare_as_said():
    """The randomised response that meets its claim exactly: 200 audits at 90 %."""
    response = np.random.default_rng(0)
    alarms = 0
    for _ in range(200):
        heads = [response.random(400) < p for p in (np.e / (1 + np.e), 1 / (1 + np.e))]
        rates = clopper_pearson(heads[0].sum(), heads[1].sum(), 400, 0.1)
        alarms += float(least_epsilon(rates, 0.0)) > 1.0
    assert alarms <= 20


def test_the_bounds_are_those_of_clopper_and_pearson():
    """Of 0 and of all of 10 trials: 1 - 0.025^(1/10), in closed form."""
    rates = clopper_pearson(np.array([0, 10]), np.array([0, 10]), 10, 0.05)
    np.testing.assert_allclose(rates.lower, [0.0, 0.025**0.1], rtol=1e-12)
    np.testing.assert_allclose(rates.upper, [1 - 0.025**0.1, 1.0], rtol=1e-12)
    assert float(least_epsilon(Rates(np.array(0.5), np.array(0.25)), 0.1)) == pytest.approx(
        np.log(1.6)
    )


def test_bad_arguments_are_refused():
    mechanism = dp.Mechanism(dp.Gaussian(1.0), 1.0)
    with pytest.raises(ValueError, match="trials must be at least 4"):
        dp.audit(mechanism, (0.0, 1.0), 2)
    with pytest.raises(ValueError, match="neighbours must be two"):
        dp.audit(mechanism, (0.0,), 10)
    with pytest.raises(ValueError, match="confidence must lie"):
        dp.audit(mechanism, (0.0, 1.0), 10, confidence=1.0)
    with pytest.raises(ValueError, match="mechanism must be"):
        dp.audit(3.0, (0.0, 1.0), 10, claim=1.0)
    with pytest.raises(ValueError, match="one release of a number"):
        dp.audit(mechanism, (jnp.zeros(2), jnp.ones(2)), 10)
