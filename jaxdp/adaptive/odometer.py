"""Odometer: running cost of adaptively chosen releases, valid at all times at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import final

import numpy as np

from jaxdp import ledger
from jaxdp._core import checks
from jaxdp._core.compilation import require_outside_traces
from jaxdp._core.files import Format, Saved
from jaxdp._core.float64 import in_float64
from jaxdp._core.threads import Locked
from jaxdp._core.types import ArrayLike
from jaxdp._numeric.elementary import ULP
from jaxdp.adaptive.currency import Item, divergences, vector
from jaxdp.guarantee.renyi import RDP
from jaxdp.ledger import ONE_CHARGE, Step, rounded

# First line of a stored odometer.
_FORMAT = Format("jaxdp-odometer")
# order - 1 from 2^-4 to 2^10, two an octave: between two of them s rho + c / s is at most
# cosh(log(2) / 4), 1.5 %, above its least value, and more orders would cost more than that.
_ORDERS = tuple(1.0 + 2.0 ** (k / 2) for k in range(-8, 21))


@final
@in_float64
class Odometer(Locked, Saved):
    """Refuses nothing, and bounds what has been spent.

    For any two neighbours, with probability 1 - `delta` over the outputs on the first, the
    privacy loss log(P / Q) of everything that was released never once passes `epsilon()`, as it
    stood at that time. Every step's divergences must hold given the outputs before it, and be
    fixed before it. So who stops, at any time, before `epsilon()` passes an e that was fixed
    beforehand, has been (e, delta)-differentially private.

    Proof: at one order a, with D_t the divergence of step t, exp((a - 1)(loss - sum of D_t)) is a
    supermartingale that starts at 1, so it ever passes 1 / p with probability p at most (Ville
    1939). `epsilon()` is the least over k orders of sum D_t + log(k / delta) / (a - 1): each has
    p = delta / k, and they fail together with probability delta. A single order pays no log k.
    Sources: Feldman & Zrnic, NeurIPS 2021; Lecuyer 2021; Whitehouse, Ramdas, Rogers & Wu, ICML
    2023.

    `delta` in (0, 1]; orders in (1, 1e300]. Sums are exact and `epsilon` is rounded up. Threads may
    share an odometer: no step is lost.
    """

    def __init__(self, delta: float, order: ArrayLike = _ORDERS):
        super().__init__()
        self._delta = float(checks.real("delta", delta, 0.0, 1.0, open_lower=True))
        # Order 1 bounds no loss but on average.
        order = checks.real("order", order, 1.0, open_lower=True)
        self._order = vector(RDP(order, 0.0).order)
        self._steps: tuple[Step, ...] = ()
        self._sums = tuple(Fraction(0) for _ in self._order)

    @property
    def delta(self) -> float:
        """The probability that the bound fails, over all times."""
        return self._delta

    @property
    def steps(self) -> tuple[Step, ...]:
        """The history: names, divergences of one release at the orders, and counts."""
        return self._steps

    def epsilon(self) -> float:
        """Epsilon spent up to now, at first log(k / delta) / (largest order - 1)."""
        return self._epsilon(self._sums)

    def epsilon_after(self, item: Item, count: object = 1) -> float:
        """Value that `epsilon()` would have after the step."""
        return self._epsilon(self._after(self._step(item, count, "")))

    def spend(self, item: Item, count: object = 1, name: str = "") -> float:
        """Count `count` releases of `item`, and return `epsilon()` as it stands then.

        `item`: whatever `to_rdp` takes, or a sampled mechanism, one release, with finite
        divergences: else `ValueError` or `TypeError`, and nothing changes.
        """
        step = self._step(item, count, name)
        with self._lock:
            sums = self._after(step)
            self._sums, self._steps = sums, (*self._steps, step)
        return self._epsilon(sums)

    def spent(self) -> RDP:
        """Sums of the divergences, rounded up. Not a guarantee for adaptive steps."""
        return RDP(self._order, [rounded(total, up=True) for total in self._sums])

    def to_json(self) -> str:
        """The state as text; numbers are exact, so that `from_json` resumes where this stands."""
        payload = {"delta": self._delta.hex(), "order": ledger.to_hex(self._order)}
        return ledger.dump(_FORMAT, payload, self._steps)

    @classmethod
    def from_json(cls, text: str) -> Odometer:
        """Odometer from what `to_json` wrote; `ValueError` for anything else or changed text."""
        body, steps = ledger.parse(_FORMAT, text, ("delta", "order"))
        restored = cls(float.fromhex(body["delta"]), ledger.from_hex(body["order"]))
        for step in steps:
            restored._sums = restored._after(step)
        restored._steps = tuple(steps)
        return restored

    def _step(self, item: Item, count: object, name: str) -> Step:
        require_outside_traces("Odometer", ONE_CHARGE)
        cost = vector(divergences(item, np.array(self._order)).value)
        ledger.exact("cost", cost)
        return Step(name or type(item).__name__, cost, ledger.whole_count(count))

    def _after(self, step: Step) -> tuple[Fraction, ...]:
        pairs = zip(self._sums, ledger.exact("cost", step.cost), strict=True)
        return tuple(total + step.count * cost for total, cost in pairs)

    def _epsilon(self, sums: Sequence[Fraction]) -> float:
        # Two logarithms of an ulp each, a quotient and a sum: 16 ulp cover them.
        price = math.log(len(self._order)) - math.log(self._delta)
        bounds = (
            rounded(total, up=True) + price / (order - 1.0)
            for order, total in zip(self._order, sums, strict=True)
        )
        return min(bounds) * (1.0 + 16.0 * ULP)
