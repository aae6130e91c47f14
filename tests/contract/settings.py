"""Known questions of every part of the package, as bits: `test_settings` compares them."""

import json
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import jaxdp as dp

TRAINING: dict[str, Any] = {"sampling_prob": 0.01, "steps": 200}
SIZES: dict[str, Any] = {"dataset_size": 1000, "batch_size": 10, "epochs": 1}
NOISES = {
    "gaussian": lambda: dp.Gaussian(2.1),
    "laplace": lambda: dp.Laplace([0.7, 2.1]),
    "flipped huber": lambda: dp.FlippedHuber(1.1, 2.3),
    "offset gaussian": lambda: dp.OffsetGaussian(1.1, 2.3),
    "subbotin": lambda: dp.Subbotin(1.3, 1.7),
    "truncated laplace": lambda: dp.TruncatedLaplace(1.1, 9.7),
    "staircase": lambda: dp.Staircase(1.1, 0.9, 0.3),
    "discrete laplace": lambda: dp.DiscreteLaplace(2.1),
    "discrete gaussian": lambda: dp.DiscreteGaussian(2.1),
}


def _loss(noise: Any = None, *sampled: Any) -> Any:
    noise = dp.Gaussian(2.1) if noise is None else noise
    return dp.privacy_loss(dp.Mechanism(noise, 1.1 if not noise.on_integers else 1.0, *sampled))


def _of_noise(noise: Any) -> Any:
    shift = 1.0 if noise.on_integers else 0.9
    profile = noise.log_delta(shift, 0.3), noise.delta(shift, [0.1, 1.3])
    moments = noise.variance(), noise.mean_absolute(), noise.quantile(0.9)
    return profile, moments, noise.renyi(shift, 2.5), noise.pure_epsilon(shift), noise.zcdp(shift)


def _settled(charged: Any) -> Any:
    charged.spend(dp.GDP(0.2))
    return charged.to_json()


