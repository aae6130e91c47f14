"""Differentially private linear regression and LASSO, by the solver that fits the budget."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxdp._core import checks
from jaxdp.estimators.base import NotPrivateWarning, composed, estimator
from jaxdp.estimators.bounds import clip_to_bounds, public_bounds
from jaxdp.estimators.linear import SOLVERS, LinearModel, one_or_all, raw
from jaxdp.guarantee.drawn import Drawn
from jaxdp.solvers import moments
from jaxdp.solvers.measured import Bounded
from jaxdp.solvers.penalties import L1, L2, ElasticNet, Penalty

_base = checks.extra("sklearn.base", "learn")


class EpsilonPath(NamedTuple):
    """Coefficients (epsilons, seeds, p), intercepts (epsilons, seeds), and the cost of all fits."""

    coef: np.ndarray
    intercept: np.ndarray
    guarantee: Drawn


@estimator
class DPLinearRegression(_base.RegressorMixin, LinearModel):
    """Least squares, ridge, LASSO and elastic net with differential privacy, by one budget.

    min 1/(2n) ||y - X w - b||^2 + alpha (l1_ratio ||w||_1 + (1 - l1_ratio) ||w||^2 / 2).

    epsilon, delta: what `fit` may spend: one record replaced (`relation="replace_one"`), or one
        added or removed with n public and fixed in the mean ("add_remove"). inf: see `base`.
    feature_bounds, target_bounds: public (lower, upper), numbers or one a column. Features are
        clipped to them and to released deviations: in a fit by moments 20, else three to six. So
        are features of predictions (`feature_range_`), after moments to 20 or to three, whichever
        has the smaller squared error by a noisy number. Without target_bounds, y should be about
        centred with a deviation of about 1.
    alpha, l1_ratio: of the penalty. 0: least squares; l1_ratio 0: ridge, 1: LASSO.
    solver: "moments" releases the second moments of (x, 1, y) once, with noise of the Gaussian
        orthogonal ensemble. "coordinate_descent" is `solvers.coordinate_descent`, "greedy" the same
        with coordinates that are selected privately, for many features. "auto" takes moments where
        target_bounds are given and n mu / d^1.5 is large, d being the length of (x, 1, y) and mu
        the budget as Gaussian DP, greedy descent where n mu / p is small, and coordinate descent
        otherwise or where clip, passes, step or other noise is given. These numbers are public;
        `statement()` has them.
    clip, passes, step, noise, scaling_share, release, random_state: see `DPLasso`.

    Fitted: coef_, intercept_, solver_, plan_, n_iter_, feature_range_, guarantee_, privacy_text_.
    By moments also moments_ (see `solvers.moments`), coef_interval_ (p, 2) and intercept_interval_
    (2,), 95 % confidence intervals without a penalty that count the privacy noise, and
    coef_covariance_; None otherwise. They hold for a linear model with equal variances. They are
    infinite where the noise hides a direction of the features, and NaN where bounds clip about 1 %
    of the records or more: an `IntervalWarning` gives the reason. 8 % of mu^2 releases the share
    and the errors of both ranges. With y (n, k), one release serves all targets: coef_ is
    (k, p), and intervals have k in front.
    Source: Wang, UAI 2018; Mangold et al., ICML 2022 and AISTATS 2023.

    >>> import jaxdp as dp
    >>> from jaxdp import datasets
    >>> data = datasets.load("diabetes")
    >>> model = dp.DPLinearRegression(epsilon=1.0, delta=1e-6, feature_bounds=(-0.2, 0.2),
    ...     target_bounds=(25, 350)).fit(data.features, data.targets)
    >>> print(model.statement().splitlines()[2])
    Solver: coordinate_descent: n mu / d^1.5 is 2.52, below 60, and n mu / p 10.5, at least 4.
    """

    target_bounds: Any = None
    alpha: Any = 0.0
    l1_ratio: Any = 0.0
    solver: Any = "auto"

    def fit(self, X: Any, y: Any) -> DPLinearRegression:  # noqa: N803
        """Spend the budget on (n, p) features and targets, (n,) or (n, k), finite numbers."""
        features, targets = self._records(X, y, y_numeric=True, multi_output=True)
        penalty = _penalty_of(self.alpha, self.l1_ratio)
        checks.one_of("solver", self.solver, SOLVERS)
        targets = targets.astype(np.float64, copy=False).reshape(len(targets), -1)
        clipped, bounds, ends = targets, self._bounds(features), None
        if self.target_bounds is not None:
            names = [f"y{i}" for i in range(targets.shape[1])]
            ends = np.stack(public_bounds(self.target_bounds, names, "target_bounds"))
            clipped = clip_to_bounds(targets, ends[0], ends[1], "y", names)
        given = Bounded(features, clipped, bounds, ends, (clipped != targets).any(axis=1))
        self._fit(given, "squared", penalty, self._key(), solver=self.solver)
        return self

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """X w + b: costs nothing more."""
        return self._score(X)

    def path(
        self, alphas: Any, *, l1_ratio: Any = None, features: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Coefficients (a, p) and intercepts (a,) of many penalties, from the moments of `fit`.

        alphas: a numbers. l1_ratio: that of the estimator if None. features: numbers of those in a
        submodel, all if None. It costs nothing more: the moments are released. `ValueError` after a
        fit by another solver.
        """
        self._require_fitted()
        if self.moments_ is None:
            raise ValueError(
                f"solver must be 'moments' for a path, got {self.solver_!r}: fit with it, or fit "
                "each alpha with a part of the budget"
            )
        ratio = self.l1_ratio if l1_ratio is None else l1_ratio
        kept = np.arange(len(self._units.scale))
        if features is not None:
            kept = kept[np.asarray(features, dtype=np.int64)]
        units = self._units._replace(center=self._units.center[kept], scale=self._units.scale[kept])
        found = []
        for alpha in np.ravel(np.asarray(alphas, dtype=np.float64)).tolist():
            penalty, each = _penalty_of(alpha, ratio), []
            for target in range(self.moments_.targets):
                theta = moments.solved(self.moments_.of(target, kept), penalty, units, target)
                each.append(raw(theta, units, target))
            found.append([one_or_all(x) for x in zip(*each, strict=True)])
        weights, constants = zip(*found, strict=True)
        return np.stack(weights), np.array(constants)

    def epsilon_path(self, X: Any, y: Any, *, epsilons: Any, seeds: Any = 1) -> EpsilonPath:  # noqa: N803
        """Fits for many epsilons, each with noise of its own, to study accuracy before a release.

        epsilons: k numbers. seeds: fits of each epsilon. Other parameters are the estimator's, but
        for `random_state`. The cost is the sum of all fits: on records that are
        private, look at `guarantee`, or take public ones. A `NotPrivateWarning` gives the reason if
        it has no epsilon at `delta`. It compiles nothing after the first fit.
        """
        epsilons, parts = np.ravel(np.asarray(epsilons, dtype=np.float64)), []
        count = checks.positive_integer("seeds", seeds)
        for epsilon in epsilons.tolist():
            own = self.get_params() | {"epsilon": epsilon, "random_state": None}
            parts += [type(self)(**own).fit(X, y) for _ in range(count)]
        if not parts:
            raise ValueError("epsilons must hold at least one number, got none")
        shape = len(epsilons), count
        weights = np.stack([part.coef_ for part in parts]).reshape(*shape, -1)
        constants = np.array([part.intercept_ for part in parts]).reshape(shape)
        total = composed(part.guarantee_ for part in parts)
        if np.isfinite(epsilons).all() and not np.isfinite(total.epsilon(self.delta)):
            exact, error = float(total.exact.epsilon(0.5 * self.delta)), float(total.sampling_error)
            warnings.warn(
                f"guarantee has no epsilon at delta {self.delta:g}: all fits with exact draws have "
                f"epsilon {exact:.3g} at half of it, and the sampling error, {error:.1e}, counts "
                "(1 + e^epsilon) times. Take fewer or smaller epsilons, or a larger delta",
                NotPrivateWarning,
                stacklevel=2,
            )
        return EpsilonPath(weights, constants, total)

    def statement(self) -> str:
        """Guarantee, neighbours, solver and conditions of the last `fit`, a sentence a line."""
        self._require_fitted()
        text, _, solver = self.privacy_text_.rpartition("; solver ")
        neighbours = {
            "replace_one": "one record replaced by another; how many there are is public",
            "add_remove": "one record added or removed; how many there are is taken as public",
        }[self._fitted_relation or "replace_one"]
        return (
            f"Guarantee: {text}.\nNeighbours: {neighbours}.\nSolver: {solver}.\nConditions: bounds "
            "and parameters are public, and were not chosen by results on the records."
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        tags.target_tags.multi_output = True
        return tags


@estimator
class DPLasso(DPLinearRegression):
    """min 1/(2n) ||y - X w - b||^2 + alpha ||w||_1: `DPLinearRegression` with l1_ratio 1.

    epsilon, delta, feature_bounds, target_bounds, solver: see there. Values beyond the bounds are
        clipped, and counted by a `BoundsWarning`. (-3, 3) suits standardised columns.
    scaling_share: share of the budget (of mu^2, or of epsilon where the noise is not Gaussian) that
        releases centres and deviations of the bounded columns (`solvers.scaling`); `guarantee_` has
        it inside. Columns are measured from there, and M_j is the deviation squared. With 0 they
        are the middle and half the width of the bounds.
    clip: C in |d loss_i / d w_j| <= C sqrt(M_j / sum M), in units of y times x; public. A wrong
        one costs accuracy, never privacy.
    clip, passes, step: None chooses from public numbers, see `coordinate_descent.defaults`.
    noise: of `coordinate_descent.plan`.
    release: "lattice", or "float": noise in floating point, for research; `privacy_text_` says so.
    random_state: None for randomness of the operating system; see `estimators.base`.

    Fitted: as `DPLinearRegression`; n_iter_ counts passes. n is public, as is the number of
    features. Accuracy with defaults: benchmarks/bench_estimators.py.
    Source: Mangold et al., ICML 2022; defaults and scales are ours.
    """

    alpha: Any = 0.01
    l1_ratio: Any = dataclasses.field(default=1.0, init=False)


def _penalty_of(alpha: Any, l1_ratio: Any) -> Penalty:
    """The penalty of an elastic net, `L1` or `L2` at its ends."""
    strength = checks.nonnegative("alpha", alpha)
    ratio = checks.real("l1_ratio", l1_ratio, 0.0, 1.0)
    if jnp.ndim(strength) or jnp.ndim(ratio):
        raise ValueError("alpha and l1_ratio must be numbers")
    if ratio == 1:
        return L1(strength)
    return L2(strength) if ratio == 0 else ElasticNet(strength, ratio)
