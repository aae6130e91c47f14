"""Audits: true claims stand, planted bugs are caught, bounds are Clopper and Pearson's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

import jaxdp as dp
from jaxdp.audit.confidence import Rates, clopper_pearson, least_epsilon
from jaxdp.audit.run import FAULTS, scores_of, view_of

KEY = jax.random.key(11)
TRIALS = 20_000
# What is claimed of sums of records in [0, 1], Laplace noise of scale 1 on each.
CLAIM = dp.PureDP(1.0)
MECHANISM = dp.Mechanism(dp.Gaussian(1.0), 1.0)
RECORDS = np.array([1.0, 1.0, 0.0])
NEIGHBOUR = np.array([1.0, 1.0, 1.0])


def generator(keys):
    return np.random.default_rng(np.asarray(jax.random.key_data(keys[0])))


def laplace(keys, shape=(), scale=1.0):
    """Noise of as many trials as there are keys."""
    return generator(keys).laplace(0, scale, (len(keys), *shape))


def plus_laplace(data, keys, scale=1.0):
    return data.sum() + laplace(keys, scale=scale)


def noise_reused(data, keys):
    noise = laplace(keys)
    return np.stack([data.sum() + noise, noise], axis=1)


def low_bits(data, keys):
    """Noise of 1,000 deviations in float64: rounding tells small sums from large ones."""
    return 2.0**-40 * (data.sum() > 2.5) + np.round(1e3 * laplace(keys) * 2**20) / 2**20


BUGS = {
    "half the noise": (lambda x, k: plus_laplace(x, k, 0.5), RECORDS, NEIGHBOUR),
    "noise reused": (noise_reused, RECORDS, NEIGHBOUR),
    "no clipping": (plus_laplace, RECORDS, np.array([1.0, 1.0, 5.0])),
    # Noise for a record in [-1, 1] that is added, where one is replaced.
    "wrong relation": (plus_laplace, np.array([1.0, 1.0, -1.0]), NEIGHBOUR),
    "wrong sensitivity": (lambda x, k: plus_laplace(3.0 * x, k), RECORDS, NEIGHBOUR),
    "low bits": (low_bits, RECORDS, NEIGHBOUR),
    "unequal lengths": (lambda x, k: laplace(k, (len(x),)), RECORDS, NEIGHBOUR[:2]),
}


@pytest.mark.parametrize("name", BUGS)
def test_planted_bugs_are_caught(name):
    mechanism, data, other = BUGS[name]
    found = audited(mechanism, (data, other))
    assert found.is_refuted, found


def test_a_right_mechanism_stands():
    found = audited(lambda x, k: plus_laplace(np.clip(x, 0, 1), k), (RECORDS, NEIGHBOUR))
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


def test_the_bounds_are_those_of_clopper_and_pearson():
    """Of 0 and of all of 10 trials: 1 - 0.025^(1/10), in closed form."""
    rates = clopper_pearson((np.array([0, 10]), np.array([0, 10])), (10, 10), 0.05)
    np.testing.assert_allclose(rates.lower, [0.0, 0.025**0.1], rtol=1e-12)
    np.testing.assert_allclose(rates.upper, [1 - 0.025**0.1, 1.0], rtol=1e-12)
    assert float(least_epsilon(Rates(np.array(0.5), np.array(0.25)), 0.1)) == pytest.approx(
        np.log(1.6)
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((MECHANISM, (0.0, 1.0), 2), "trials must be at least 4"),
        ((MECHANISM, (0.0,), 10), "neighbours must be two"),
        ((MECHANISM, (0.0, 1.0), 10, 1.0), "confidence must lie"),
        ((3.0, (0.0, 1.0), 10), "mechanism must be"),
        ((MECHANISM, (np.zeros(2), np.ones(2)), 10), "one release of a number"),
    ],
)
def test_bad_arguments_are_refused(arguments, said):
    with pytest.raises(ValueError, match=said):
        dp.audit.run(*arguments[:3], claim=1.0, confidence=[0.9, *arguments[3:]][-1])


RUNS_OF_EACH = 400
# Audits, and of how many whose rate of false alarms is .05 more fail with a probability of .001.
AUDITS = {dp.PureDP: (200, 20), dp.GDP: (60, 9)}


def response(data, keys):
    """Randomised response with ten answers that meets epsilon 1 exactly, of the inputs 0 and 1."""
    drawn = generator(keys)
    others = (data + drawn.integers(1, 10, len(keys))) % 10
    return np.where(drawn.random(len(keys)) < np.e / (np.e + 9), data, others)


def on_lattice(law):
    """A sum with noise that is rounded, so that no last bits tell the data apart."""
    return lambda data, keys: np.round((data + law(generator(keys), len(keys))) * 2**10) / 2**10


def two_laplace(data, keys):
    """Two coordinates that share a sensitivity of 1."""
    noise = generator(keys).laplace(0.0, 1.0, (len(keys), 2))
    return np.round((data * np.array([0.3, 0.7]) + noise) * 2**10) / 2**10


TRUE = {
    "ten answers": (response, dp.PureDP, 0.0),
    "two Laplace": (two_laplace, dp.PureDP, 0.0),
    "Gaussian": (on_lattice(lambda g, n: g.normal(0.0, 1.0, n)), dp.GDP, 0.1),
}


def audits(mechanism, claim, delta, count, trials):
    keys = jax.random.split(jax.random.key(7), count)
    known = {"chunk": trials, "progress": False, "claim": claim, "delta": delta}
    return [dp.audit.run(mechanism, (0, 1), trials, key=key, **known) for key in keys]


@pytest.mark.parametrize("name", TRUE)
def test_true_claims_are_refuted_as_rarely_as_said(name):
    mechanism, claim, delta = TRUE[name]
    count, alarms = AUDITS[claim]
    found = audits(mechanism, claim(1.0), delta, count, RUNS_OF_EACH)
    assert sum(bool(each.is_refuted) for each in found) <= alarms
    assert np.median([each.epsilon_lower for each in found]) > 0.15


@pytest.mark.parametrize("delta", [1e-5, 1e-2])
def test_a_gaussian_claim_is_refuted_by_mu(delta):
    """Deviation .7 for 1: epsilon alone refutes none of eight at 1e-5 and some at 1e-2."""
    mechanism = on_lattice(lambda g, n: g.normal(0.0, 0.7, n))
    whole = dp.Mechanism(dp.Gaussian(1.0), 1.0)
    losses = 4 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(2.0), 1.0))
    for claim, count in ((whole, 1), (losses, 1), (dp.GDP(1.0), 8)):
        found = audits(mechanism, claim, delta, count, 10_000)
        assert all(each.is_refuted for each in found)
        assert all(each.claimed_mu == 1.0 and each.mu_lower > 1.0 for each in found)
        assert {each.finding for each in found} == {"refuted by the values of an output"}
    by_epsilon = sum(each.epsilon_lower > each.claimed for each in found)
    assert by_epsilon == 0 if delta == 1e-5 else by_epsilon < 8


def in_floating_point(scale):
    return lambda data, keys: data + generator(keys).laplace(0.0, scale, len(keys))


@pytest.mark.parametrize("scale", [0.5, 1.0])
def test_an_audit_says_that_the_last_bits_refuted(scale):
    """And the size of the noise is audited by the other scores, or from rounded outputs."""
    known = {"claim": dp.PureDP(1.0), "key": jax.random.key(0), "chunk": 4000, "progress": False}
    found = dp.audit.run(in_floating_point(scale), (0.0, 1.0), 4000, **known)
    assert found.is_refuted
    assert found.finding.startswith(
        "refuted by the last bits of floating point, not by the size of the noise: round and audit"
    )
    rounded = on_lattice(lambda g, n: g.laplace(0.0, scale, n))
    for other in (
        dp.audit.run(in_floating_point(scale), (0.0, 1.0), 4000, **known, low_bits=False),
        dp.audit.run(rounded, (0.0, 1.0), 4000, **known),
    ):
        assert other.score != "low bits"
        assert other.is_refuted == (scale < 1.0)
        expected = "refuted by the values" if scale < 1.0 else "not refuted"
        assert other.finding.startswith(expected)


def test_a_score_is_a_function_of_one_output():
    """The scores of some outputs are those that they have among others."""
    drawn = np.random.default_rng(0)
    outputs = drawn.normal(size=(40, 3))
    view = view_of(outputs[:20], outputs[20:])
    whole, part = (scores_of(x, view, True) for x in (outputs, outputs[5:6]))
    assert whole.keys() == part.keys() == FAULTS.keys()
    for name, score in whole.items():
        np.testing.assert_allclose(score[5:6], part[name], rtol=1e-12)
