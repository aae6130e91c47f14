"""Ways around the pieces of a mixture's law, above the real axis, where e^(itL) falls.

Between its kinks a density is analytic, and so is a loss L that rises with x: instead of turning
with t Re L along the axis, e^(itL) falls with t Im L on the way up from one kink, on top, and down
to the next. The way is the same for all heights t.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._numeric.quadrature import Rule, clenshaw_curtis, tanh_sinh
from jaxdp._types import Bools, Complexes, Reals
from jaxdp.loss.pieces import Pieces, dot, log_mixed
from jaxdp.loss.tilted_nodes import TiltedNodes

# Of the way up or down, whose scale shrinks with t, and of a panel on top.
_UPWARD, _ACROSS = tanh_sinh(113), clenshaw_curtis(33)
# Panels besides one for each piece.
_PANELS = 16
# The top: Im of the exponents l, widths of the narrowest Gaussian, and nats by which a falling
# power of 1 - q + q e^l may grow on the way there.
_TURN, _WIDTHS, _GROWTH = 1.4, 1.5, 2.0
# q e^l where such a power has its mass.
_USUAL_ODDS = 3.0
# Of the steepest slope: an end that is flatter is left at half a right angle.
_FLAT = 1e-6


def _every_second(rule: Rule, weights: np.ndarray) -> np.ndarray:
    """By what the weights are multiplied for the rule of every second node."""
    share = np.zeros(rule.weights.size)
    share[::2] = weights / rule.weights[::2]
    return share


_HALF_UPWARD = _every_second(_UPWARD, 2.0 * _UPWARD.weights[::2])
_HALF_ACROSS = _every_second(_ACROSS, clenshaw_curtis(_ACROSS.nodes.size // 2 + 1).weights)


class Lines(NamedTuple):
    """Straight lines, (*batch, lines)."""

    begin: Complexes
    way: Complexes  # from there to the end; minus that in `sign` where the end comes first
    at: Reals  # on the axis, of the same piece
    sign: Reals

    def nodes(self, rule: Rule) -> tuple[Reals, Complexes, Complexes]:
        """`at`, x and dx, along one last axis."""
        unit, weight = (jnp.asarray(c)[(None,) * self.begin.ndim] for c in rule)
        x = self.begin[..., None] + self.way[..., None] * unit
        dx = (self.sign * self.way)[..., None] * weight
        at = jnp.broadcast_to(self.at[..., None], x.shape)
        flat = (*self.begin.shape[:-1], -1)
        return at.reshape(flat), x.reshape(flat), dx.reshape(flat)


class Path(NamedTuple):
    """From one end of the window to the other, by way of all kinks between."""

    upward: Lines
    across: Lines

    @staticmethod
    def of(pieces: Pieces, powers: tuple[Reals, ...]) -> tuple["Path", Bools]:
        """For the integrand g0 A+^u A-^v; and whether it is negligible outside."""
        low, high, known = pieces.window(powers)
        kinks = jnp.clip(pieces.density_kinks(), low[..., None], high[..., None])
        edges = jnp.concatenate([low[..., None], jnp.sort(kinks, axis=-1), high[..., None]], -1)
        a, b = edges[..., :-1], edges[..., 1:]
        some = b > a
        length = jnp.where(some, b - a, 1.0)
        at = 0.5 * (a + b)
        steepest, flat_a, flat_b = _slopes(pieces, a, at, b)
        lean_a, lean_b = (jnp.where(flat, 1.0, 0.0) for flat in (flat_a, flat_b))
        height = _turn(pieces, powers)[..., None] * length / jnp.maximum(steepest, 1e-300)
        narrowest = _WIDTHS * pieces.narrowest(low, high)[..., None]
        height = jnp.minimum(jnp.minimum(height, narrowest), length / (1.0 + lean_a * lean_b))
        up = jnp.where(some, height * (lean_a + 1j), 0.0)
        down = jnp.where(some, height * (1j - lean_b), 0.0)
        one = jnp.ones_like(at)
        ways = (a, b), (up, down), (at, at), (one, -one)
        begin, way, beside, sign = (jnp.concatenate(both, axis=-1) for both in ways)
        upward = Lines(begin.astype(complex), way, beside, sign)
        begin = a + height * (lean_a + 1j)
        across = jnp.where(some, length - (lean_a + lean_b) * height, 0.0)
        return Path(upward, _panels(begin, across, height, at)), known

    def nodes(self) -> tuple[Reals, Complexes, Complexes]:
        """Points on the axis of the same piece, x and dx: flat, along a last axis."""
        parts = zip(self.upward.nodes(_UPWARD), self.across.nodes(_ACROSS), strict=True)
        at, x, dx = (jnp.concatenate(both, axis=-1) for both in parts)
        return at, x, dx

    def every_second(self, rank: int) -> Reals:
        """Of each weight in the rules of every second node."""
        lines = self.upward.at.shape[-1], self.across.at.shape[-1]
        shares = zip((_HALF_UPWARD, _HALF_ACROSS), lines, strict=True)
        share = np.concatenate([np.tile(part, times) for part, times in shares])
        return jnp.asarray(share)[(None,) * (rank - 1)]


def tilted_around(
    pieces: Pieces, powers: tuple[Reals, ...], rising: tuple[float, ...], step: Reals
) -> TiltedNodes:
    """Of g0 A+^u A-^v for `powers` (u, v); the loss is log A+, or log A+ - log A-."""
    path, known = lax.optimization_barrier(lax.stop_gradient(Path.of(pieces, powers)))
    at, x, dx = path.nodes()
    centre, ratios = pieces.along().continued(at, x)
    logs = tuple(log_mixed(ratio, pieces.sampling_prob[..., None]) for ratio in ratios)
    used = dx != 0
    exponent = jnp.where(used, centre + dot(powers, logs), -jnp.inf)
    top = lax.stop_gradient(jnp.max(jnp.real(exponent), axis=-1, keepdims=True))
    weight = jnp.where(used, dx * jnp.exp(jnp.where(used, exponent - top, 0.0)), 0.0)
    moved = (sign * log for sign, log in zip(rising, logs, strict=True))
    nothing = (pieces.sampling_prob == 0) | (pieces.shift == 0)
    loss = jnp.where(used & ~nothing[..., None], sum(moved), 0.0)
    tilted = TiltedNodes.of(weight, path.every_second(weight.ndim), loss, step, known)
    return tilted._replace(resolved=tilted.resolved | nothing)


def _panels(begin: Complexes, across: Reals, height: Reals, at: Reals) -> Lines:
    """Of what is on top of all pieces: as many as there are, and more, of even shares of height."""
    units = across / height
    ends = jnp.cumsum(units, axis=-1)
    total = ends[..., -1:]
    even = total * (jnp.arange(_PANELS + 1) / (_PANELS + 1.0))[(None,) * (total.ndim - 1)]
    cuts = jnp.sort(jnp.concatenate([ends, even], axis=-1), axis=-1)
    first, last = cuts[..., :-1], cuts[..., 1:]
    index = jnp.sum(0.5 * (first + last)[..., None] > ends[..., None, :], axis=-1)
    index = jnp.minimum(index, ends.shape[-1] - 1)
    begin, unit, starts, at = (
        jnp.take_along_axis(x, index, axis=-1) for x in (begin, height, ends - units, at)
    )
    way = ((last - first) * unit).astype(complex)
    return Lines(begin + (first - starts) * unit, way, at, jnp.ones_like(at))


def _slopes(pieces: Pieces, a: Reals, at: Reals, b: Reals) -> tuple[Reals, Bools, Bools]:
    """The steepest of the exponents l, times b - a, of parabolas; whether either end is flat."""
    wide = pieces.along().along()
    ratios = wide.continued(at[..., None], jnp.stack([a, at, b], axis=-1).astype(complex))[1]
    first, last = jnp.zeros_like(at), jnp.zeros_like(at)
    for ratio in ratios:
        rise = jnp.abs(jnp.diff(jnp.real(ratio), axis=-1))
        first = jnp.maximum(first, 3.0 * rise[..., 0] - rise[..., 1])
        last = jnp.maximum(last, 3.0 * rise[..., 1] - rise[..., 0])
    steepest = jnp.maximum(first, last)
    return steepest, first <= _FLAT * steepest, last <= _FLAT * steepest


def _turn(pieces: Pieces, powers: tuple[Reals, ...]) -> Reals:
    """The largest Im l on top: where |A|^u grows for u < 0 less, as u l'' / 2 does."""
    turn = jnp.full_like(pieces.shift, _TURN)
    bend = jnp.minimum(0.25, _USUAL_ODDS * pieces.sampling_prob)
    for power in powers:
        falling = jnp.maximum(-power * bend, 1e-3)
        turn = jnp.minimum(turn, jnp.sqrt(2.0 * _GROWTH / falling))
    return turn
