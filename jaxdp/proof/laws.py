"""The laws of the pairs that a statement can hold, in each direction."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from typing import Any

from jaxdp.proof import finite
from jaxdp.proof.balls import arb, ball, total
from jaxdp.proof.curve import Curve
from jaxdp.proof.law import Fractional, Law, from_intervals
from jaxdp.proof.noises import NOISES, Noise, intervals

Pair = dict[str, Any]
_ZERO = Fraction(0)
_LEFT_OUT = {
    "Allocation": "random allocation",
    "BoundedRange": "the exponential mechanism, whose bound by Renyi divergences can be smaller",
}
# Noises on a lattice: builder, fields.
_DISCRETE = {
    "DiscreteLaplace": (finite.discrete_laplace, ("scale",)),
    "DiscreteGaussian": (finite.discrete_gaussian, ("scale",)),
    "Staircase": (finite.staircase, ("epsilon", "sensitivity", "split")),
}
# Pairs of guarantees, which are symmetric.
_RESPONSES = {
    "Response": (finite.response, ("bound", "failure")),
    "RandomisedResponse": (finite.randomised_response, ("bound", "categories")),
}


def law_of(pair: Pair, exchanged: bool) -> Law | None:
    """The law of one release, P and Q exchanged if asked; None if its loss is always 0."""
    kind, base = pair["kind"], pair.get("base", {})
    if 0 in (*map(pair.get, ("shift", "sampling_prob", "rate")), base.get("shift")):
        return None
    if kind == "PublicCoin":
        return _coin(pair, exchanged)
    if kind == "FixedBatch":
        return _fixed_batch(pair)
    if kind == "Poisson":
        q, added = _numbers(pair, "sampling_prob", "added")
        base, added = _atoms(pair["base"], False), (added > 0) != exchanged
        if base is not None and not (q == 1 and pair["base"]["kind"] != "Finite"):
            hidden = pair["base"].get("infinite" if _is_backward(pair["base"]) else "hidden")
            only_q = base.infinite if hidden is None else ball(hidden)
            return finite.sampled(base, only_q, ball(q), added)
    atoms = _atoms(pair["base"] if kind == "Poisson" else pair, exchanged)
    return atoms or _mixture(pair, exchanged)


def _numbers(record: Pair, *names: str) -> list[Fraction]:
    """Finite fields."""
    for name in names:
        if not isinstance(record[name], Fraction):
            raise ValueError(f"{name} must be finite for a proof, got {record[name]}")
    return [record[name] for name in names]


def _is_backward(pair: Pair) -> bool:
    return pair.get("backward", 0) > 0


def _atoms(pair: Pair, exchanged: bool) -> Law | None:
    """The law of a pair with atoms alone; None for another pair."""
    kind, noise = pair["kind"], pair.get("noise", {}).get("kind")
    if kind in _RESPONSES:
        build, names = _RESPONSES[kind]
        return build(*_numbers(pair, *names))
    if kind == "Finite":
        infinite, hidden = _numbers(pair, "infinite", "hidden")
        pairs = zip(map(ball, pair["losses"]), map(ball, pair["masses"]), strict=True)
        if _is_backward(pair) != exchanged:
            atoms = [(-x, m * (-x).exp()) for x, m in pairs]
            return Law(atoms, infinite=ball(hidden))
        return Law(list(pairs), infinite=ball(infinite))
    if kind != "Additive" or noise not in _DISCRETE:
        return None
    build, names = _DISCRETE[noise]
    (shift,) = _numbers(pair, "shift")
    if noise != "Staircase":
        if shift.denominator != 1:
            raise ValueError(f"shift must be whole for a discrete noise, got {float(shift)}")
        shift = int(shift)
    return build(*_numbers(pair["noise"], *names), shift)


def _mixture(pair: Pair, exchanged: bool) -> Law:
    """Mixtures of a noise; exchanged, the image under x -> -x, so that the loss rises."""
    noise, p, q = _components(pair)
    if pair.get("added", 0) > 0:
        exchanged = not exchanged
    sides = [[(w, x) for w, x in side if not w.is_zero()] for side in (p, q)]
    if exchanged:
        sides = [[(w, -x) for w, x in side] for side in reversed(sides)]
    built = _noise(noise)
    density, bound = built[0].density, built[-1].stop
    variance = fractional = None
    if len(sides[0]) == len(sides[1]) == len(built) == 1:
        width = sides[0][0][1] - sides[1][0][1]
        if density.b == 0:
            variance = -2 * density.c * ball(width) ** 2
        elif density.c == 0:
            (scale,) = _numbers(noise, "scale")
            ends = width / scale, None if bound is None else bound / scale
            fractional = partial(_laplace, *ends)
    return from_intervals(
        intervals(built, sides[0], sides[1]), variance=variance, fractional=fractional
    )


def _components(pair: Pair) -> tuple[Pair, list[Any], list[Any]]:
    """The noise, and P and Q as (weight, shift)."""
    kind = pair["kind"]
    if kind == "GaussianMixture":
        noise = {"kind": "Gaussian", "scale": pair["scale"]}
        p = zip(_shares(pair["log_probabilities"]), pair["sensitivities"], strict=True)
        means = [-x for x in pair["other_sensitivities"]]
        q = zip(_shares(pair["other_log_probabilities"]), means, strict=True)
        return noise, list(p), list(q)
    base = pair["base"] if kind == "Poisson" else pair
    if "noise" not in base or kind not in ("Additive", "Poisson", "Replaced", "SampledGroup"):
        reason = _LEFT_OUT.get(kind, f"pairs of kind {kind}")
        raise ValueError(f"statement must be of kinds that can be proved: {reason} cannot")
    (shift,), nothing = _numbers(base, "shift"), (arb(1), _ZERO)
    if kind == "Additive":
        return base["noise"], [(arb(1), shift)], [nothing]
    if kind == "SampledGroup":
        shares = _shares(pair["log_probabilities"])
        return base["noise"], [(w, k * shift) for k, w in enumerate(shares)], [nothing]
    (rate,) = _numbers(pair, "sampling_prob")
    p = [(ball(1 - rate), _ZERO), (ball(rate), shift)]
    return base["noise"], p, [p[0], (p[1][0], -shift)] if kind == "Replaced" else [nothing]


def _laplace(a: Fraction, bound: Fraction | None) -> Fractional:
    """Laplace noise, also truncated: shift and bound over scale, None without a bound.

    Losses a and -a with the masses A and B, and a - 2 y at 0 < y < a with the density C e^-y:
    M = (A + C / (1 + 2 s)) e^(a s) + (B - C e^-a / (1 + 2 s)) e^(-a s). A shift d above the bound b
    leaves the overlap of the supports: a = 2 b - d, A = B = 0.
    """
    if bound is None:
        return Fractional(a, (arb(1), arb(1)), (arb(0), (-ball(a)).exp()))
    whole = 2 * (1 - (-ball(bound)).exp())
    start = max(a - bound, _ZERO)
    up = arb(0) if start else (1 - (-ball(bound - a)).exp()) / whole
    a = max(2 * bound - a, _ZERO) if start else a
    down, density = up * (-ball(a)).exp(), (-ball(start)).exp() / whole
    low = density * (-ball(a)).exp()
    return Fractional(a, (up + density, 2 * up), (down - low, 2 * down))


def _fixed_batch(pair: Pair) -> Law:
    """The curve of "remove" beyond half of the shift, its mirror image, and an atom at 0."""
    shift, rate = _numbers(pair, "shift", "rate")
    p = [(ball(w), x) for w, x in ((1 - rate, _ZERO), (rate, shift)) if w > 0]
    pieces = intervals(_noise(pair["noise"]), p, [(arb(1), _ZERO)], start=shift / 2)
    half = total(x.mass(*piece.ends()) for piece in pieces for x in piece.q)
    middle = arb(0), ball(1 - rate) * (1 - 2 * half)
    return from_intervals([*pieces, *(piece.mirrored() for piece in pieces)], [middle])


def _coin(pair: Pair, exchanged: bool) -> Law:
    """A public coin selects one of several laws."""
    atoms, curves, rests, infinite = [], [], [], arb(0)
    for w, part in zip(_shares(pair["log_shares"]), pair["pairs"], strict=True):
        law = None if w.is_zero() else law_of(part, exchanged)
        law = law or Law([(arb(0), arb(1))])
        atoms += [(x, w * m) for x, m in law.atoms]
        curves += [Curve(curve.interval.times(w)) for curve in law.curves]
        infinite += w * law.infinite
        rests += [(w, law.rest)] if law.rest else []
    rest = (lambda c: total(w * part(c) for w, part in rests)) if rests else None
    return Law(atoms, curves, infinite=infinite, rest=rest)


def _shares(logs: list[Any]) -> list[Any]:
    """Probabilities from their logarithms, divided by their sum."""
    shares = [arb(0) if x == -math.inf else ball(x).exp() for x in logs]
    whole = total(shares)
    return [x if x == 0 else x / whole for x in shares]


def _noise(record: Pair) -> Noise:
    if record["kind"] not in NOISES:
        raise ValueError(f"noise must be one of {', '.join(NOISES)} here, got {record['kind']}")
    build, names = NOISES[record["kind"]]
    return build(*_numbers(record, *names))
