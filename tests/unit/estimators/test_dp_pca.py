"""DPPCA: what it spends, what it recovers."""

import numpy as np
import pytest
from sklearn.decomposition import PCA

import jaxdp as dp
from jaxdp.estimators.base import BoundsWarning, NotPrivateWarning
from jaxdp.solvers import lattice

pytestmark = pytest.mark.filterwarnings("ignore::jaxdp.estimators.FixedRandomStateWarning")

KNOWN = {"epsilon": 1.0, "delta": 1e-6, "feature_bounds": (-1.0, 1.0)}


# One number of records, so that one program fits them all.
def flat_cloud(records=50, dimension=6, rank=2, seed=0):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(dimension, rank)))[0]
    return np.clip(0.2 + 0.2 * rng.normal(size=(records, rank)) @ basis.T, -1, 1), basis


def test_it_spends_its_budget_exactly():
    features, _ = flat_cloud()
    for share in (0.0, 0.3):
        fitted = dp.DPPCA(2, **KNOWN, mean_share=share).fit(features)
        assert 0.999e-6 < fitted.guarantee_.delta(1.0) <= 1e-6
        # Six columns: the upper triangle, and their means.
        stated = lattice.sampling_error(21 + (6 if share else 0), "lattice")
        np.testing.assert_allclose(fitted.guarantee_.sampling_error, stated, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::jaxdp.estimators.LittleBudgetWarning")
def test_mean_and_moment_cost_what_privacy_says(monkeypatch):
    """The worst two records, the noise turned off: shifts over scales compose to mu."""
    from jaxdp.estimators import pca
    from jaxdp.solvers import covariance

    seen = {}
    mean = pca._private_mean

    def no_mean_noise(rows, plan, mu, key):
        seen["mu"], seen["plan"] = mu, plan
        return mean(rows, plan, 1e30, key)

    monkeypatch.setattr(pca, "_private_mean", no_mean_noise)
    monkeypatch.setattr(covariance, "noisy", lambda moment, plan, key: moment)
    fits = []
    for first in ([1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]):
        fitted = dp.DPPCA(2, **KNOWN, row_bound=1.0).fit([first, [0.5, 0.5]])
        moment = fitted.components_.T @ np.diag(fitted.explained_variance_) @ fitted.components_
        fits.append((fitted.mean_, moment + np.outer(fitted.mean_, fitted.mean_)))
    made = seen["plan"]
    moved = np.linalg.norm(fits[0][1] - fits[1][1]) / float(made.scales[1])
    np.testing.assert_allclose(moved, float(made.ratio), rtol=1e-10)
    moved = np.linalg.norm(fits[0][0] - fits[2][0])
    np.testing.assert_allclose(moved, 2 * 1.0 / 2, rtol=1e-12)  # what its noise is scaled to
    total = np.hypot(seen["mu"], float(made.ratio))
    np.testing.assert_allclose(total, float(fitted.guarantee_.exact.mu), rtol=1e-12)


def test_a_wide_budget_gives_scikit_learns_components():
    features, _ = flat_cloud()
    with pytest.warns(NotPrivateWarning):
        ours = dp.DPPCA(2, **(KNOWN | {"epsilon": np.inf}), random_state=0).fit(features)
    theirs = PCA(2).fit(features)
    np.testing.assert_allclose(
        np.abs(ours.components_ @ theirs.components_.T), np.eye(2), atol=1e-3
    )
    np.testing.assert_allclose(ours.mean_, theirs.mean_, atol=1e-4)
    np.testing.assert_allclose(
        ours.explained_variance_, theirs.explained_variance_ * 49 / 50, rtol=1e-3
    )
    scores = ours.transform(features)
    np.testing.assert_allclose(ours.inverse_transform(scores), features, atol=1e-3)
    assert list(ours.get_feature_names_out()) == ["dppca0", "dppca1"]


def test_bad_input():
    features, _ = flat_cloud()
    for bad in (
        {"delta": 0.0},
        {"feature_bounds": None},
        {"feature_bounds": (1.0, -1.0)},
        {"feature_bounds": (np.zeros(3), np.ones(3))},
        {"row_bound": -1.0},
        {"mean_share": 1.0},
        {"mean_share": -0.1},
        {"relation": "both"},
        {"n_components": 7},
        {"n_components": 0},
    ):
        with pytest.raises(ValueError, match=next(iter(bad))):
            dp.DPPCA(**({"n_components": 2} | KNOWN | bad)).fit(features)
    with pytest.warns(BoundsWarning, match="1 of 300 values of X in 1 of 6 columns"):
        dp.DPPCA(2, **KNOWN).fit(np.vstack([features[:-1], [[9.0, 0, 0, 0, 0, 0]]]))
