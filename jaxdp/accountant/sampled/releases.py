"""The sampled Gaussians of a composition as arrays of lanes, for any sampling scheme."""

from __future__ import annotations

from functools import partial

from jaxdp._core.compilation import compiled
from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import log1m, log1mexp
from jaxdp.accountant.composition import Term, Terms, is_gaussian, ratios_of
from jaxdp.accountant.sampled.law import Releases

# Step of means that are 0. derived: its strip is a number
_LEAST_STEP = 1e-300


@partial(compiled, static_argnums=())
def releases_of(terms: Terms) -> tuple[Releases, Reals]:
    """Releases, axes reversed, and log of the probability that a sample holds a record."""
    phases = [_phases(term) for term in terms if not is_gaussian(term)]
    mixtures, components = (max(p.mean.shape[axis] for p in phases) for axis in (-2, -1))
    padded = (_padded(p, mixtures, components)[:-1] for p in phases)
    parts = (xp.concatenate(x, 1) for x in zip(*padded, strict=True))
    found = Releases(*parts, variance=xp.zeros(()))
    # A release that samples everything is a plain Gaussian.
    number, coin = found.number[..., None, None], found.coin[..., None]
    is_whole = (found.share >= 1) & (coin >= 1) & (number > 0)
    variance = xp.sum(xp.where(is_whole, number * found.mean**2, 0.0), (1, 2, 3))
    for term in terms:
        if is_gaussian(term):
            variance = variance + xp.sum(ratios_of(term) ** 2 * term.count, -1)
    hits = xp.minimum(xp.sum(coin * found.share, (2, 3)), 1.0)
    moved = xp.sum(coin * found.share * found.mean, (2, 3))
    used = ~xp.any(is_whole, (2, 3)) & ~(found.number == 0) & ~(moved == 0)
    missed = xp.sum(xp.where(used, found.number * log1m(xp.where(used, hits, 0.5)), 0.0), -1)
    log_hit = log1mexp(-missed) * (1.0 - 2.0**-48)
    nothing = 1.0, 0.5, 0.5, 1.0, xp.pi, 0.0, found.sign
    usable = (
        xp.where(used.reshape(*used.shape, *[1] * (x.ndim - 2)), x, y)
        for x, y in zip(found[:-1], nothing, strict=True)
    )
    return Releases(*usable, variance=variance), xp.where(variance > 0, 0.0, log_hit)


def _phases(term: Term) -> Releases:
    """The releases of one term, axes reversed."""
    mixtures = term.pair.mixtures()
    shape, components = term.count.shape, max(m.mean.shape[-1] for m in mixtures)
    mean, probability = (
        xp.stack([xp.broadcast_to(_to(x, components, -1), (*shape, components)) for x in parts], -2)
        for parts in zip(*((m.mean, m.probability) for m in mixtures), strict=True)
    )
    missed, share, step, added = (
        xp.stack([xp.broadcast_to(x, shape) for x in parts], -1)
        for parts in zip(*((m.missed, m.share, m.step, m.added) for m in mixtures), strict=True)
    )
    # A coin that also decides the direction is not supported: NaN.
    is_added = added > 0
    sign = xp.where(xp.all(is_added, -1), -1.0, xp.where(xp.any(is_added, -1), xp.nan, 1.0))
    strip = xp.pi / xp.maximum(xp.max(step, -1), _LEAST_STEP)
    return Releases(mean, probability, missed, share, strip, term.count, sign, xp.zeros(term.shape))


def _padded(phases: Releases, mixtures: int, components: int) -> Releases:
    """The phases padded with mixtures and components of probability 0."""
    mean, share = (_to(_to(x, components, -1), mixtures, -2) for x in (phases.mean, phases.share))
    miss, coin = (_to(x, mixtures, -1) for x in (phases.miss, phases.coin))
    return phases._replace(mean=mean, share=share, miss=miss, coin=coin)


def _to(x: Reals, size: int, axis: int) -> Reals:
    """x padded with zeros along an axis."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, size - x.shape[axis])
    return xp.pad(x, widths)
