"""Audits: true claims stand, planted bugs are caught, and the bounds are Clopper and Pearson's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

import jaxdp as dp
from jaxdp.audit.bounds import Rates, clopper_pearson, least_epsilon

KEY = jax.random.key(11)
TRIALS = 20_000
# What is claimed of sums of records in [0, 1], Laplace noise of scale 1 on each.
CLAIM = dp.PureDP(1.0)
RECORDS = np.array([1.0, 1.0, 0.0])
NEIGHBOUR = np.array([1.0, 1.0, 1.0])


def laplace(keys, shape=(), scale=1.0):
    """Noise of as many trials as there are keys."""
    generator = np.random.default_rng(np.asarray(jax.random.key_data(keys[0])))
    return generator.laplace(0, scale, (len(keys), *shape))


def right(data, keys):
    return np.clip(data, 0, 1).sum() + laplace(keys)


def half_the_noise(data, keys):
    return data.sum() + laplace(keys, scale=0.5)


def noise_reused(data, keys):
    noise = laplace(keys)
    return np.stack([data.sum() + noise, noise], axis=1)


def no_clipping(data, keys):
    return data.sum() + laplace(keys)


def wrong_relation(data, keys):
    """Noise for a record in [-1, 1] that is added, where one is replaced."""
    return data.sum() + laplace(keys, scale=1.0)


def low_bits(data, keys):
    """Noise of 1,000 deviations in float64: rounding tells small sums from large ones."""
    return 2.0**-40 * (data.sum() > 2.5) + np.round(1e3 * laplace(keys) * 2**20) / 2**20


def unequal_lengths(data, keys):
    return laplace(keys, (len(data),))


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
    found = audited(mechanism, (data, other))
    assert found.is_refuted, found


def test_a_right_mechanism_stands():
    found = audited(right, (RECORDS, NEIGHBOUR))
    assert not found.is_refuted
    assert found.epsilon_lower > 0.8


def audited(mechanism, pair):
    return dp.audit.run(mechanism, pair, TRIALS, claim=CLAIM, key=KEY, chunk=TRIALS, progress=False)


def test_many_trials_of_one_call_are_those_of_many():
    """And an estimator's randomness comes from the key, whatever its own is."""

    def once(data, key):
        return {"sum": data.sum() + jax.random.laplace(key), "other": jnp.zeros(2)}

    def many(data, keys):
        return jax.vmap(lambda key: once(data, key))(keys)

    known = {"claim": CLAIM, "key": KEY, "progress": False}
    pair = (RECORDS, NEIGHBOUR)
    found = dp.audit.run(many, pair, 50, chunk=20, **known)
    assert found == dp.audit.run(once, pair, 50, **known)

    class Fitted(BaseEstimator):
        def __init__(self, random_state=0):
            self.random_state = random_state

        def fit(self, x):
            self.mean_ = x.mean() + check_random_state(self.random_state).normal(0.0, 10.0)
            return self

    assert not dp.audit.run(Fitted(), ([RECORDS], [NEIGHBOUR]), 50, **known).is_refuted


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
        dp.audit.run(mechanism, (0.0, 1.0), 2)
    with pytest.raises(ValueError, match="neighbours must be two"):
        dp.audit.run(mechanism, (0.0,), 10)
    with pytest.raises(ValueError, match="confidence must lie"):
        dp.audit.run(mechanism, (0.0, 1.0), 10, confidence=1.0)
    with pytest.raises(ValueError, match="mechanism must be"):
        dp.audit.run(3.0, (0.0, 1.0), 10, claim=1.0)
    with pytest.raises(ValueError, match="one release of a number"):
        dp.audit.run(mechanism, (jnp.zeros(2), jnp.ones(2)), 10)
