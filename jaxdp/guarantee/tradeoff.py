"""The trade-off function of a delta profile.

With f(fpr) the least false-negative rate of any test, f(x) = sup over real epsilon of
1 - delta(epsilon) - e^epsilon x.
Source: Dong, Roth & Su, JRSS-B 84, 2022, where it is the convex conjugate of f.
"""

from __future__ import annotations

from collections.abc import Callable

import jax

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64, jitted
from jaxdp._core.namespace import shape_of, xp
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.search import zoom
from jaxdp.guarantee.base import require_both_directions
from jaxdp.guarantee.supporting_lines import LARGEST_EPSILON, support

# Points of each round of a search. chosen: the bound has one hump, which is seen between them
POINTS = 33
# Rounds. derived: 1,400 nats times 16^-12 is 5e-12
ZOOMS = 12


@in_float64(side=-1.0)
def tradeoff_of_profile(log_delta: Callable[[Reals], Reals], fpr: ArrayLike) -> Reals:
    """A lower bound on the false-negative rate of any test, from the delta of every epsilon.

    Args:
        log_delta: maps an array of epsilons (nats) to log delta, elementwise; its batch broadcasts
            with `fpr`. One direction ("add", "remove") alone raises `ValueError`.
        fpr: false-positive rates in [0, 1].

    Returns:
        Lower bounds on the false-negative rates.

    The largest value found of 1 - delta(e) - e^e fpr and, by symmetry of the profile, e^-e (1 -
    delta(e) - fpr), e >= 0. Every e gives a bound and rounding is subtracted, so the result holds
    if `log_delta` is an upper bound. delta is convex in e^e: the supremum is found to 1e-12 of e on
    [0, 700]. If `log_delta` is a bound that is not convex, the search can miss a better e, which
    only lowers the result. `ValueError` for a bad concrete `fpr`; NaN for a bad traced one or
    delta.

    >>> import jaxdp as dp
    >>> print(f"{dp.risk.tradeoff_of_profile(dp.GDP(1.0).log_delta, 0.05):.4f}")
    0.7405
    """
    require_both_directions(getattr(log_delta, "__self__", None))
    return _tradeoff(_as_tree(log_delta), checks.probability("fpr", fpr, lift=True))


def _as_tree(function: Callable[[Reals], Reals]) -> jax.tree_util.Partial:
    """A method of a record becomes its function and that record, so that it compiles once."""
    owner = getattr(function, "__self__", None)
    if owner is None or jax.tree.leaves(owner) == [owner]:
        return jax.tree_util.Partial(function)
    return jax.tree_util.Partial(getattr(type(owner), function.__name__), owner)


@jitted
def _tradeoff(log_delta: jax.tree_util.Partial, fpr: Reals) -> Reals:
    shape = xp.broadcast_shapes(fpr.shape, shape_of(log_delta, fpr).shape)
    fpr = xp.broadcast_to(fpr, shape)

    def fnr(epsilon: Reals) -> Reals:
        return support(epsilon, log_delta(xp.abs(epsilon)), fpr[None])

    # The value is one that the function took; NaN if it ever was NaN.
    ends = xp.full(shape, -LARGEST_EPSILON), xp.full(shape, LARGEST_EPSILON)
    return xp.maximum(-zoom(lambda x: -fnr(x), *ends, POINTS, ZOOMS)[1], 0.0)
