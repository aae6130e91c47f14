"""An upper bound of a sampled release's cumulant from its profile: for laws without a quadrature.

With T(epsilon) = delta(epsilon) for epsilon >= 0 and e^epsilon times the exchanged pair's
delta(-epsilon) below,

    E exp(z L) = 1 + z (1 + z) integral of e^(z epsilon) T(epsilon), z >= 0:

the second derivative of x^(1 + z) against D(x) = E_Q (X - x)_+, X = P / Q, x = e^epsilon. D is
convex in x, so that chords between the points of a grid bound it. No loss is infinite here.
"""

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp._numeric.elementary import expm1_minus
from jaxdp._types import Reals
from jaxdp.loss.pieces import log_mixed
from jaxdp.loss.sampled_profile import sampled_log_delta, sampled_pure_epsilon
from jaxdp.noise.base import Noise

# 0, and losses that grow by 1.6 % from one to the next.
POINTS = 1900
_LOSSES = np.concatenate([[0.0], np.geomspace(1e-9, 1e4, POINTS)])
_END = float(_LOSSES[-1])
# Of the integral, relatively: sums of 4,000 terms.
_ROUNDED = 2e-12


@jax.jit
def sampled_cumulant(noise: Noise, q: Reals, added: Reals, shift: Reals, z: Reals) -> Reals:
    """An upper bound of log E exp(z L), of a record that is removed or added; real z.

    Above it by 1e-4 to 1e-3 of it, by 2 % where z times the losses that count is some hundreds,
    by 2.6 times it at worst beyond (scales of a thirtieth of the shift, z = 300); 0 for z in
    [-1, 0], where it is negative.
    """
    rank = max(x.ndim for x in jax.tree.leaves((noise, q, added, shift, z)))
    noise, q, added, shift, z = jax.tree.map(
        lambda x: x.reshape((1,) * (rank - x.ndim) + x.shape), (noise, q, added, shift, z)
    )
    forward = _rising(noise, q, added, shift, jnp.where(z > 0, z, 1.0))
    backward = _rising(noise, q, 1.0 - added, shift, jnp.where(z < -1, -1.0 - z, 1.0))
    value = jnp.where(z > 0, forward, jnp.where(z < -1, backward, 0.0))
    return jnp.where(jnp.isnan(forward + backward + z), jnp.nan, value)


def _rising(noise: Noise, q: Reals, added: Reals, shift: Reals, z: Reals) -> Reals:
    """For z > 0."""
    losses = jnp.asarray(_LOSSES)[(None,) * z.ndim]
    up, down = _profiles(noise, q, added, shift, losses)
    width, z_axis = jnp.diff(losses), z[..., None]
    w = z_axis * width
    # Integrals of e^(-w s) over s in [0, 1], weighted by 1, s and 1 - s.
    whole = -jnp.expm1(-w) / w
    series = 0.5 - w * (1.0 / 3.0 - w * (1.0 / 8.0 - w * (1.0 / 30.0 - w / 144.0)))
    start = jnp.where(w < 0.02, series, (whole - jnp.exp(-w)) / w)
    end = expm1_minus(-w) / (w * w)
    # A chord in e^epsilon, seen over epsilon: concave where T falls, convex where it rises.
    bent = start + jnp.minimum(width / 8.0, 1.0) * whole
    ahead = jnp.logaddexp(up[..., :-1] + jnp.log(bent), up[..., 1:] + jnp.log(end))
    behind = jnp.logaddexp(down[..., :-1] + jnp.log(end), down[..., 1:] + jnp.log(start))
    ahead += z_axis * losses[..., 1:] + jnp.log(width)
    behind += -z_axis * losses[..., :-1] + jnp.log(width)
    left = -_END * (z + 1.0) - jnp.log1p(z)
    total = jax.nn.logsumexp(jnp.concatenate([ahead, behind, left[..., None]], axis=-1), axis=-1)
    total += jnp.log(z) + jnp.log1p(z) + _ROUNDED
    small = jnp.exp(jnp.minimum(total, -20.0))
    value = jnp.where(total < -20.0, small, jnp.logaddexp(0.0, total)) * (1.0 + _ROUNDED)
    # Chernoff's bound at the order 2 z + 1 of the losses beyond the grid, by convexity in q.
    most = log_mixed(jnp.real(noise.cgf(shift, 2.0 * z + 1.0)), q) - (z + 1.0) * _END
    return jnp.where(up[..., -1] > -jnp.inf, jnp.logaddexp(value, most), value)


def _profiles(
    noise: Noise, q: Reals, added: Reals, shift: Reals, losses: Reals
) -> tuple[Reals, Reals]:
    """log T at the losses and at minus the losses."""
    noise, q, added, shift = jax.tree.map(lambda x: x[..., None], (noise, q, added, shift))
    up = sampled_log_delta(noise, q, added, shift, losses)
    down = sampled_log_delta(noise, q, 1.0 - added, shift, losses) - losses
    ended = losses >= sampled_pure_epsilon(noise.pure_epsilon(shift), q, added)
    return jnp.where(ended, -jnp.inf, up), down
