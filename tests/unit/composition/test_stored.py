"""Losses made from masses, written and read: no bit is lost, missing mass is infinite."""

import json
import math
from fractions import Fraction

import jax
import mpmath as mp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._core.files import Format

FORM = Format("jaxdp-privacy-loss")


def released(noise, shift=1.0, *sampled):
    return dp.privacy_loss(dp.Mechanism(noise, shift, *sampled))


PLAIN = (
    dp.Gaussian([0.1, 1 / 3, np.inf]), dp.Laplace(2.0), dp.TruncatedLaplace(1.0, 3.0),
    dp.Staircase(1.0, 1.0, 0.4), dp.FlippedHuber(2.0, 1.0), dp.OffsetGaussian(1.0, 2.0),
    dp.Subbotin(1.0, 1.5), dp.DiscreteGaussian(3.0), dp.DiscreteLaplace(3.0),
    dp.Histogram(0.5, (1, 2, 1)), dp.DiscreteHistogram((1, 2, 1)),
)  # fmt: skip
SAMPLED = (dp.Gaussian(1.0), dp.Laplace(1.0), dp.TruncatedLaplace(1.0, 9.0), dp.Subbotin(1.0, 3.0))
KNOWN = (dp.PureDP(0.1), dp.ApproxDP(0.1, 1e-9), dp.GDP(1e-300), dp.ExponentialMechanism(0.3))
LOSSES = {
    "plain": sum(released(noise) for noise in PLAIN),
    "known": 10**9 * sum(dp.privacy_loss(known) for known in KNOWN),
    "sampled": sum(released(noise, 1.0, 0.01, "add_remove") for noise in SAMPLED),
    "replaced": released(dp.Gaussian(1.0), [1.0, 2.0], 0.01, "replace_one")
    + released(dp.Laplace(1.0), 1.0, 0.01, "replace_one"),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_what_is_written_is_read(kind, tmp_path):
    loss, path = LOSSES[kind], tmp_path / "loss.json"
    loss.save(path)
    loss.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["loss.json"]
    again = dp.PrivacyLoss.load(path)
    assert jax.tree.structure(again) == jax.tree.structure(loss)
    jax.tree.map(np.testing.assert_array_equal, again, loss)
    assert again.to_json() == loss.to_json()


def test_it_says_what_the_loss_said():
    loss = released(dp.Gaussian(1.5), [1.0, 2.0]).sum() + dp.GDP(0.3)
    again = dp.PrivacyLoss.from_json(loss.to_json())
    assert again.log_delta(1.0) == loss.log_delta(1.0)


def test_changed_text_is_refused():
    text = LOSSES["known"].to_json()
    body = json.loads(text)
    changed = [text[:-4], "", "[]", text.replace('"version": 1', '"version": 2')]
    changed += [text.replace("0x1.d", "0x1.c"), dp.Filter(dp.GDP(0.1)).to_json()]
    changed += [json.dumps({**body, "relation": "remove"}), json.dumps({**body, "digest": "0"})]
    for bad in changed:
        assert bad != text
        with pytest.raises(ValueError, match=r"text|format|version|digest"):
            dp.PrivacyLoss.from_json(bad)


def test_a_traced_loss_has_no_text():
    with pytest.raises(ValueError, match="concrete"):
        jax.jit(lambda s: released(dp.Gaussian(s)).to_json())(1.0)


NUMBERS = (1, 7, 1000, 10**6)
# A few ulps of 1, what was dropped once, and more.
LACKS = (1.2e-16, 2.2e-16, 4e-16, 8.9e-16, 1.1e-15, 3e-13, 1e-9)


def law(lacks_p, lacks_q=0.0):
    """Losses log(1/3) and log(3), but for what is missing."""
    p, q = [0.25, 0.75 - lacks_p], [0.75, 0.25 - lacks_q]
    return [math.log(a / b) for a, b in zip(p, q, strict=True)], p, q


def log_of_one(lacking, number):
    """log of the probability that one of so many losses is infinite, to 40 digits."""
    with mp.workdps(40):
        share = mp.mpf(lacking.numerator) / lacking.denominator
        return mp.log(-mp.expm1(number * mp.log1p(-share)))


@pytest.mark.parametrize("lacks", LACKS)
def test_missing_mass_counts_in_every_release(lacks):
    losses, p, q = law(lacks)
    lacking = 1 - sum(map(Fraction, p))
    assert lacking > 0
    each = dp.PrivacyLoss.from_pmf(losses, p, q, "remove")
    for number in NUMBERS:
        # Beyond all finite losses only infinite ones are left.
        found = float((number * each).log_delta(1.2 * number))
        truth = log_of_one(lacking, number)
        assert truth <= mp.mpf(found) <= truth + 1e-13 * (1 + abs(truth))


def test_what_rounding_explains_is_none():
    """Masses of a law that is pure, as doubles that miss 1 by an ulp of the smallest."""
    third = float(np.float64(1) / 3)
    for p in ([third] * 3, [0.1] * 10, [0.25, 0.75]):
        losses = np.zeros(len(p))
        assert abs(1 - sum(map(Fraction, p))) <= Fraction(2) ** -53
        assert float((1000 * dp.PrivacyLoss.from_pmf(losses, p, p)).log_delta(1.0)) == -math.inf


def test_the_exchanged_pair_has_what_q_lacks():
    losses, p, q = law(0.0, 8.9e-16)
    each = dp.PrivacyLoss.from_pmf(losses, p, q, "remove")
    lacking = 1 - sum(map(Fraction, q))
    assert float((1000 * each).log_delta(1200.0)) == -math.inf
    exchanged, both = (dp.PrivacyLoss.from_pmf(losses, p, q, x) for x in ("add", "add_remove"))
    for number in NUMBERS:
        found, worse = (float((number * x).log_delta(1.2 * number)) for x in (exchanged, both))
        assert found == worse
        found = mp.mpf(found)
        truth = log_of_one(lacking, number)
        assert truth <= found <= truth + 1e-13 * (1 + abs(truth))
