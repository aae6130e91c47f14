"""The sampled Gaussians of a composition as arrays of lanes, whatever scheme draws them."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from jaxdp._core import checks
from jaxdp._core.compilation import compiled
from jaxdp._core.functions import logsumexp, softmax
from jaxdp._core.namespace import xp
from jaxdp._core.types import Reals
from jaxdp._numeric.elementary import log1m, log1mexp
from jaxdp.accountant.composition import Term, Terms, is_gaussian, is_sampled_gaussian, ratios_of
from jaxdp.accountant.sampled.law import COIN, Releases
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import DominatingPair
from jaxdp.dominating_pair.poisson import Poisson
from jaxdp.dominating_pair.public_coin import PublicCoin
from jaxdp.dominating_pair.sampled_group import SampledGroup
from jaxdp.noise.base import ratio_of
from jaxdp.noise.gaussian import Gaussian

# Step of means that do not move. derived: its strip is a number
_LEAST_STEP = 1e-300


class _Mixture(NamedTuple):
    """Means and probabilities of one mixture (lanes, phases), components along a last axis."""

    mean: Reals
    share: Reals
    miss: Reals
    step: Reals  # of means
    added: Reals


@partial(compiled, static_argnums=())
def releases_of(terms: Terms) -> tuple[Releases, Reals]:
    """Releases, axes reversed, and log of the probability that a sample holds a record."""
    phases = [_phases(term) for term in terms if is_sampled_gaussian(term)]
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
    pair = term.pair
    if isinstance(pair, PublicCoin):
        mixtures = [_mixture(each) for each in pair.pairs]
        log_shares = xp.stack(xp.broadcast_arrays(*pair.log_shares), -1)
        # Shares that are rounded up add up to a little more than 1; others are no probabilities.
        is_whole = xp.abs(xp.expm1(logsumexp(log_shares, axis=-1, keepdims=True))) <= COIN
        coin = xp.where(is_whole, softmax(log_shares), xp.nan)
    else:
        mixtures, coin = [_mixture(pair)], xp.ones((*term.count.shape, 1))
    components = max(m.mean.shape[-1] for m in mixtures)
    mean, share = (
        xp.stack([_to(x, components, -1) for x in parts], -2)
        for parts in zip(*((m.mean, m.share) for m in mixtures), strict=True)
    )
    step = xp.max(xp.stack([m.step for m in mixtures]), 0)
    added = xp.stack(xp.broadcast_arrays(*(m.added > 0 for m in mixtures)))
    # Of a coin that decides the direction as well nothing is known here.
    sign = xp.where(xp.any(added, 0), xp.where(xp.all(added, 0), -1.0, xp.nan), 1.0)
    return Releases(
        mean,
        share,
        xp.stack([m.miss for m in mixtures], -1),
        coin,
        xp.pi / xp.maximum(step, _LEAST_STEP),
        term.count,
        sign,
        xp.zeros(term.shape),
    )


def _mixture(pair: DominatingPair) -> _Mixture:
    if isinstance(pair, SampledGroup):
        ratio = ratio_of(pair.shift, pair.noise.scale)
        each = [xp.broadcast_to(xp.exp(x), ratio.shape) for x in pair.log_probabilities]
        means = xp.stack([k * ratio for k in range(1, len(each))], -1)
        return _Mixture(means, xp.stack(each[1:], -1), each[0], ratio, pair.added)
    assert isinstance(pair, Poisson)
    assert isinstance(pair.base, Additive)
    assert isinstance(pair.base.noise, Gaussian)
    ratio = ratio_of(pair.base.shift, pair.base.noise.scale)
    q = checks.guard(pair.sampling_prob, 1.0)
    return _Mixture(ratio[..., None], q[..., None], 1.0 - q, ratio, pair.added)


def _padded(phases: Releases, mixtures: int, components: int) -> Releases:
    """The phases with mixtures and components of no probability."""
    mean, share = (_to(_to(x, components, -1), mixtures, -2) for x in (phases.mean, phases.share))
    miss, coin = (_to(x, mixtures, -1) for x in (phases.miss, phases.coin))
    return phases._replace(mean=mean, share=share, miss=miss, coin=coin)


def _to(x: Reals, size: int, axis: int) -> Reals:
    """x padded with zeros along an axis."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, size - x.shape[axis])
    return xp.pad(x, widths)
