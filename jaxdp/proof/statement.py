"""A stored privacy loss as data, and the laws of its releases in each direction."""

from __future__ import annotations

import hashlib
import json
import math
from fractions import Fraction
from typing import Any, NamedTuple

from jaxdp.proof import finite
from jaxdp.proof.balls import arb, ball
from jaxdp.proof.density import Density
from jaxdp.proof.finite import Finite
from jaxdp.proof.law import Law
from jaxdp.proof.mixed import Coin, Gaussian, Laplace
from jaxdp.proof.mixture import Mixture
from jaxdp.proof.noises import NOISES, Component, Noise, intervals

# Relations under which the worse of two directions is reported.
_BOTH = ("add_remove", "zero_out")
# Deviations of a discrete Gaussian that are kept: 12 of a tilt, and 70 bits. chosen
_REACH = 30
_LEFT_OUT = {
    "Allocation": "random allocation",
    "BoundedRange": "the exponential mechanism, whose bound by Renyi divergences can be smaller",
}
Releases = list[tuple[int, Law]]


class Statement(NamedTuple):
    """The releases as rows (how often, pair), and the relation."""

    relation: str | None
    rows: tuple[tuple[int, dict[str, Any]], ...]

    @property
    def directions(self) -> tuple[bool, ...]:
        """Whether pairs are exchanged, for each direction that counts."""
        return (False, True) if self.relation in _BOTH else (False,)

    def releases(self, exchanged: bool) -> Releases:
        """The laws of one direction, and how often each is made."""
        laws = ((count, law_of(pair, exchanged)) for count, pair in self.rows)
        return [(count, law) for count, law in laws if law is not None]


def read(text: str) -> Statement:
    """The statement that `PrivacyLoss.to_json` wrote; `ValueError` for anything else."""
    try:
        body = json.loads(text)
    except (RecursionError, ValueError) as error:
        raise ValueError(f"statement must be JSON, got {text[:40]!r}") from error
    if not isinstance(body, dict) or body.get("format") != "jaxdp-privacy-loss":
        raise ValueError("statement must be the JSON of a jaxdp-privacy-loss")
    digest = body.pop("digest", None)
    content = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    if body.get("version") != 1 or digest != hashlib.sha256(content).hexdigest():
        raise ValueError("statement must be of version 1 and unchanged: its digest differs")
    rows: dict[str, tuple[int, dict[str, Any]]] = {}
    try:
        for term in body["terms"]:
            size = _length(term)
            for i in range(size):
                pair, count = _at(term["pair"], i), _at(term["count"], i)
                key = repr(pair)
                rows[key] = (rows[key][0] if key in rows else 0) + _whole(count), pair
    except (KeyError, TypeError) as error:
        raise ValueError(f"statement must hold pairs with counts, lacks {error}") from error
    kept = tuple(row for row in rows.values() if row[0] > 0)
    return Statement(body.get("relation"), kept)


def _length(plain: Any) -> int:
    """Length of the axis of releases; the batch must have one element."""
    if isinstance(plain, dict) and "shape" in plain:
        shape = plain["shape"]
        if math.prod(shape[:-1]) != 1:
            raise ValueError(f"statement must hold one loss, got a batch of {shape[:-1]}")
        return shape[-1] if shape else 1
    parts = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list) else ()
    lengths = {_length(part) for part in parts} - {1}
    if len(lengths) > 1:
        raise ValueError(f"statement must hold arrays of one length, got {sorted(lengths)}")
    return lengths.pop() if lengths else 1


def _at(plain: Any, i: int) -> Any:
    """Release i, its numbers exact; -inf, inf and NaN as floats."""
    if isinstance(plain, dict) and "shape" in plain:
        values = plain["values"]
        return _at(values[i if len(values) > 1 else 0], i)
    if isinstance(plain, dict):
        return {key: value if key == "kind" else _at(value, i) for key, value in plain.items()}
    if isinstance(plain, list):
        return [_at(value, i) for value in plain]
    x = float.fromhex(plain)
    return Fraction(x) if math.isfinite(x) else x


def _whole(x: Any) -> int:
    if not isinstance(x, Fraction) or x.denominator != 1 or x < 0:
        raise ValueError(f"count must be whole and at least 0, got {x}")
    return int(x)


def _numbers(record: dict[str, Any], *names: str) -> list[Fraction]:
    """Finite fields."""
    for name in names:
        if not isinstance(record[name], Fraction):
            raise ValueError(f"{name} must be finite for a proof, got {record[name]}")
    return [record[name] for name in names]


