"""Balls of python-flint: real numbers with an error bound that every operation carries on."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

try:
    from flint import acb, arb, arb_poly, ctx, fmpq
except ImportError as error:
    raise ImportError("python-flint is needed here: pip install 'jaxdp-privacy[verify]'") from error

__all__ = ["acb", "arb", "arb_poly", "ctx", "fmpq"]

# Precision of bounds, whose value need not be close. chosen: a double's, and some
ROUGH = 64


def ball(x: Any) -> Any:
    """The number itself: a float is the binary number that it is."""
    return arb(fmpq(x.numerator, x.denominator)) if isinstance(x, Fraction) else arb(x)


def total(terms: Any) -> Any:
    """Sum of balls."""
    return sum(terms, arb(0))


def within(radius: Any) -> Any:
    """The interval from -radius to radius."""
    return arb(0, arb(radius).abs_upper())


def number(x: Any) -> float:
    """The midpoint as a float, for choices that no conclusion rests on."""
    return float(x.mid())


def log_number(x: Any) -> float:
    """log of the midpoint, or -inf."""
    return float(x.mid().log().mid()) if x.mid() > 0 else -math.inf


def log_sum(terms: list[float]) -> float:
    """log of the sum of e^x, in floating point."""
    largest = max(terms, default=-math.inf)
    if largest == -math.inf:
        return largest
    return largest + math.log(sum(math.exp(x - largest) for x in terms))


def positive_part(x: Any) -> Any:
    """max(x, 0)."""
    return arb.max(x, arb(0))


def normal_tail(x: Any) -> Any:
    """P[N(0, 1) > x]."""
    return (x / arb(2).sqrt()).erfc() / 2


@contextlib.contextmanager
def precision(bits: int) -> Iterator[None]:
    """Precision of `bits` bits inside the block."""
    before, ctx.prec = ctx.prec, bits
    try:
        yield
    finally:
        ctx.prec = before


@functools.lru_cache(maxsize=512)
def gauss_rule(order: int, bits: int) -> list[tuple[Any, Any]]:
    """Nodes and weights of Gauss and Legendre on [-1, 1]."""
    with precision(bits):
        return [arb.legendre_p_root(order, k, weight=True) for k in range(order)]


class OutOfTimeError(Exception):
    """The limit of `limited` is over."""


_deadline = [math.inf]


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Limits the CPU seconds inside the block, which `on_time` checks."""
    before, _deadline[0] = _deadline[0], time.thread_time() + seconds
    try:
        yield
    finally:
        _deadline[0] = before


def on_time() -> None:
    """Raises `OutOfTimeError` after the limit; loops call it."""
    if time.thread_time() > _deadline[0]:
        raise OutOfTimeError
