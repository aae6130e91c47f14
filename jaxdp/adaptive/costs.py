"""Cost of one release in the numbers that a running budget adds up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from jaxdp._core.namespace import xp
from jaxdp._core.neighbours import ONE_DIRECTION
from jaxdp._core.types import ArrayLike
from jaxdp._numeric.double_double import quotient_up
from jaxdp._numeric.elementary import round_up
from jaxdp.adaptive.steps import Number, as_written, exact, rounded
from jaxdp.composition.privacy_loss import privacy_loss
from jaxdp.exponential_mechanism import ExponentialMechanism
from jaxdp.guarantee.base import Budget, Guarantee, as_budget
from jaxdp.guarantee.conversions import to_gdp, to_pure, to_rdp, to_zcdp
from jaxdp.guarantee.drawn import Drawn
from jaxdp.guarantee.gaussian_dp import GDP
from jaxdp.guarantee.pure import ApproxDP, PureDP
from jaxdp.guarantee.renyi import RDP, ZCDP
from jaxdp.mechanism import Mechanism
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.laplace import Laplace

# Part of the remaining delta at which an item that states none has its epsilon. chosen: its epsilon
# is 10 % larger than at all of delta = 1e-6
_SHARE = 0.0625


class Together(NamedTuple):
    """Releases that one step is charged for, and the guarantee of all of them.

    parts: with the number of each; none if the guarantee has a delta that they do not have.
    """

    parts: tuple[tuple[Mechanism | ExponentialMechanism, int], ...]
    guarantee: ApproxDP | Drawn


Kind: TypeAlias = Budget | PureDP | ZCDP | RDP | GDP
Item: TypeAlias = Guarantee | Mechanism | ExponentialMechanism | Together | Budget | tuple[Any, Any]


def cost_of(
    item: Item, kind: Kind, order: ArrayLike, left: tuple[Number, Number]
) -> tuple[Number, ...]:
    """Cost of one release in the numbers of the budget, none too small; infinite if there is none.

    order: of the divergence of an (epsilon, delta). left: the epsilon and the delta that an item
    may have that states none.
    """
    if isinstance(item, Budget) or type(item) is tuple:
        pair = as_budget(item, "item")
        pure = not pair.delta.shape and float(pair.delta) == 0
        item = PureDP(pair.epsilon) if pure else ApproxDP(pair.epsilon, pair.delta)
    if not isinstance(kind, Budget):
        return _numbers_in(item, kind)
    basic = _pair_of(item, *left)
    others, errors = [], []
    for other in (GDP(0.0), RDP(order, 0.0)):
        try:
            others.extend(_numbers_in(item, other))
        except (TypeError, ValueError) as error:
            others.append(math.inf)
            errors.append(error)
    if all(math.isinf(x) for x in (basic[0], *others)) and errors:
        raise errors[-1]
    return (*basic, *others)


def _numbers_in(item: Item, kind: Kind) -> tuple[Number, ...]:
    noise = getattr(item, "noise", None)
    if isinstance(kind, PureDP) and isinstance(noise, Laplace | DiscreteLaplace):
        assert isinstance(item, Mechanism)
        if not (item.sampled or item.sensitivity.shape or noise.scale.shape):
            # Without rounding.
            sensitivity, scale = float(item.sensitivity), float(noise.scale)
            if not (math.isfinite(sensitivity) and 0 < scale < math.inf):
                return (math.inf,)
            return (item.coordinates * Fraction(sensitivity) / Fraction(scale),)
    written = isinstance(item, type(kind))
    return tuple(as_written(x) if written else exact(x) for x in numbers(_guarantee_in(item, kind)))


def _pair_of(item: Item, epsilon_left: Number, delta_left: Number) -> tuple[Number, Number]:
    """An (epsilon, delta) of one release: as stated, pure if it can be, else of what is left."""
    guarantee: Any = item.guarantee if isinstance(item, Together) else item
    if isinstance(guarantee, ApproxDP | Drawn):
        epsilon, delta = (_scalar(x) for x in guarantee.stated)
        if math.isfinite(epsilon):
            return as_written(epsilon), as_written(delta)
    else:
        try:
            (pure,) = _numbers_in(item, PureDP(0.0))
        except TypeError:
            pure = math.inf
        if math.isfinite(pure):
            return pure, Fraction(0)
    most = rounded(epsilon_left, up=False), rounded(delta_left, up=False)
    if not most[1] > 0:
        return math.inf, math.inf
    delta = _SHARE * most[1]
    if isinstance(guarantee, Mechanism) and guarantee.sampled:
        guarantee = privacy_loss(guarantee)
    epsilon = _scalar(guarantee.epsilon(delta))
    if epsilon > most[0] and _scalar(guarantee.delta(most[0])) <= most[1]:
        return epsilon_left, delta_left
    return exact(epsilon), exact(delta)


def _guarantee_in(item: Item, kind: Kind) -> Kind:
    """Guarantee of one `item` of the budget's kind, rounded up."""
    if isinstance(item, Together):
        if not item.parts:
            return _guarantee_in(item.guarantee, kind)  # pyright: ignore
        costs: list[Any] = [count * _guarantee_in(x, kind) for x, count in item.parts]  # pyright: ignore
        return sum(costs[1:], costs[0])  # pyright: ignore
    is_mechanism = isinstance(item, Mechanism)
    if isinstance(item, ExponentialMechanism) and not isinstance(kind, ZCDP | RDP):
        item = PureDP(item.epsilon_bound)
    match kind:
        case RDP(order=order):
            if isinstance(item, Mechanism) and item.sampled:
                if item.relation in ONE_DIRECTION:
                    raise ValueError(
                        "relation must be 'add_remove' or 'replace_one', got "
                        f"{item.relation!r}: a running budget covers both directions"
                    )
                return to_rdp(privacy_loss(item), order)
            return to_rdp(item, order)  # pyright: ignore
        case ZCDP():
            cost = item.zcdp() if is_mechanism else to_zcdp(item)  # pyright: ignore
            return cost if cost is item else ZCDP(round_up(cost.xi, 8), round_up(cost.rho, 8))
        case PureDP():
            return PureDP(item.pure_epsilon()) if is_mechanism else to_pure(item)  # pyright: ignore
        case _:
            return _mu_of(item) if is_mechanism else to_gdp(item)  # pyright: ignore


