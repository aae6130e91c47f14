"""The atoms of a sampled release of noise on a lattice, or of a staircase, one by one."""

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxdp._numeric.elementary import log1mexp
from jaxdp._numeric.staircase_loss import atoms
from jaxdp._types import Bools, Reals
from jaxdp.loss.pieces import Nodes, Pieces, log_mixed
from jaxdp.noise.base import Noise, ratio_of
from jaxdp.noise.discrete_gaussian import DiscreteGaussian
from jaxdp.noise.discrete_laplace import DiscreteLaplace
from jaxdp.noise.gaussian import Gaussian
from jaxdp.noise.staircase import Staircase

# The staircase's losses are at most so many steps; the discrete Gaussian's scale, from which on its
# atoms are where its continuous law has its peaks.
_STEPS, _NARROWEST = 2, 0.5
# Of the discrete Laplace; and of the discrete Gaussian, where every second, third, ... atom stands
# for all where there are more.
_FEW, _ATOMS = 65, 769

# log masses where there is no shift; log of the shifted masses over these; of each atom the share
# in the sum over every second one; whether these are all.
_Atoms = tuple[Reals, Reals, Reals, Bools]


def atoms_in(noise: Noise) -> int:
    """The most there are."""
    if isinstance(noise, DiscreteGaussian):
        return _ATOMS
    return _FEW if isinstance(noise, DiscreteLaplace) else 2 * _STEPS + 1


def atom_nodes(noise: Noise, shift: Reals, q: Reals, powers: tuple[Reals, ...]) -> Nodes:
    """Of g0 A^u; all of one shape. Of the discrete Gaussian, those where that matters.

    Unresolved where there are more: shifts above 64 (discrete Laplace) or 2 sensitivities
    (staircase), scales below a half (discrete Gaussian).
    """
    if isinstance(noise, DiscreteGaussian):
        log_mass, ratio, share, known = _discrete_gaussian(noise, shift, q, powers)
    elif isinstance(noise, DiscreteLaplace):
        log_mass, ratio, share, known = _discrete_laplace(noise, shift)
    else:
        assert isinstance(noise, Staircase)
        log_mass, ratio, share, known = _staircase(noise, shift)
    centre = jnp.where(log_mass > -jnp.inf, log_mass, 0.0)
    return Nodes(log_mass, centre, (log_mixed(ratio, q[..., None]),), share, known & (q >= 0))


def _discrete_gaussian(
    noise: DiscreteGaussian, shift: Reals, q: Reals, powers: tuple[Reals, ...]
) -> _Atoms:
    fixed = lax.stop_gradient((Gaussian(noise.scale), shift, q))
    low, high, known = Pieces(*fixed, (1.0,)).window(lax.stop_gradient(powers))
    # On either side of a peak there is an atom.
    low, high = jnp.floor(low) - 1.0, jnp.ceil(high) + 1.0
    stride = jnp.ceil((high - low) / (_ATOMS - 2.0))[..., None]
    index = jnp.arange(1.0 * _ATOMS)[(None,) * low.ndim]
    x = stride * (jnp.floor(low[..., None] / stride) + index)
    scale, moved = noise.scale[..., None], shift[..., None]
    log_mass = DiscreteGaussian(scale).log_density(x) + jnp.log(stride)
    ratio = ratio_of(moved, scale) * ((x - 0.5 * moved) / scale)
    every_second = jnp.where(index % 2.0 == 0, 2.0, 0.0)
    share = jnp.where(stride > 1, every_second, 1.0)
    return log_mass, ratio, share, known & (noise.scale >= _NARROWEST) & (noise.scale < jnp.inf)


def _discrete_laplace(noise: DiscreteLaplace, shift: Reals) -> _Atoms:
    decay, moved = (1.0 / noise.scale)[..., None], shift[..., None]
    x = jnp.arange(1.0 * _FEW)[(None,) * shift.ndim]
    # What lies beyond either end has the loss there.
    all_beyond = -jnp.log1p(jnp.exp(-decay))
    ends = (x == 0) | (x == moved)
    log_mass = jnp.where(ends, all_beyond, all_beyond + log1mexp(decay)) - x * decay
    log_mass = jnp.where(x <= moved, log_mass, -jnp.inf)
    known = (shift > 0) & (shift < _FEW) & (noise.scale < jnp.inf)
    return log_mass, (2.0 * x - moved) * decay, jnp.ones_like(log_mass), known


def _staircase(noise: Staircase, shift: Reals) -> _Atoms:
    parameters = noise.epsilon, noise.sensitivity, noise.split, shift
    p = atoms(*parameters)
    b, drop, whole, most = (x[..., None] for x in (p.decay, p.drop, p.whole, p.most))
    j = jnp.arange(1.0, _STEPS + 1.0)[(None,) * shift.ndim]

    def at(step: Reals, mass: Reals) -> Reals:
        return jnp.where(j == step, mass[..., None], 0.0)

    def falling(first: Reals, mass: Reals) -> Reals:
        """b^k of it at `first` - 2 k."""
        ways = 0.5 * (first - j)
        present = (ways >= 0) & (ways == jnp.floor(ways))
        return jnp.where(present, mass[..., None] * drop * b ** jnp.where(present, ways, 0.0), 0.0)

    mass = at(whole + 1.0, p.decay * p.fraction + p.drop * p.ahead)
    mass += at(whole, p.decay * p.rest + p.drop * p.level) + at(whole - 1.0, p.drop * p.behind)
    mass += falling(most, p.decay * p.part) + falling(most - 1.0, p.decay * p.other)
    above = mass / p.norm[..., None]
    below = above * jnp.exp(-j * noise.epsilon[..., None])
    middle = jnp.maximum(1.0 - jnp.sum(above + below, axis=-1, keepdims=True), 0.0)
    # Where there is no shift a gain of j steps is the rarer one.
    masses = jnp.concatenate([above[..., ::-1], middle, below], axis=-1)
    steps = np.arange(-_STEPS, _STEPS + 1.0)[(None,) * shift.ndim]
    ratio = noise.epsilon[..., None] * jnp.asarray(steps)
    some = masses > 0
    log_mass = jnp.where(some, jnp.log(jnp.where(some, masses, 1.0)), -jnp.inf)
    reached = p.whole + jnp.where(p.fraction > 0, 1.0, 0.0)
    known = (reached <= _STEPS) & ~p.infinite & (shift > 0)
    return log_mass, ratio, jnp.ones_like(log_mass), known
