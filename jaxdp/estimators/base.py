"""Rules that all scikit-learn estimators of the package share: input, refusals, reports.

* `epsilon`, `delta` and public bounds have no defaults. A bound that is computed from the records
  leaks them; it is the caller's word that a bound is public.
* Values beyond the bounds are clipped, and a `BoundsWarning` counts them. The count is not private
and is not stored: a fitted estimator holds released and public numbers only.
* `sample_weight` and `class_weight` raise `ValueError`: a weight scales the influence of a record.
* `guarantee_` is the cost of `fit`: `delta(epsilon)` and `epsilon(delta)` include the sampling
error, `guarantee_.exact` does not. It assumes that nobody knows the noise. A fixed integer
`random_state` is for tests: anyone who guesses it can subtract the noise. `fit` warns of it
(`FixedRandomStateWarning`), `privacy_text_` mentions it, and it is neither printed nor pickled
after `fit` (`get_params`, `clone` and the text of a pipeline show it, as scikit-learn demands): a
copy of a fitted model has a `random_state` of None.
* `guarantee_` and `privacy_text_` describe the last `fit`, whatever the parameters are now.
None uses the operating system's bits; so does a `RandomState`, because copies of it would share
their noise.
* `epsilon=inf` fits without noise, for comparison: `fit` warns (`NotPrivateWarning`), and
`guarantee_` gives no guarantee. Values are clipped all the same.
* Noise is drawn from a lattice, as in `dp.release`. `release="float"` draws floating-point noise,
for research: `privacy_text_` mentions it, and `guarantee_` gives no guarantee.
* No message prints a value of a record.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar, dataclass_transform

import numpy as np

from jaxdp._core import checks
from jaxdp._core.precision import opened, require_outside_traces
from jaxdp._core.random_key import ONE_KEY, secure_key, seeded_key
from jaxdp._core.types import Key
from jaxdp.composition.privacy_loss import PrivacyLoss, privacy_loss
from jaxdp.estimators.parts import private_fits
from jaxdp.guarantee.base import Budget
from jaxdp.guarantee.drawn import Drawn
from jaxdp.guarantee.gaussian_dp import GDP

_base = checks.extra("sklearn.base", "learn")
_validation = checks.extra("sklearn.utils.validation", "learn")


class BoundsWarning(UserWarning):
    """Values were clipped to public bounds (the count is not private), or bounds are ambiguous."""


class FixedRandomStateWarning(UserWarning):
    """`random_state` is a fixed integer: anyone who guesses it can subtract the noise."""


class NotPrivateWarning(UserWarning):
    """`epsilon` is infinite, so that nothing is private."""


class LittleBudgetWarning(UserWarning):
    """The noise for the budget exceeds any signal, as the number of records foretells."""


_MISSING = (
    "X contains NaN: put a public number in the place of missing values, in a pipeline with "
    'SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True); a mean or a '
    "median of the records would cost privacy"
)
# Updates of greedy descent below which `fit` warns. chosen: sparse models have ten coefficients
_FEW = 10
# What is printed in place of a fixed integer random_state.
HIDDEN = "hidden"
# Sentence of a fit whose noise comes from a fixed integer.
SEEDED = "; no guarantee against anyone who guesses random_state, a fixed integer"
# Said of y; no value of a record is printed.
_NOT_NUMBERS = "y must be numbers, and some are not"
# Arguments of other libraries, and why no estimator has them.
_REFUSED = {
    "sample_weight": "a weight scales the influence of one record, and the weights themselves leak",
    "class_weight": "a weight multiplies what one record of the class can change, and the noise",
    "data_norm": "each column has its own public bounds here: give feature_bounds, (lower, upper)",
    "bounds": "it is called feature_bounds, (lower, upper) of the columns",
}
# Columns that a message names at most. chosen: a line of them
_NAMED = 5
# epsilon and delta whose noise is below the rounding of float64. chosen: mu is 1e15, the most
_NO_NOISE = (np.inf, 0.5)


T = TypeVar("T")


@dataclass_transform(kw_only_default=True, eq_default=False)
def estimator(cls: type[T]) -> type[T]:
    """A class with annotations as parameters, kept as they are given; `fit` opens float64."""
    if "fit" in vars(cls):
        setattr(cls, "fit", _refusing(opened()(vars(cls)["fit"])))  # noqa: B010
    made = dataclasses.dataclass(kw_only=True, eq=False, repr=False)(cls)
    setattr(made, "__init__", _refusing(made.__init__))  # noqa: B010
    return made


def _refusing(function: Any) -> Any:
    """The function, which names the reason why it does not take a known argument of others."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in _REFUSED.keys() & kwargs.keys():
            # None is the default of other libraries, and of what calls them.
            if kwargs[name] is None and name == "sample_weight":
                del kwargs[name]
                continue
            raise ValueError(f"{name} is not supported: {_REFUSED[name]}")
        return function(*args, **kwargs)

    return call


