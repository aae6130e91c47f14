"""Audits in one run: exact in small cases, false alarms are rare, planted bugs are caught."""

import jax
import numpy as np
import pytest
from scipy import stats

import jaxdp as dp
from jaxdp.audit.one_run import approximate, gaussian, is_refuted

KEY = jax.random.key(3)


@pytest.mark.parametrize(
    ("curve", "best"),
    [
        (approximate(1.0, 0.0), np.e / (1 + np.e)),
        (approximate(1.0, 0.1), (np.e + 0.1) / (1 + np.e)),
        (gaussian(1.0), stats.norm.cdf(0.5)),
    ],
    ids=["pure", "approximate", "gaussian"],
)
def test_one_canary_is_guessed_as_often_as_the_curve_allows(curve, best):
    """The largest accuracy of a test is where the false positives are the false negatives."""
    assert not is_refuted(curve, (1, 1, 1), best - 1e-6)
    assert is_refuted(curve, (1, 1, 1), best + 1e-6)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_randomised_response_is_never_refuted_more_often_than_said(epsilon):
    """Its right guesses are binomial: no bound may reject a number that has a larger tail."""
    law = stats.binom(60, np.exp(epsilon) / (1 + np.exp(epsilon)))
    for correct in range(30, 61):
        tail = law.sf(correct - 1)
        assert not is_refuted(approximate(epsilon, 0.0), (correct, 60, 60), tail * (1 - 1e-9))


def channel(mu, bug=1.0):
    """Each canary seen through noise of its own: exactly GDP(mu), where `bug` is 1."""

    def training(included, key):
        noise = np.random.default_rng(np.asarray(jax.random.key_data(key)))
        return bug * mu * included + noise.normal(size=included.shape)

    return training


def response(included, key):
    """Randomised response of a canary each: exactly PureDP(1)."""
    lies = np.random.default_rng(np.asarray(jax.random.key_data(key))).random(included.size)
    return np.where(lies < 1 / (1 + np.e), ~included, included)


def test_false_alarms_are_as_rare_as_said():
    """100 runs that meet their claim exactly, at 80 %: the bounds are close to exact here."""
    known = {"claim": 1.0, "guesses": 50, "confidence": 0.8}
    keys = jax.random.split(KEY, 100)
    found = [dp.audit.one_run(response, 50, **known, key=key) for key in keys]
    by_curve = sum(bool(each.is_refuted) for each in found)
    assert by_curve == sum(each.epsilon_lower > 1.0 for each in found)
    assert 0 < by_curve <= 25


def test_a_bound_is_near_the_truth():
    found = dp.audit.one_run(channel(1.0), 10_000, claim=dp.GDP(1.0), delta=1e-5, key=KEY)
    assert not found.is_refuted
    assert found.claimed == pytest.approx(float(dp.GDP(1.0).epsilon(1e-5)))
    assert 0.6 < found.mu_lower < 1.0
    assert 1.5 < found.epsilon_lower < found.claimed
    assert (found.canaries, found.guesses, found.confidence) == (10_000, 1000, 0.95)
    nothing = dp.audit.one_run(channel(1.0), 100, key=KEY)
    assert nothing.claimed == np.inf
    assert nothing.is_refuted is None


def test_scores_that_exist_are_those_of_a_training():
    included = np.random.default_rng(4).random(1000) < 0.5
    scores = channel(2.0)(included, KEY)
    known = {"claim": dp.GDP(1.0), "delta": 1e-5, "key": KEY}
    found = dp.audit.one_run(np.asarray(scores), included, **known)
    assert (found.is_refuted, found.canaries, found.guesses) == (True, 1000, 100)
    assert found == dp.audit.one_run(list(map(float, scores)), included.tolist(), **known)
    # Scores of other canaries say nothing.
    assert dp.audit.one_run(scores, ~included[::-1], **known).epsilon_lower < 0.5
    for canaries, said in (
        (1000, r"canaries must be bools, .* got int64 of shape \(\)"),
        (included.astype(int), "canaries must be bools"),
        (included[:999], r"a finite number a canary, \(999,\)"),
        (np.ones(1000, bool), "by fair coins, got 1,000 of 1,000 included"),
    ):
        with pytest.raises(ValueError, match=said):
            dp.audit.one_run(scores, canaries, **known)


CANARIES = 1000


def trained(included, key, *, clip=1.0, relation=1.0):
    """Ten noisy sums of gradients of length 3, one direction a canary; the scores are their sums.

    relation: 2 where a canary that is left out pulls the other way.
    """
    noise = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    pulled = np.where(included, 1.0, 1.0 - relation) * min(3.0, clip)
    return 10 * pulled + noise.normal(0.0, 3.5, size=(10, CANARIES)).sum(axis=0)


TRAININGS = {
    "right": ({}, 1.0),
    "half the noise": ({}, 2.0),
    "no clipping": ({"clip": np.inf}, 1.0),
    "wrong relation": ({"relation": 2.0}, 1.0),
    "steps not composed": ({}, 10.0**0.5),
}


@pytest.mark.parametrize("name", TRAININGS)
def test_planted_bugs_of_a_training_are_caught(name):
    known, factor = TRAININGS[name]
    found = dp.audit.one_run(
        lambda included, key: trained(included, key, **known),
        CANARIES,
        claim=dp.GDP(10**0.5 / (factor * 3.5)),
        delta=1e-5,
        key=KEY,
    )
    assert found.is_refuted == (name != "right"), found


ONE_WAY = dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.5, "remove")


@pytest.mark.parametrize(
    ("made", "canaries", "keys", "said"),
    [
        (np.arange(10.0), 10, {"guesses": 11}, "guesses must lie"),
        (np.arange(10.0), 10, {"claim": ONE_WAY}, "both directions"),
        (np.arange(10.0), 0, {}, "canaries must be"),
        (np.zeros(3), 10, {}, "training must return"),
        (np.full(10, np.nan), 10, {}, "no NaN"),
        (np.append(np.zeros(9), -np.inf), 10, {}, "a finite number a canary"),
        (np.ones(10), 10, {}, "one constant score"),
    ],
)
def test_bad_arguments_are_refused(made, canaries, keys, said):
    with pytest.raises(ValueError, match=said):
        dp.audit.one_run(lambda included, key: made, canaries, key=KEY, **keys)
