"""Joint sensitivity: how far neighbouring answers can lie apart, and the worst of them."""

from __future__ import annotations

from typing import final

from jaxdp._core import checks
from jaxdp._core.float64 import in_float64
from jaxdp._core.namespace import xp
from jaxdp._core.pytree import assign, pytree
from jaxdp._core.types import ArrayLike, Reals


@final
@in_float64
@pytree
class JointSensitivity:
    """The differences d of K coordinates with |d|_1 <= l1, |d|_2 <= l2 and |d|_inf <= linf.

    `dimension` is K; at most `l0` coordinates of d are not 0 (None: K). Norms that are not given do
    not bind: l1 <= l0 linf and l2 <= sqrt(l0) linf follow. Batched. Which d is the worst depends on
    the noise (i.i.d., symmetric, log-concave):

    * delta grows with every |d_i|, so in a box the corner is the worst: (linf, ..., linf).
    * f_(d1 + d2) is below f_d1 (x) f_d2 (triangle inequality of trade-offs, with equality of the
      chain), so gathering d in one coordinate is the worst under l1 alone: (l1, 0, ..., 0).
    * under l1 and linf, gathering as long as two coordinates fit into one leaves any two of them
      above linf together, so fewer than 2 l1 / linf of them: that many at linf are a bound. (That
      the greedy packing linf, ..., linf, rest is the worst is a conjecture.)
    * under l2 no single d is the worst at every epsilon, except for the Gaussian, which sees l2
      only: there l1 <= sqrt(K) l2 and linf <= l2 lead back to the bounds above.
    """

    dimension: Reals
    l1: Reals
    l2: Reals
    linf: Reals
    l0: Reals

    def __init__(
        self,
        dimension: ArrayLike,
        *,
        l1: ArrayLike = xp.inf,
        l2: ArrayLike = xp.inf,
        linf: ArrayLike = xp.inf,
        l0: ArrayLike | None = None,
    ):
        norms = {"l1": l1, "l2": l2, "linf": linf}
        checked = {name: checks.positive(name, value) for name, value in norms.items()}
        dimension = checks.whole("dimension", dimension, 1.0)
        l0 = dimension if l0 is None else checks.whole("l0", l0, 1.0)
        assign(self, dimension=dimension, l0=xp.minimum(l0, dimension), **checked)

    def tightened(self) -> JointSensitivity:
        """The same set, each norm at the largest value that it takes there."""
        k = checks.guard(self.l0)
        linf = xp.minimum(xp.minimum(self.linf, self.l1), self.l2)
        l1 = xp.minimum(xp.minimum(self.l1, k * linf), xp.sqrt(k) * self.l2)
        l2 = xp.minimum(xp.minimum(self.l2, xp.sqrt(k) * linf), xp.sqrt(l1) * xp.sqrt(linf))
        return JointSensitivity(checks.guard(self.dimension), l1=l1, l2=l2, linf=linf, l0=k)

    def dominating(self) -> tuple[Reals, Reals]:
        """(shift, count), last axis 2: `count` coordinates at `shift` bound every d of the set.

        Each of the two holds on its own: all gathered in one coordinate, and the packing. The
        first is exact where linf >= l1, the second where the corner of the box is in the set.
        """
        tight = self.tightened()
        k, l1, linf = xp.broadcast_arrays(tight.l0, tight.l1, tight.linf)
        packed = xp.clip(xp.ceil(2.0 * l1 / linf * (1.0 - 1e-15)) - 1.0, 1.0, k)
        # A box is its corner, for any rounding of 2 l1 / linf.
        packed = xp.where(l1 >= k * linf * (1.0 - 1e-12), k, packed)
        shifts = xp.stack([l1, linf], axis=-1)
        return shifts, xp.stack([xp.ones_like(k), packed], axis=-1)
