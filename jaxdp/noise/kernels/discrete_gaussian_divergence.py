"""Renyi divergences of the discrete Gaussian, from Jacobi's theta function.

With theta(c) = sum_k exp(-(k - c)^2 step^2 / 2) and mu = shift step that of the order 1 + s is
(s + 1) mu^2 / 2 + log(theta(s shift) / theta(0)) / s: the sum itself for scales below 0.8, its
Poisson dual above.
"""

from __future__ import annotations

from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import log1p
from jaxdp._numeric.lattice_gaussian import WIDE, plus


def divergence(scale: Reals, shift: Reals, s: Reals) -> Reals:
    """Renyi divergence of the order 1 + s, for whole shifts >= 1."""
    step = 1.0 / scale
    mu, wide = step * shift, step < WIDE
    safe = xp.where(s > 0, s, 1.0)
    turns = safe * shift
    whole = xp.round(turns)
    part = turns - whole
    # s^2 mu^2 - part^2 step^2 without cancellation.
    square = xp.where(wide, 0.5, step * step)
    sums = plus(
        xp.exp(-k * (0.5 * k - xp.abs(part)) * square) * xp.expm1(-k * xp.abs(part) * square) ** 2
        for k in range(7, 0, -1)
    )
    mass = 1.0 + 2.0 * plus(xp.exp(-0.5 * k * k * square) for k in range(7, 0, -1))
    narrow = (0.5 * square * whole * (2.0 * turns - whole) + log1p(sums / mass)) / safe
    narrow = narrow + 0.5 * mu * mu
    turn = 2.0 * xp.pi * xp.pi / xp.where(wide, step * step, 1.0)
    dual = plus(xp.exp(-j * j * turn) * xp.sin(xp.pi * j * part) ** 2 for j in (2, 1))
    total = 1.0 + 2.0 * plus(xp.exp(-j * j * turn) for j in (2, 1))
    smooth = 0.5 * (safe + 1.0) * mu * mu + log1p(-4.0 * dual / total) / safe
    return xp.where(s > 0, xp.where(wide, smooth, narrow), 0.5 * (s + 1.0) * mu * mu)
