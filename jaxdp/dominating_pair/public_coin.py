"""A public coin selects one of several pairs for each release, as in truncated Poisson samples."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import final

from jaxdp._core import checks
from jaxdp._core.namespace import logsumexp, softmax, xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals
from jaxdp._numeric.elementary import ULP, log_add
from jaxdp.dominating_pair.base import (
    LEAST_EXCESS,
    DominatingPair,
    Law,
    Mixture,
    Support,
    is_symmetric,
)
from jaxdp.noise.structure import Kinks, Singularities, Smooth

# Relative tolerance of the sum of shares. derived: the engine of mixtures adds as much to delta
COIN = 4e-12

_apart = threading.local()


@contextlib.contextmanager
def moving_apart() -> Iterator[None]:
    """Context of a difference in one number of a pair: shares need not add up to 1."""
    before, _apart.running = getattr(_apart, "running", False), True
    try:
        yield
    finally:
        _apart.running = before


@final
@pytree
class PublicCoin(DominatingPair):
    """sum w_k P_k x {k} against sum w_k Q_k x {k}: pair k with probability e^log_shares[k].

    It dominates a mechanism that samples k from the same law on both inputs and then satisfies pair
    k, since publishing k cannot reduce the loss. delta = sum w_k delta_k, and the law consists of
    the laws side by side.
    """

    pairs: tuple[DominatingPair, ...]
    log_shares: tuple[Reals, ...]

    def __init__(self, pairs: Sequence[DominatingPair], log_shares: Sequence[ArrayLike]):
        if len(pairs) != len(log_shares) or not pairs:
            raise ValueError(
                f"log_shares must be one a pair, got {len(log_shares)} of {len(pairs)} pairs"
            )
        # A sum of shares that were rounded up can exceed 1 by as much.
        shares = (checks.real("log_shares", share, upper=1e-9) for share in log_shares)
        assign(self, pairs=tuple(pairs), log_shares=tuple(shares))

    def log_delta(self, epsilon: ArrayLike) -> Reals:
        """log sum w_k delta_k(epsilon), rounded up."""
        total = self._total(pair.log_delta(epsilon) for pair in self.pairs)
        size = xp.abs(xp.where(total > -xp.inf, total, 0.0))
        return xp.minimum(total + ULP * (8.0 + 4.0 * size), 0.0)

    def _total(self, logs: Iterable[Reals]) -> Reals:
        """log of the sum of one number a pair, each times the pair's share."""
        terms = (x + share for x, share in zip(logs, self.log_shares, strict=True))
        return functools.reduce(log_add, terms)

    def law(self) -> Law:
        """The laws side by side, each multiplied by its share."""
        laws = [pair.law() for pair in self.pairs]
        shapes = (x.shape for x in (*(law.largest for law in laws), *self.log_shares))
        shape = xp.broadcast_shapes(*shapes)
        rows = []
        for law, share in zip(laws, self.log_shares, strict=True):
            (loss, log_mass), w = law.check, share[..., None]
            row = law.loss, law.log_mass + w, law.log_density + w, loss, log_mass + w
            rows.append([xp.broadcast_to(x, (*shape, x.shape[-1])) for x in row])
        columns = (xp.concatenate(column, axis=-1) for column in zip(*rows, strict=True))
        loss, log_mass, log_density, *check = columns
        left_out = xp.broadcast_to(self._total(law.log_left_out for law in laws), shape)
        largest, log_infinite = self.support()
        return Law(
            loss, log_mass, log_density, (check[0], check[1]), left_out, log_infinite, largest
        )

    def support(self) -> Support:
        """The largest loss of all pairs, and their infinite ones, each with its share."""
        parts = [pair.support() for pair in self.pairs]
        log_infinite = self._total(part.log_infinite for part in parts)
        largest = functools.reduce(xp.maximum, (part.largest for part in parts))
        return Support(*xp.broadcast_arrays(largest, log_infinite))

    def singularities(self) -> Singularities:
        """Smooth if all pairs are; otherwise the atoms of all."""
        kinds = [pair.singularities() for pair in self.pairs]
        if all(isinstance(kind, Smooth) for kind in kinds):
            return Smooth()
        atoms = [atom for kind in kinds if isinstance(kind, Kinks) for atom in kind.atoms]
        return Kinks(tuple(atoms) or (xp.full_like(self.log_shares[0], xp.nan),))

    def reversed(self) -> PublicCoin:
        """Every pair exchanged; the coin is the same."""
        if all(map(is_symmetric, self.pairs)):
            return self
        return PublicCoin([pair.reversed() for pair in self.pairs], self.log_shares)

    def renyi(self, order: ArrayLike) -> Reals:
        """log(sum w_k e^((a - 1) D_k)) / (a - 1); the largest D_k at infinity."""
        order = checks.real("order", order, 1.0)
        excess = xp.clip(order - 1.0, LEAST_EXCESS, 1e300)
        divergences = [pair.renyi(xp.maximum(order, 1.0 + LEAST_EXCESS)) for pair in self.pairs]
        largest, gains = functools.reduce(xp.maximum, divergences), []
        for value in divergences:
            # log(1 + w (e^(s D) - 1)) by the sum of w (e^(s D) - 1), which are positive.
            scaled = excess * value
            gain = scaled + xp.log(-xp.expm1(-xp.where(scaled > 0, scaled, 1.0)))
            gains.append(xp.where(scaled > 0, gain, xp.where(scaled == 0, -xp.inf, xp.nan)))
        value = xp.logaddexp(0.0, self._total(gains)) / excess
        value = xp.minimum(value * (1.0 + 64.0 * ULP) + 64.0 * ULP, largest)
        return xp.where(order == xp.inf, largest, value)

    def mixtures(self) -> tuple[Mixture, ...]:
        """The mixtures of all pairs, with their shares; empty if some pair has none."""
        parts = [pair.mixtures() for pair in self.pairs]
        if not all(parts):
            return ()
        logs = xp.stack(xp.broadcast_arrays(*self.log_shares), -1)
        # Shares that are rounded up add up to a little more than 1; others are not probabilities.
        is_whole = xp.abs(xp.expm1(logsumexp(logs, axis=-1, keepdims=True))) <= COIN
        is_whole = is_whole | getattr(_apart, "running", False)
        shares = xp.where(is_whole, softmax(logs), xp.nan)
        return tuple(
            mixture._replace(share=mixture.share * shares[..., i])
            for i, part in enumerate(parts)
            for mixture in part
        )

    def log_hit(self) -> Reals:
        """log sum w_k hit_k."""
        total = self._total(pair.log_hit() for pair in self.pairs)
        return xp.minimum(total * (1.0 - 8.0 * ULP), 0.0)