def _mu_of(mechanism: Mechanism) -> GDP:
    """Its mu, of whole releases, if the noise is Gaussian; else what its pure epsilon implies."""
    noise = mechanism.noise
    if isinstance(noise, Gaussian):
        if not mechanism.sampled:
            return GDP(quotient_up(mechanism.sensitivity, noise.scale))
        # rho = mu^2 / 2, of the whole release.
        return GDP(round_up(xp.sqrt(2.0 * mechanism.zcdp().rho), 4))
    pure = mechanism.pure_epsilon()
    if not bool(xp.all(xp.isfinite(pure))):
        raise ValueError(
            "item must have a mu under a budget of GDP: Gaussian noise has one, and noise with a "
            f"pure epsilon; {type(noise).__name__} has neither here"
        )
    return to_gdp(PureDP(pure))


def numbers(guarantee: Any) -> tuple[float, ...]:
    """The numbers of one guarantee or budget; `ValueError` for a batch."""
    if isinstance(guarantee, RDP):
        return vector(guarantee.value)
    if not isinstance(guarantee, PureDP | GDP | ZCDP | Budget | ApproxDP):
        raise TypeError(f"{type(guarantee).__name__} is no budget that runs")
    return tuple(map(_scalar, vars(guarantee).values()))


def _scalar(value: Any) -> float:
    if np.shape(value):
        raise ValueError(f"item must be one release, got a batch of shape {np.shape(value)}")
    return float(value)


def vector(value: Any) -> tuple[float, ...]:
    """The orders of one release, or its divergences."""
    if value.ndim != 1:
        raise ValueError(f"item must be one release, got a batch of shape {value.shape[:-1]}")
    return tuple(np.asarray(value).tolist())


# Names of the numbers of a guarantee, and of the costs under an (epsilon, delta).
_NAMES = {
    "PureDP": ("epsilon",),
    "ApproxDP": ("epsilon", "delta"),
    "ZCDP": ("xi", "rho"),
    "GDP": ("mu",),
    "Budget": ("epsilon", "delta", "mu", "divergence"),
}


def in_words(kind: Any, values: Sequence[Number], text: Callable[[float], str] = repr) -> str:
    """The numbers of a guarantee as "rho 0.02", without those that are 0 or infinite."""
    names = _NAMES.get(type(kind).__name__, ("divergence",) * len(values))
    parts = [f"{n} {text(float(x))}" for n, x in zip(names, values) if 0 < x < math.inf]  # noqa: B905
    return ", ".join(parts) or f"{names[-1]} 0"
