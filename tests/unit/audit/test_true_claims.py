"""True claims are refuted as rarely as the confidence says, false Gaussian ones mostly."""

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.audit.scores import FAULTS, scores_of, view_of

AUDITS, TRIALS = 200, 400
# Of 200 audits whose rate of false alarms is .05 more than 20 fail with a probability of .001.
ALARMS = 20


def generator(keys):
    return np.random.default_rng(np.asarray(jax.random.key_data(keys[0])))


def response(categories):
    """Randomised response that meets epsilon 1 exactly, of the inputs 0 and 1."""

    def mechanism(data, keys):
        drawn = generator(keys)
        others = (data + drawn.integers(1, categories, len(keys))) % categories
        is_true = drawn.random(len(keys)) < np.e / (np.e + categories - 1)
        return np.where(is_true, data, others)

    return mechanism


def on_lattice(law):
    """A sum with noise that is rounded, so that no last bits tell the data apart."""
    return lambda data, keys: np.round((data + law(generator(keys), len(keys))) * 2**10) / 2**10


def two_laplace(data, keys):
    """Two coordinates that share a sensitivity of 1."""
    noise = generator(keys).laplace(0.0, 1.0, (len(keys), 2))
    return np.round((data * np.array([0.3, 0.7]) + noise) * 2**10) / 2**10


TRUE = {
    "two answers": (response(2), dp.PureDP, 0.0),
    "three answers": (response(3), dp.PureDP, 0.0),
    "ten answers": (response(10), dp.PureDP, 0.0),
    "Laplace": (on_lattice(lambda g, n: g.laplace(0.0, 1.0, n)), dp.PureDP, 0.0),
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
    found = audits(mechanism, claim(1.0), delta, AUDITS, TRIALS)
    assert sum(each.is_refuted for each in found) <= ALARMS
    assert np.median([each.epsilon_lower for each in found]) > 0.15


@pytest.mark.parametrize("delta", [1e-5, 1e-2])
def test_a_gaussian_claim_is_refuted_by_mu(delta):
    """Deviation .7 for 1: epsilon alone refutes none of eight at 1e-5 and some at 1e-2."""
    mechanism = on_lattice(lambda g, n: g.normal(0.0, 0.7, n))
    whole = dp.Mechanism(dp.Gaussian(1.0), 1.0)
    for claim in (dp.GDP(1.0), whole, 4 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(2.0), 1.0))):
        found = audits(mechanism, claim, delta, 8, 10_000)
        assert [each.is_refuted for each in found] == [True] * 8
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
