"""Decision of delta(epsilon) <= delta: proved, refuted or left open."""

from __future__ import annotations

import dataclasses
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

from jaxdp.proof import contour, exact
from jaxdp.proof.balls import (
    OutOfTimeError,
    arb,
    ball,
    ctx,
    limited,
    log_number,
    positive_part,
    precision,
    total,
)
from jaxdp.proof.contour import Bracket
from jaxdp.proof.law import Releases
from jaxdp.proof.statement import Statement, read

# Points of a sum and CPU seconds at most, by default. chosen
POINTS, SECONDS = 40000, 60.0
# Bits of closed forms, and digits of a bound. chosen
_BITS, _MOST_BITS, _DIGITS = 320, 2000, 17
# Digits of an exponent in text at most. chosen: 10^9999 is exact in no time
_EXPONENT_DIGITS = 4
NOTE = (
    "Assumes that the statement's pairs dominate the mechanism and its sampler, and that the laws "
    "written in this program are those of the kinds named in the statement."
)


@dataclasses.dataclass(frozen=True)
class Proof:
    """Result of a proof of delta(epsilon) <= delta.

    proved: True, False (proved to be wrong), or None (open).
    lower, upper: proved bounds on delta(epsilon), as decimal text that is rounded outwards.
    points: number of points of the sums, 0 for a closed form.
    note: what is assumed.
    """

    proved: bool | None
    lower: str
    upper: str
    points: int
    note: str = NOTE

    def __str__(self) -> str:
        word = {True: "Proved", False: "Refuted", None: "Open"}[self.proved]
        return f"{word} in ball arithmetic: {self.lower} <= delta <= {self.upper}."


def verify(
    loss: Any, epsilon: Any, delta: Any, *, most_points: int = POINTS, seconds: float = SECONDS
) -> Proof:
    """Prove or refute that a privacy loss has delta(epsilon) <= delta.

    Args:
        loss: a `PrivacyLoss` of batch shape (), or the text of its `to_json`.
        epsilon, delta: the statement. Floats of every precision are the binary numbers that they
            are; text such as "1e-5", fractions and decimals are exact.
        most_points: points of a sum, or terms of an exact delta, at most; more take longer and
            prove more. The law of a release is bounded by `seconds` alone.
        seconds: CPU seconds after which the statement is left open.

    Returns:
        A `Proof`. Where the relation has two directions, it is about the larger delta. `ValueError`
        for records that are no loss (`schema.check`), kinds that cannot be proved and values out of
        range.

    The program reads the numbers of the statement and shares no arithmetic with the accountant; see
    docs/proof.md.

    >>> import jaxdp as dp
    >>> loss = 10 * dp.privacy_loss(dp.Mechanism(dp.Laplace(5.0), 1.0))
    >>> dp.verify(loss, loss.epsilon(1e-5), 1e-5).proved
    True
    """
    if most_points < 16:
        raise ValueError(f"most_points must be at least 16, got {most_points}")
    if not seconds > 0:
        raise ValueError(f"seconds must be above 0, got {seconds}")
    text = loss if isinstance(loss, str) else getattr(loss, "to_json", str)()
    statement = read(text)
    exact_epsilon, goal = _exact("epsilon", epsilon), _exact("delta", delta)
    lower, upper, points = arb(0), arb(0), 0
    # What a closed form loses, as its terms are e^-epsilon and more.
    with precision(_BITS + 2 * int(min(exact_epsilon * (exact_epsilon + 1), _MOST_BITS))):
        try:
            with limited(seconds):
                for exchanged in statement.directions:
                    found = bracket(statement, exchanged, exact_epsilon, most_points)
                    lower, upper = arb.max(lower, found.lower), arb.max(upper, found.upper)
                    points += found.points
        except OutOfTimeError:
            upper = arb(1)
        proved = True if upper <= ball(goal) else False if lower > ball(goal) else None
        return Proof(proved, decimal(lower, False), decimal(upper, True), points)


def _exact(name: str, number: Any) -> Fraction:
    """The number without rounding, of any type that has an exact ratio."""
    try:
        exact = number.item() if hasattr(number, "item") else number  # one element of an array
        if isinstance(exact, bool):
            raise ValueError
        if isinstance(exact, str | Decimal):
            if len(str(exact).lower().partition("e")[2].lstrip("+-0")) > _EXPONENT_DIGITS:
                raise OverflowError
            value = Fraction(exact)
        else:
            value = Fraction(*exact.as_integer_ratio())
    except (AttributeError, OverflowError, ValueError, ZeroDivisionError) as error:
        raise ValueError(f"{name} must be a finite number, got {number!r}") from error
    if value < 0 or (name == "delta" and value > 1):
        rule = "lie in [0, 1]" if name == "delta" else "be at least 0"
        raise ValueError(f"{name} must {rule}, got {number!r}")
    return value


def bracket(statement: Statement, exchanged: bool, epsilon: Fraction, most_points: int) -> Bracket:
    """Bounds on delta(epsilon) in one direction, infinite losses included."""
    with precision(max(_BITS, ctx.prec)):
        releases = statement.releases(exchanged)
        finite = arb(1)
        for n, law in releases:
            finite *= (1 - law.infinite) ** n
        try:
            found = _of_finite(releases, epsilon, most_points)
        except (ArithmeticError, ValueError):  # floats that choose parameters left their range
            found = Bracket(arb(0), arb(1), 0)
        lower, upper = (arb.min(x + 1 - finite, arb(1)) for x in found[:2])
        is_known = lower.is_finite() and upper.is_finite()
        lower, upper = (lower.lower(), upper.upper()) if is_known else (0, 1)
        return Bracket(arb(lower), arb(upper), found.points)


def _of_finite(releases: Releases, epsilon: Fraction, most_points: int) -> Bracket:
    tops: list[tuple[int, Any]] = [(n, law.top) for n, law in releases]
    bounded = all(top is not None for _, top in tops)
    if bounded and ball(epsilon) >= total(n * top for n, top in tops):
        return Bracket(arb(0), arb(0), 0)
    found = exact.delta(releases, epsilon, most_points)
    if found is None:
        return contour.bracket(releases, epsilon, most_points)
    value, points = found
    return Bracket(positive_part(arb(value.lower())), arb(value.upper()), points)


def decimal(x: Any, up: bool) -> str:
    """The number rounded up or down to decimal digits."""
    exact = x.upper() if up else x.lower()
    if exact == 0:
        return "0"
    exponent = math.floor(log_number(exact) / math.log(10)) - _DIGITS + 1
    scaled = exact * arb(10) ** -exponent
    whole = scaled.upper().ceil() if up else scaled.lower().floor()
    text = str(whole.unique_fmpz())
    point = len(text) - 1
    body = text.rstrip("0") or "0"
    mantissa = body[0] + ("." + body[1:] if len(body) > 1 else "")
    return f"{mantissa}e{exponent + point:+03d}"
