"""Losses that are written and read: no bit is lost, and changed text is refused."""

import json

import jax
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
