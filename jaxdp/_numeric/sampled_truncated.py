"""Moments of the Poisson-sampled truncated Laplace's likelihood ratio, where it is finite.

With r = shift / scale, x = bound / scale and h = min(r, 2 x - r) the unsampled log ratio l of P1 to
P0 is, under P0, that of a Laplace between -h and h, its atoms are lighter (none where r >= x), and
where P1 has nothing it is -inf: then sampling makes it log(1 - q).
"""

import jax.numpy as jnp

from jaxdp._numeric.elementary import LOG_2, log1m, log1mexp
from jaxdp._numeric.sampled_laplace import Law, law
from jaxdp._types import Reals


def log_moment(r: Reals, x: Reals, q: Reals, w: Reals) -> Reals:
    """log E_P0[(1 - q + q P1 / P0)^w], real w, arguments of one shape, 0 <= q < 1.

    Relative error: as `sampled_laplace.log_moment`, and 1e-15 / min(1, x).
    """
    apart = r >= 2.0 * x
    nothing = (q == 0) | (r == 0)
    # Of two laws that are apart all is where P1 has nothing.
    unusual = nothing | apart
    safe_r, safe_x = jnp.where(unusual, 0.5, r), jnp.where(unusual, 1.0, x)
    whole = jnp.where(nothing, 0.0, _truncated(safe_r, safe_x, jnp.where(nothing, 0.5, q), w))
    value = jnp.where(apart & ~nothing, w * log1m(q), whole)
    return jnp.where(jnp.isnan(r + x + q + w), jnp.nan, value)


def _truncated(r: Reals, x: Reals, q: Reals, w: Reals) -> Reals:
    past = jnp.maximum(r - x, 0.0)
    plain = law(jnp.minimum(r, 2.0 * x - r), q, w)
    # P0 has the mass (1 - e^-x) / 2 on either side, before it is normalised.
    log_whole = log1mexp(x)
    log_atom = log1mexp(jnp.maximum(x - r, 0.0)) - LOG_2 - log_whole
    near_end = log1mexp(jnp.minimum(r, x)) - jnp.maximum(x - r, 0.0)
    beyond_middle = log1mexp(jnp.where(past > 0, past, 1.0))
    missing = jnp.where(past > 0, jnp.logaddexp(near_end, beyond_middle), near_end)
    atoms = jnp.stack([log_atom, log_atom - r, missing - LOG_2 - log_whole], axis=-1)
    loss = jnp.concatenate([plain.start[..., :2], log1m(q)[..., None]], axis=-1)
    moved = (log_whole + past)[..., None]
    return Law(
        jnp.concatenate([atoms, plain.log_weight[..., 2:] - moved], axis=-1),
        jnp.concatenate([loss, plain.start[..., 2:]], axis=-1),
        jnp.concatenate([jnp.zeros_like(atoms), plain.change[..., 2:]], axis=-1),
        plain.best,
        plain.turn,
        plain.reach,
        plain.rise,
        plain.left_out * jnp.exp(-moved[..., 0]),
    ).log_moment(w)