def _fitted() -> Any:
    """Parameters of models with a fixed key."""
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, (60, 2))
    known = {"epsilon": 1.0, "delta": 1e-5, "random_state": 3, "feature_bounds": (-1, 1)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pca = dp.DPPCA(1, **known).fit(features)
        bayes = dp.DPNaiveBayes(**known, classes=[0, 1]).fit(features, np.arange(60) % 2)
        lasso = dp.DPLasso(**known, target_bounds=(-1, 1), passes=1).fit(features, features[:, 0])
    problem = dp.solvers.glm(features, features[:, 0], loss="squared", penalty=dp.solvers.L2(0.5))
    found = pca.components_, bayes.predict_log_proba(features[:2]), lasso.coef_
    return *found, dp.solvers.coordinate_smoothness(problem).values


QUESTIONS: dict[str, Callable[[], Any]] = {
    **{name: lambda make=make: _of_noise(make()) for name, make in NOISES.items()},
    "sampled release": lambda: _loss(None, 0.1, "add_remove").epsilon(1e-6),
    "epsilon": lambda: dp.dpsgd.epsilon(1.1, 1e-5, **TRAINING),
    "delta": lambda: dp.dpsgd.delta(1.1, [0.5, 1.5], **TRAINING),
    "noise multiplier": lambda: dp.dpsgd.noise_multiplier(1.0, 1e-5, **TRAINING),
    "steps": lambda: dp.dpsgd.steps(1.1, 1.0, 1e-5, sampling_prob=0.01),
    "curve": lambda: dp.dpsgd.curve(1.1, 1e-5, every=100, **TRAINING),
    "statement": lambda: dp.dpsgd.statement(1.1, 1e-5, **SIZES),
    "group": lambda: dp.dpsgd.epsilon(1.0, 1e-6, group_size=2, **TRAINING),
    "replace one": lambda: dp.dpsgd.epsilon(1.0, 1e-6, relation="replace_one", **TRAINING),
    "many": lambda: dp.dpsgd.epsilon(np.linspace(0.7, 4.0, 40), 1e-6, **TRAINING),
    "fixed batches": lambda: dp.dpsgd.epsilon(1.1, sampling="without_replacement", **SIZES),
    "truncated": lambda: dp.dpsgd.epsilon(1.1, sampling="truncated", batch_size_limit=15, **SIZES),
    "allocation": lambda: dp.dpsgd.epsilon(1.1, sampling="random_allocation", **SIZES),
    "contour": lambda: (1000 * _loss(dp.Laplace(100.0))).epsilon(1e-6),
    "three kinds": lambda: (10 * _loss(dp.Laplace(9.0)) + _loss() + dp.PureDP(0.1)).delta(1.0),
    "lattice": lambda: (20 * _loss(dp.DiscreteGaussian(20.0))).epsilon(1e-6),
    "sampled laplace": lambda: (50 * _loss(dp.Laplace(2.0), 0.01, "add_remove")).epsilon(1e-6),
    "bounds": lambda: (7 * _loss()).bounds(0.7, points=4096),
    "tradeoff": lambda: _loss().tradeoff([0.01, 0.2]),
    "renyi": lambda: (5 * _loss()).renyi([1.0, 3.5]),
    "text": lambda: (5 * _loss(dp.Laplace(2.1))).to_json(),
    "whole counts": lambda: (
        (np.int32(20) * _loss()).epsilon(np.float32(1e-3)),
        _loss().renyi(np.arange(2, 4)),
    ),
    "guarantees": lambda: (
        dp.GDP(0.7).epsilon(1e-6),
        dp.ZCDP(0.0, 0.3).epsilon(1e-6),
        dp.to_gdp(dp.PureDP(0.4)).mu,
        (3 * dp.RDP([2.0, 4.0], [0.1, 0.3])).epsilon(1e-6),
        dp.largest_gdp((1.0, 1e-6)).mu,
    ),
    "risk": lambda: (
        dp.risk.advantage(dp.GDP(0.7)),
        dp.risk.bayes_risk(dp.GDP(0.7), 0.3),
        dp.risk.tpr_at_fpr(3 * _loss(), 0.01),
    ),
    "calibrate": lambda: dp.calibrate(
        lambda scale: dp.Mechanism(dp.Laplace(scale), 1.0), dp.Budget(1.0, 1e-6)
    ),
    "allocate": lambda: dp.allocate("gaussian", [1.0, 2.0, 0.3], (1.0, 1e-6)),
    "compare": lambda: str(dp.compare((1.0, 1e-6), 1.0, families=("gaussian",))),
    "filter": lambda: _settled(dp.Filter((1.0, 1e-6))),
    "response": lambda: dp.RandomisedResponse(0.8, 3).log_delta(0.2),
    "models": lambda: _fitted(),
    "samples": lambda: [make().sample(jax.random.key(0), (2,)) for make in NOISES.values()],
    "release": lambda: (
        dp.release(dp.Mechanism(dp.Gaussian(1.1), 0.1), [1.1, 2.3], jax.random.key(0)).value,
        dp.sampling.batch(dp.sampling.Poisson(0.1), jax.random.key(0), 100, 16),
    ),
}


def bits(answer: Any) -> Any:
    """The types and bits of an answer's numbers; `TypeError` for arrays of JAX in answers."""
    if isinstance(answer, tuple | list):
        return [bits(x) for x in answer]
    if isinstance(answer, str | int | None):
        return answer
    if isinstance(answer, np.ndarray | np.generic):
        return [str(answer.dtype), list(answer.shape), answer.tobytes().hex()]
    if isinstance(answer, jax.Array):
        raise TypeError(f"an array of JAX where all is known: {answer!r}")
    return [bits(np.asarray(leaf)) for leaf in jax.tree.leaves(answer)]


def answers() -> dict[str, Any]:
    """Name and bits of every answer."""
    return {name: bits(question()) for name, question in QUESTIONS.items()}


if __name__ == "__main__":
    print(json.dumps(answers()))
