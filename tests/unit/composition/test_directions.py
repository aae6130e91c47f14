"""Pairs whose two directions differ: both count, unless one is requested."""

import math

import numpy as np
import pytest

import jaxdp as dp

# Under P, Q: one of two answers; by hand every value below.
P, Q = [0.1, 0.9], [0.7, 0.3]
LOSSES = [math.log(p / q) for p, q in zip(P, Q, strict=True)]
BOTH = ("add_remove", "zero_out", "replace_one")
ONE = ("remove", "add")
MIXTURE = dp.GaussianMixture([0.0, 1.0], [0.9, 0.1], 1.0)


def of(relation="add_remove"):
    return dp.PrivacyLoss.from_pmf(LOSSES, P, Q, relation)


def delta(p, q, epsilon):
    return sum(max(a - math.exp(epsilon) * b, 0.0) for a, b in zip(p, q, strict=True))


def twice(x):
    return np.outer(x, x).ravel()


@pytest.mark.parametrize("epsilon", [0.0, 0.6])
def test_the_worse_direction_counts_by_default(epsilon):
    for number, p, q in ((1, P, Q), (2, twice(P), twice(Q))):
        removed, added = delta(p, q, epsilon), delta(q, p, epsilon)
        truths = dict.fromkeys(BOTH, max(removed, added)) | {"remove": removed, "add": added}
        for relation, truth in truths.items():
            found = float((number * of(relation)).delta(epsilon))
            # A contour answers two releases, with a stated error of 5e-8.
            assert truth <= found <= truth * (1 + 1e-7) + 1e-300, relation
    assert dp.PrivacyLoss.from_pmf(LOSSES, P, Q).relation == "add_remove"


@pytest.mark.parametrize("relation", BOTH)
def test_risks_are_those_of_both_directions(relation):
    """At a rate of .3 the test of Q's answer has an error of .1; the prior .7 gives .16."""
    loss = of(relation)
    assert float(loss.tradeoff(0.3)) == pytest.approx(0.1, abs=1e-9)
    assert float(dp.risk.bayes_risk(loss, 0.7)) == pytest.approx(0.16, abs=1e-9)
    fnr = float(dp.to_rdp(loss, np.linspace(1.01, 30.0, 40)).tradeoff(0.3))
    assert fnr <= 0.1 + 1e-9


QUESTIONS = {
    "tradeoff": lambda x: dp.risk.tradeoff_of_profile(x.log_delta, 0.3),
    "bayes_risk": lambda x: dp.risk.bayes_risk(x, 0.7),
    "advantage": dp.risk.advantage,
    "tpr_at_fpr": lambda x: dp.risk.tpr_at_fpr(x, 0.1),
    "to_rdp": lambda x: dp.to_rdp(x, [2.0]),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_one_direction_is_refused(question):
    ask = QUESTIONS[question]
    reason = "an RDP bounds" if question == "to_rdp" else "the risk of a test"
    if question != "advantage":  # delta(0), which is the same in both directions
        for relation in ONE:
            with pytest.raises(ValueError, match=f"got '{relation}': {reason}"):
                ask(of(relation))
        with pytest.raises(
            ValueError, match=f"GaussianMixture is a pair in one direction, and {reason}"
        ):
            ask(MIXTURE)
    ask(dp.privacy_loss(MIXTURE))
    ask(dp.RandomisedResponse(1.0, 3))


def test_no_picture_of_one_direction():
    pytest.importorskip("matplotlib")
    for release in (of("add"), MIXTURE):
        with pytest.raises(ValueError, match="the risk of a test"):
            dp.plot.tradeoff({"one": release})


def test_one_direction_has_no_test():
    for relation in ONE:
        with pytest.raises(ValueError, match="the risk of a test"):
            of(relation).tradeoff(0.3)
        with pytest.raises(ValueError, match="relation must be"):
            dp.gdp_with_regret(of(relation))


def test_every_pair_has_both_directions_by_default():
    once, default = (dp.privacy_loss(MIXTURE, relation) for relation in ("add_remove", None))
    assert default.relation == "add_remove"
    assert float(default.log_delta(0.3)) == float(once.log_delta(0.3))
    for symmetric in (dp.RandomisedResponse(1.0, 3), dp.GaussianMixture([1.0], [1.0], 1.0, [1.0])):
        assert dp.privacy_loss(symmetric).relation is None
    one = [float(dp.privacy_loss(MIXTURE, relation).delta(0.01)) for relation in ONE]
    assert float(default.delta(0.01)) == max(one) > min(one)


def test_a_one_sided_noise():
    """An exponential law on a grid against itself moved has no finite epsilon in one direction."""
    mass = np.exp(-np.arange(400.0)) * -math.expm1(-1.0)
    mass /= mass.sum()
    p, q = mass[1:], mass[:-1]
    for first, second in ((p, q), (q, p)):
        loss = dp.PrivacyLoss.from_pmf(np.log(first / second), first, second)
        assert float(loss.delta(1.6)) == pytest.approx(mass[0], rel=1e-9)


def test_the_masses_are_the_law():
    """A loss that is given a little off, either way, raises no delta below the masses'."""
    for by in (-5e-10, 5e-10):
        loss = dp.PrivacyLoss.from_pmf(np.add(LOSSES, by), P, Q)
        for epsilon in (0.0, 0.6, 1.9):
            truth = max(delta(P, Q, epsilon), delta(Q, P, epsilon))
            assert truth * (1 - 1e-16) <= float(loss.delta(epsilon)) <= truth * (1 + 1e-12)


@pytest.mark.parametrize("place", [0, 1])
def test_a_wrong_loss_is_named(place):
    wrong = list(LOSSES)
    wrong[place] += 0.1
    with pytest.raises(ValueError, match=rf"losses\[{place}\] must be log\(masses_p\[{place}\]"):
        dp.PrivacyLoss.from_pmf(wrong, P, Q)