def law_of(pair: dict[str, Any], exchanged: bool) -> Law | None:
    """The law of one release, P and Q exchanged if asked; None if its loss is always 0."""
    kind = pair["kind"]
    if kind in _BUILT:
        return _BUILT[kind](pair, exchanged)
    reason = _LEFT_OUT.get(kind, f"pairs of kind {kind}")
    raise ValueError(f"statement must be of kinds that can be proved: {reason} cannot")


def _additive(pair: dict[str, Any], exchanged: bool) -> Law | None:
    del exchanged  # the noise is symmetric
    noise, (shift,) = pair["noise"], _numbers(pair, "shift")
    if shift == 0:
        return None
    if noise["kind"] == "Subbotin" and noise["power"] in (1, 2):
        noise = {**noise, "kind": "Laplace" if noise["power"] == 1 else "Gaussian"}
    if noise["kind"] == "Gaussian":
        (scale,) = _numbers(noise, "scale")
        return Gaussian(ball(shift / scale) ** 2)
    if noise["kind"] == "Laplace":
        return Laplace(shift / _numbers(noise, "scale")[0], None)
    if noise["kind"] == "TruncatedLaplace":
        scale, bound = _numbers(noise, "scale", "bound")
        return Laplace(shift / scale, bound / scale)
    atoms = _atoms(pair)
    one = arb(1)
    return atoms or _density(noise, [(one, shift)], [(one, Fraction(0))])


def _atoms(pair: dict[str, Any]) -> Finite | None:
    """The law of a pair with atoms alone; None for another pair."""
    kind = pair["kind"]
    if kind == "Response":
        return finite.response(*_numbers(pair, "bound", "failure"))
    if kind == "RandomisedResponse":
        return finite.randomised_response(*_numbers(pair, "bound", "categories"))
    if kind == "Finite":
        return _finite(pair)
    noise, kind = pair.get("noise", {}), pair.get("noise", {}).get("kind")
    if kind == "Staircase":
        steps = _numbers(noise, "epsilon", "sensitivity", "split")
        return finite.staircase(*steps, *_numbers(pair, "shift"))
    if kind not in ("DiscreteLaplace", "DiscreteGaussian"):
        return None
    (scale,), (shift,) = _numbers(noise, "scale"), _numbers(pair, "shift")
    if shift.denominator != 1:
        raise ValueError(f"shift must be whole for a discrete noise, got {float(shift)}")
    if kind == "DiscreteLaplace":
        return finite.discrete_laplace(scale, int(shift))
    return finite.discrete_gaussian(scale, int(shift), math.ceil(_REACH * scale + shift) + 10)


def _finite(pair: dict[str, Any], exchanged: bool = False) -> Finite:
    infinite, hidden = _numbers(pair, "infinite", "hidden")
    losses, masses = ([ball(x) for x in pair[name]] for name in ("losses", "masses"))
    pairs = list(zip(losses, masses, strict=True))
    if (pair["backward"] > 0) != exchanged:
        return Finite([(-x, m * (-x).exp()) for x, m in pairs], ball(hidden))
    return Finite(pairs, ball(infinite))


def _only_q(pair: dict[str, Any], law: Finite) -> Any:
    """Mass of Q where P has none."""
    if pair["kind"] == "Finite":
        return ball(pair["infinite" if pair["backward"] > 0 else "hidden"])
    return law.infinite


def _poisson(pair: dict[str, Any], exchanged: bool) -> Law | None:
    base, (q, added) = pair["base"], _numbers(pair, "sampling_prob", "added")
    added = (added > 0) != exchanged
    if q == 0:
        return None
    if q == 1 and base["kind"] != "Finite":
        return law_of(base, False)
    atoms = _atoms(base)
    if atoms is not None:
        return finite.sampled(atoms, _only_q(base, atoms), ball(q), added)
    if base["kind"] != "Additive":
        raise ValueError(f"base must be a noise or have atoms for a proof, got {base['kind']}")
    (shift,) = _numbers(base, "shift")
    if shift == 0:
        return None
    missed = (ball(1 - q), Fraction(0))
    return _density(base["noise"], [missed, (ball(q), shift)], [(arb(1), Fraction(0))], added)


