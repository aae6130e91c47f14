"""Audits of outputs that were made elsewhere: halves at random, as many as the claim needs."""

import re
import sys

import jax
import numpy as np
import pytest

import jaxdp as dp

KEY = jax.random.key(3)
LEAST = np.e / (1 + np.e)


def answers(generator, trials):
    """Randomised response that meets epsilon 1 exactly."""
    return generator.random(trials) < LEAST, generator.random(trials) >= LEAST


def gaussian(generator, trials):
    return generator.normal(0.0, 1.0, trials), generator.normal(1.0, 1.0, trials)


def rounded_laplace(generator, trials):
    noise = np.round(generator.laplace(0.0, 1.0, (2, trials)))
    return noise[0], noise[1] + 1.0


TRUE = {
    "answers": (answers, dp.PureDP(1.0), 0.0),
    "ties": (rounded_laplace, dp.PureDP(1.0), 0.0),
}


@pytest.mark.parametrize("name", TRUE)
def test_true_claims_of_sorted_outputs_are_refuted_as_rarely_as_said(name):
    """The rate is .5: of 40 audits more than 28 fail with a probability of .003."""
    make, claim, delta = TRUE[name]
    generator, alarms = np.random.default_rng(5), 0
    for key in jax.random.split(KEY, 40):
        first, second = map(np.sort, make(generator, 300))
        first = np.sort(np.concatenate([first, make(generator, 50)[0]]))
        terms = {"claim": claim, "delta": delta, "confidence": 0.5, "key": key}
        alarms += bool(dp.audit.of_outputs(first, second, **terms).is_refuted)
    assert alarms <= 28


def test_false_claims_are_refuted():
    first, second = gaussian(np.random.default_rng(1), 4000)
    for pair in ((first, second), map(np.sort, (first, second)), (first, second[:3000])):
        found = dp.audit.of_outputs(*pair, claim=dp.GDP(0.7), delta=0.05, key=KEY)
        assert found.is_refuted, found
        assert 0.7 < found.mu_lower < 1.05
        assert found.finding == "refuted by the values of an output"


def test_the_same_outputs_in_another_order_are_not_refuted():
    outputs = np.random.default_rng(2).normal(size=1000)
    found = dp.audit.of_outputs(outputs, outputs[::-1], claim=0.1, delta=0.0, key=KEY)
    assert (found.is_refuted, found.epsilon_lower) == (False, 0.0)
    for same in (outputs, outputs.reshape(-1, 2)):
        with pytest.raises(ValueError, match="got the same outputs twice"):
            dp.audit.of_outputs(same, same.copy(), claim=0.1, delta=0.0, key=KEY)


def test_categories_are_refuted_one_hot():
    """Randomised response with one of four answers, exactly at epsilon 1; half of them are rare."""
    generator = np.random.default_rng(3)

    def answered(trials):
        honest = generator.random((2, trials)) < LEAST
        more = np.where(generator.random((2, trials)) < 0.01, 2, 0)
        return np.eye(4)[honest[0] + more[0]], np.eye(4)[~honest[1] + more[1]]

    pair = answered(4000)
    assert dp.audit.of_outputs(*pair, claim=0.7, key=KEY).is_refuted
    assert 0.7 < dp.audit.of_outputs(*pair, key=KEY).epsilon_lower < 1.0
    known, keys = {"claim": 1.0, "confidence": 0.5}, jax.random.split(KEY, 40)
    alarms = [dp.audit.of_outputs(*answered(200), **known, key=key).is_refuted for key in keys]
    assert alarms.count(True) <= 28


@pytest.mark.parametrize(("first", "second"), [(100, 100), (101, 101), (100, 60), (41, 90)])
def test_halves_are_of_rows_at_random(monkeypatch, first, second):
    """Row i is in the same half of both, and every row is in one; with and without a key."""
    module, seen = sys.modules["jaxdp.audit.run"], []
    audit = module._audit_of

    def recorded(*arguments):
        seen.append(arguments[:2])
        return audit(*arguments)

    monkeypatch.setattr(module, "_audit_of", recorded)
    for key in (KEY, KEY, None):
        dp.audit.of_outputs(np.arange(first), np.arange(second) + 0.5, key=key)
    for choosing, testing in seen:
        (a, b), (c, d) = ([set(map(int, x[:, 0])) for x in half] for half in (choosing, testing))
        assert (a | c, b | d) == (set(range(first)), set(range(second)))
        assert not (a | b) & (c | d)
        shorter = min((a, c), (b, d), key=lambda sets: len(sets[0] | sets[1]))
        assert len(shorter[1]) - len(shorter[0]) in (0, 1)
        assert sorted(a) != list(range(len(a)))
    assert np.array_equal(seen[0][0][0], seen[1][0][0])
    assert not np.array_equal(seen[0][0][0], seen[2][0][0])


@pytest.mark.parametrize(
    "terms",
    [
        {"claim": dp.PureDP(1.0)},
        {"claim": (3.0, 0.01), "confidence": 0.8},
        {"claim": dp.GDP(2.0), "delta": 0.05},
        {"claim": dp.GDP(2.0)},
        {"delta": 0.1},
    ],
)
def test_so_many_outputs_as_the_claim_needs(terms):
    """With as many as are named, outputs that tell the data apart refute it; with fewer none do."""

    def audited(count):
        return dp.audit.of_outputs(np.zeros(count), np.ones(count), key=KEY, **terms)

    with pytest.raises(ValueError, match="outputs of either data set, got 2 and 2") as no:
        audited(2)
    needed = int(re.findall(r"at least (\d+)", str(no.value))[0])
    with pytest.raises(ValueError, match=f"at least {needed} .* got {needed - 1} and"):
        audited(needed - 1)
    found = audited(needed)
    assert found.is_refuted if "claim" in terms else found.epsilon_lower > 0


def test_bad_outputs_are_refused():
    good, audited = np.arange(1000.0), dp.audit.of_outputs
    for bad, said in (
        ([1.0, np.nan] * 50, "second must hold finite numbers"),
        (["a"] * 50, "second must be an array of numbers"),
        (np.ones((9, 9, 9)), "second must be .trials,. numbers or .* got shape .9, 9, 9."),
        ([], "at least 11 outputs .* got 1,000 and 0"),
    ):
        with pytest.raises(ValueError, match=said):
            audited(good, bad, key=KEY)
    with pytest.raises(ValueError, match="one constant output"):
        audited(np.ones(100), np.ones(100), key=KEY)
    with pytest.raises(ValueError, match="more than 1e15 outputs"):
        audited(good, good + 0.5, claim=1000.0, key=KEY)


def test_numbers_of_any_size_are_compared():
    first = np.arange(500.0) * 1e305
    assert dp.audit.of_outputs(first, -first, claim=1.0, key=KEY).is_refuted


def test_the_last_bits_are_read_if_wanted():
    """0 + noise and 1 + noise in floating point, both sorted."""
    noise = np.sort(np.random.default_rng(4).laplace(size=(2, 4000)))
    pair, terms = (noise[0], noise[1] + 1.0), {"claim": dp.PureDP(1.0), "key": KEY}
    assert not dp.audit.of_outputs(*pair, **terms).is_refuted
    found = dp.audit.of_outputs(*pair, **terms, low_bits=True)
    assert found.finding.startswith("refuted by the last bits")