@estimator
class DPEstimator(_base.BaseEstimator):
    """Parameters `epsilon`, `delta`, `random_state` of every private estimator, checked in `fit`.

    See the module for the rules that they share.
    """

    # Whether `fit` looks at the values of the records.
    costs_privacy = True

    epsilon: Any
    delta: Any
    random_state: Any = None
    n_features_in_: int = dataclasses.field(init=False)
    guarantee_: Drawn = dataclasses.field(init=False)
    # Description of `guarantee_` in words, with its assumptions.
    privacy_text_: str = dataclasses.field(init=False)
    # As it was at the last `fit`: parameters may change after it.
    _fitted_relation: str | None = dataclasses.field(init=False)

    def _budget(self) -> Budget:
        """epsilon in (0, inf], delta in [0, 1), each one concrete number."""
        for name, value, inside in (
            ("epsilon", self.epsilon, lambda x: x > 0),
            ("delta", self.delta, lambda x: 0 <= x < 1),
        ):
            real = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not (real and inside(value)):
                interval = "(0, inf]" if name == "epsilon" else "[0, 1)"
                raise ValueError(f"{name} must lie in {interval}, got {value!r}")
        if not self._is_private():
            warnings.warn(
                "epsilon is infinite: the fit has no noise and no privacy, for comparison only",
                NotPrivateWarning,
                stacklevel=4,
            )
            return Budget(*_NO_NOISE)
        return Budget(float(self.epsilon), float(self.delta))

    def _is_private(self) -> bool:
        return self.epsilon != np.inf

    def _finish(self, guarantee: Drawn, note: str = "") -> None:
        """Keep the guarantee of a fit, none without noise, in words and how it was fitted."""
        kind = type(guarantee.exact).__name__
        text = f"delta {self.delta:g} at epsilon {self.epsilon:g}; at other epsilons see {kind}"
        if getattr(self, "release", "lattice") == "float":
            leaks = "for research: floating-point noise leaks through its last bits"
            text = f"{leaks}; if exact, {text}"
        if self._is_seeded():
            text += SEEDED
        if not self._is_private():
            guarantee = Drawn(GDP(np.inf))
            text = "no guarantee: epsilon is infinite, and the fit has no noise"
        self.guarantee_ = guarantee
        self.privacy_text_ = f"{text}; {note}" if note else text
        self._fitted_relation = getattr(self, "relation", None)

    def _is_seeded(self) -> bool:
        return isinstance(self.random_state, int | np.integer)

    def _key(self) -> Key:
        """256 random bits of the operating system, or the key of an integer `random_state`."""
        if isinstance(self.random_state, int | np.integer):
            warnings.warn(
                "random_state is a fixed integer: anyone who guesses it can subtract the noise, "
                "fits that share it share their noise, and guarantee_ does not hold then; use it "
                "in tests, and None for records",
                FixedRandomStateWarning,
                stacklevel=4,
            )
            return seeded_key(int(self.random_state))
        if isinstance(self.random_state, np.random.Generator | np.random.BitGenerator):
            raise ValueError(
                "random_state must be None, for noise of the operating system, or an integer in "
                "tests, got a generator of NumPy, which draws no private noise"
            )
        # A generator is not used: clones copy its state and would draw the same noise, and pickles
        # would reveal the noise.
        checks.extra("sklearn.utils", "learn").check_random_state(self.random_state)
        return secure_key()

    def __getstate__(self) -> Any:
        state = super().__getstate__()
        if "guarantee_" in state:
            return state | {"random_state": None}
        return state

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:  # noqa: N803
        return _base.BaseEstimator.__repr__(self._shown(), N_CHAR_MAX)

    def _get_params_html(self, *arguments: Any, **options: Any) -> Any:
        return _base.BaseEstimator._get_params_html(self._shown(), *arguments, **options)

    def _shown(self) -> DPEstimator:
        """Copy to print in place of this one: `random_state` hidden, if it is a fixed integer."""
        shown = object.__new__(type(self))
        shown.__dict__.update(self.__dict__)
        if self._is_seeded():
            shown.random_state = HIDDEN
        return shown

    def _features(self, features: Any, *, reset: bool) -> Any:
        """Finite numbers of shape (n, p), as `fit` saw them where not `reset`."""
        if reset:
            require_outside_traces("fit", ONE_KEY)
        with _values_unsaid(features):
            return _validation.validate_data(self, features, reset=reset, **self._kinds())

    def _records(self, features: Any, targets: Any, **checks: Any) -> tuple[Any, np.ndarray]:
        """Features and targets of `fit`; `checks` are passed to `validate_data`."""
        require_outside_traces("fit", ONE_KEY)
        with _values_unsaid(features):
            found = _validation.validate_data(self, features, targets, **self._kinds(), **checks)
        if "y_numeric" in checks and found[1].dtype.kind not in "biuf":
            raise ValueError(_NOT_NUMBERS)
        return found

    def _kinds(self) -> dict[str, Any]:
        """Types of features that are kept as they are; a linear model takes more of them."""
        return {"dtype": np.float64}

    def _columns(self) -> list[Any]:
        """Names of the features, or their numbers where `fit` saw no names."""
        return list(getattr(self, "feature_names_in_", range(self.n_features_in_)))

    def _require_fitted(self) -> None:
        _validation.check_is_fitted(self)