def _replaced(pair: dict[str, Any], exchanged: bool) -> Law | None:
    del exchanged  # the noise is symmetric
    shift, q = _numbers(pair, "shift", "sampling_prob")
    if shift == 0 or q == 0:
        return None
    missed = (ball(1 - q), Fraction(0))
    return _density(pair["noise"], [missed, (ball(q), shift)], [missed, (ball(q), -shift)])


def _fixed_batch(pair: dict[str, Any], exchanged: bool) -> Law | None:
    """The curve of "remove" beyond half of the shift, its mirror image, and an atom at 0."""
    del exchanged  # the law is symmetric
    shift, rate = _numbers(pair, "shift", "rate")
    if shift == 0 or rate == 0:
        return None
    noise = _noise(pair["noise"])
    q = [Component(arb(1), Fraction(0))]
    p = [Component(ball(1 - rate), Fraction(0)), Component(ball(rate), shift)]
    pieces = intervals(noise, p, q, start=shift / 2)
    half = sum(
        (
            x.mass(*(None if y is None else ball(y) for y in (piece.start, piece.stop)))
            for piece in pieces
            for x in piece.q
        ),
        arb(0),
    )
    middle = (arb(0), ball(1 - rate) * (1 - 2 * half))
    return Density([*pieces, *(piece.mirrored() for piece in pieces)], [middle])


def _group(pair: dict[str, Any], exchanged: bool) -> Law | None:
    (shift, added), noise = _numbers(pair, "shift", "added"), pair["noise"]
    weights = _shares(pair["log_probabilities"])
    p = [(w, k * shift) for k, w in enumerate(weights)]
    return _density(noise, p, [(arb(1), Fraction(0))], (added > 0) != exchanged)


def _mixture(pair: dict[str, Any], exchanged: bool) -> Law | None:
    noise = {"kind": "Gaussian", "scale": pair["scale"]}
    means, others = pair["sensitivities"], pair["other_sensitivities"]
    p = zip(_shares(pair["log_probabilities"]), means, strict=True)
    q = zip(_shares(pair["other_log_probabilities"]), (-x for x in others), strict=True)
    return _density(noise, list(p), list(q), exchanged)


def _coin(pair: dict[str, Any], exchanged: bool) -> Law | None:
    shares = _shares(pair["log_shares"])
    laws = [law_of(part, exchanged) for part in pair["pairs"]]
    parts = [(w, law) for w, law in zip(shares, laws, strict=True) if not w.is_zero()]
    if all(law is None for _, law in parts):
        return None
    nothing = Finite([(arb(0), arb(1))])
    return Coin([w for w, _ in parts], [law or nothing for _, law in parts])


def _shares(logs: list[Any]) -> list[Any]:
    """Probabilities from their logarithms, divided by their sum."""
    shares = [arb(0) if x == -math.inf else ball(x).exp() for x in logs]
    total = sum(shares, arb(0))
    return [x if x == 0 else x / total for x in shares]


def _noise(record: dict[str, Any]) -> Noise:
    if record["kind"] not in NOISES:
        raise ValueError(f"noise must be one of {', '.join(NOISES)} here, got {record['kind']}")
    build, names = NOISES[record["kind"]]
    return build(*_numbers(record, *names))


def _density(noise: dict[str, Any], p: Any, q: Any, exchanged: bool = False) -> Law:
    """Mixtures of a noise; exchanged, the image under x -> -x, so that the loss rises."""
    built = _noise(noise)
    sides: Any = tuple([Component(w, x) for w, x in side if not w.is_zero()] for side in (p, q))
    top = None
    if exchanged:
        sides = tuple([Component(w, -x) for w, x in side] for side in reversed(sides))
        missed = [w for w, x in sides[1] if x == 0]
        if [x for _, x in sides[0]] == [0] and missed:
            top = -missed[0].log()
    if len(built.segments) == 1 and not built.kinked:
        (scale,) = _numbers(noise, "scale") if "scale" in noise else _numbers(noise, "gamma")
        return Mixture(scale, *sides, top=top)
    return Density(intervals(built, sides[0], sides[1]), top=top)


_BUILT = {
    "Additive": _additive,
    "Response": lambda pair, exchanged: _atoms(pair),
    "RandomisedResponse": lambda pair, exchanged: _atoms(pair),
    "Finite": lambda pair, exchanged: _finite(pair, exchanged),
    "Poisson": _poisson,
    "Replaced": _replaced,
    "FixedBatch": _fixed_batch,
    "SampledGroup": _group,
    "GaussianMixture": _mixture,
    "PublicCoin": _coin,
}
