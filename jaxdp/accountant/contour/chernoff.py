"""Chernoff's bound on epsilon from the whole law: the bound of all Renyi orders, at the best order.

With theta the order less 1, K the cumulants of all releases, and delta reduced by the probability
outside the nodes,

    epsilon <= (K(theta) - log(1 + theta) - theta log(1 + 1 / theta) - log delta) / theta.

Source: Canonne, Kamath & Steinke, NeurIPS 2020, proposition 12.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from jaxdp._core.namespace import lax, xp
from jaxdp._core.types import Reals
from jaxdp._numeric.search import zoom
from jaxdp.accountant.batch import Batch
from jaxdp.accountant.composition import Terms
from jaxdp.accountant.contour.cumulant import composed
from jaxdp.accountant.contour.laws import Laws, laws_of
from jaxdp.accountant.contour.nodes import Nodes, log_psi
from jaxdp.accountant.contour.rare_losses import Cut, uncut

# log of the range of tilts searched. chosen: 1e15 releases, and losses of 1e-10
_LOG_TILTS = (-23.0, 30.0)
# Tilts of a round, and rounds, each between the neighbours of the best tilt. chosen: resolves 2e-6
_TRIED, _ROUNDS = 24, 7


def smooth_log_delta(terms: Terms, epsilon: Reals) -> Reals:
    """log of the least e^(K(s) - s epsilon) / (s (1 + s)) over s > 0, and its derivatives.

    One composition: arrays of the terms have one axis.
    """
    batch = Batch(jax.tree.map(lambda x: x[None], terms), epsilon[None])
    laws, _, nodes = _whole(laws_of(batch)[0])

    def log_size(laws: Laws, nodes: Nodes, epsilon: Reals, tilt: Reals) -> Reals:
        cumulant = composed(laws, log_psi(nodes, laws.power(tilt)), tilt)
        return cumulant - tilt * epsilon - xp.log(tilt) - xp.log1p(tilt)

    fixed = lax.stop_gradient((laws, nodes, epsilon))
    with jax.numpy_rank_promotion("allow"):
        # Where it is least, it does not change with s.
        tilt = xp.exp(_least(lambda x: _finite(log_size(*fixed, xp.exp(x))), epsilon[None])[0])
        return log_size(laws, nodes, epsilon, tilt)[0]


def _whole(laws: Laws) -> tuple[Laws, Cut, Nodes]:
    """Laws with their axes reversed, uncut, and their nodes."""
    laws = jax.tree.map(lambda x: x.T, laws)
    place = uncut(laws)
    return laws, place, laws.on_axis(None, place)


def _least(function: Callable[[Reals], Reals], like: Any) -> tuple[Reals, Reals]:
    low, high = (xp.full_like(like, x) for x in _LOG_TILTS)
    return zoom(function, low, high, _TRIED, _ROUNDS)


def _finite(x: Reals) -> Reals:
    return xp.where(xp.isfinite(x), x, xp.inf)