@contextlib.contextmanager
def _values_unsaid(features: Any) -> Iterator[None]:
    """Lets scikit-learn refuse records without printing a value of one, and names the column."""
    try:
        yield
    except (TypeError, ValueError) as error:
        if "Input X contains NaN" in str(error):
            raise ValueError(_MISSING) from None
        # For arrays, scikit-learn demands its own TypeError.
        is_table = isinstance(error, TypeError) and hasattr(features, "columns")
        if not is_table and "could not convert" not in str(error):
            raise
        found = without_numbers(features)
        if found:
            what = "column" if len(found) == 1 else "columns"
            raise ValueError(
                f"X must contain numbers only, got others in {what} {listed(found)}: drop these, "
                "or encode them with sklearn.preprocessing.OneHotEncoder and public categories"
            ) from None
        if is_table:
            raise
        raise ValueError(_NOT_NUMBERS) from None


def label(column: Any) -> str:
    """A column's name in quotes, or its number."""
    return f"'{column}'" if isinstance(column, str) else f"{column}"


def listed(columns: Sequence[Any]) -> str:
    """Labels of the first few columns, with a comma between."""
    more = ", ..." if len(columns) > _NAMED else ""
    return ", ".join(label(column) for column in columns[:_NAMED]) + more


def without_numbers(features: Any) -> list[Any]:
    """Columns of a table, by name or number, with a value that is not a number."""
    table = np.asarray(features, dtype=object)
    if table.ndim != 2:
        return []
    names = getattr(features, "columns", range(table.shape[1]))
    columns = zip(names, table.T, strict=True)
    return [name for name, values in columns if not _is_numeric(values)]


def _is_numeric(values: np.ndarray) -> bool:
    try:
        values.astype(np.float64)
    except (TypeError, ValueError):
        return False
    return True


def composed(spent: Iterable[Drawn]) -> Drawn:
    """Total cost of releases with these guarantees; GDPs stay a GDP, kinds compose exactly."""
    parts = list(spent)
    unbounded = [p for p in parts if isinstance(p.exact, GDP) and bool(np.isinf(p.exact.mu))]
    if unbounded:
        return unbounded[0]
    kinds = [part.exact for part in parts]
    if len(set(map(type, kinds))) > 1:
        losses = (x if isinstance(x, PrivacyLoss) else privacy_loss(x) for x in kinds)
        parts = [Drawn(x, p.sampling_error) for x, p in zip(losses, parts, strict=True)]
    return functools.reduce(operator.add, parts)


def total_privacy(*fitted: Any) -> Drawn:
    """Total cost of fitted estimators that saw the same records, their parts added up.

    Args:
        fitted: private estimators of this package; pipelines and column transformers of them.

    Returns:
        A `Drawn`, the composition of all private fits. Each counts as if it had seen every record.

    Anything else raises `ValueError` with the reason: a search over parameters chooses by scores
    without noise, an ensemble of scikit-learn may repeat records, and its scalers and models have
    no noise. Voting and one-vs-rest fit each part once on all records: pass
    `*ensemble.estimators_`. Steps that learn nothing cost nothing: `PublicScaler`, encoders with
    given categories, a `SimpleImputer` of a constant that keeps empty features, transformers that
    need no fit (your word is taken for a `FunctionTransformer`). Labels that `classes` does not
    name are assumed to be public. Parameters of private estimators may change after `fit`, those of
    other steps must not.

    >>> import jaxdp as dp
    >>> from jaxdp.estimators import DPStandardScaler, total_privacy
    >>> known = {"epsilon": 1.0, "delta": 1e-6, "feature_bounds": (0.0, 1.0)}
    >>> scalers = [DPStandardScaler(**known).fit([[0.5], [0.7]]) for _ in range(2)]
    >>> print(f"{float(total_privacy(*scalers).epsilon(1e-6)):.4f}")
    1.4547
    """
    parts = [fit.guarantee_ for estimator in fitted for fit in private_fits(estimator)]
    if not parts:
        raise ValueError("fitted must hold an estimator with guarantee_: fit it first")
    return composed(parts)


def warn_of_little(rate: float) -> None:
    """Warn if a signal over the noise, from public numbers alone, is below 1."""
    if rate < 1.0:
        warnings.warn(
            f"nothing can be learnt: the noise for this budget is {1.0 / rate:.2g} times as large "
            "as any signal. Take more records, fewer columns or a larger epsilon",
            LittleBudgetWarning,
            stacklevel=5,
        )


def warn_of_few(updates: int, rate: float) -> None:
    """Warn, from public numbers alone, if greedy descent can find few coefficients or none."""
    warn_of_little(rate)
    if rate >= 1.0 and updates < _FEW:
        warnings.warn(
            f"at most {updates} coefficients can be found with this budget: a model of more, or of "
            "weaker ones, is not learnt. Take more records, fewer columns or a larger epsilon",
            LittleBudgetWarning,
            stacklevel=5,
        )
