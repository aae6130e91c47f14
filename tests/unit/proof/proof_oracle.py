"""Densities, masses and integrals of the laws, written without the prover, in python-flint."""

import itertools
import math
from math import comb

from flint import acb, arb, fmpq

from jaxdp.proof.balls import precision

with precision(128):
    RULE = [arb.legendre_p_root(30, k, weight=True) for k in range(30)]


def exact(x):
    return arb(fmpq(*x.as_integer_ratio()))


def normal_tail(x):
    return (x / arb(2).sqrt()).erfc() / 2


def gaussian_delta(mu, epsilon):
    return normal_tail(epsilon / mu - mu / 2) - epsilon.exp() * normal_tail(epsilon / mu + mu / 2)


def log_density(kind, side, *parameters):
    """log density as an analytic function, on the side (-1, 1) of 0 and of the kinks."""
    a, b = map(exact, (*parameters, 1.0)[:2])
    if kind == "gaussian":
        return lambda x: -((x / a) ** 2) / 2 - (a * (2 * arb.pi()).sqrt()).log()
    if kind == "laplace":
        return lambda x: -side * x / a - (2 * a).log()
    if kind == "truncated_laplace":
        return lambda x: -side * x / a - (2 * a * (1 - (-b / a).exp())).log()
    if kind == "offset_gaussian":
        norm = 2 * b * (2 * arb.pi()).sqrt() * normal_tail(a / b)
        return lambda x: -(((side * x + a) / b) ** 2) / 2 - norm.log()
    assert kind == "flipped_huber"
    kappa = 2 * b * b / a * (1 - (-((a / b) ** 2)).exp())
    kappa += 2 * b * (2 * arb.pi()).sqrt() * (-((a / b) ** 2) / 2).exp() * normal_tail(a / b)
    if abs(side) == 1:
        return lambda x: -side * x * a / b**2 - kappa.log()
    return lambda x: -((x / b) ** 2 + (a / b) ** 2) / 2 - kappa.log()


def side_of(kind, x, *parameters):
    """1 or -1; doubled outside of the flipped Huber's centre; 0 outside of the support."""
    sign = 1 if x > 0 else -1
    if kind == "flipped_huber" and abs(x) > parameters[0]:
        return 2 * sign
    return 0 if kind == "truncated_laplace" and abs(x) > parameters[1] else sign


def kinks(kind, *parameters):
    if kind == "gaussian":
        return []
    if kind == "flipped_huber":
        return [-parameters[0], 0.0, parameters[0]]
    return [-parameters[1], 0.0, parameters[1]] if kind == "truncated_laplace" else [0.0]


def transform(kind, parameters, p, q, reach, start=None, sign=1):
    """s -> the integral of P (P / Q)^s from -reach or start to reach, for components (weight,
    shift); of the exchanged pair if sign is -1. By Gauss rules of order 30 on short panels.
    """
    edges = {e + shift for e in kinks(kind, *parameters) for _, shift in (*p, *q)}
    low = -reach if start is None else start
    edges = sorted({e for e in edges if low < e < reach} | {low, reach})
    nodes = []
    for a, b in itertools.pairwise(edges):
        sides = [
            [
                (exact(weight), exact(shift), log_density(kind, side, *parameters))
                for weight, shift in components
                if (side := side_of(kind, (a + b) / 2 - shift, *parameters))
            ]
            for components in (p, q)
        ]
        if not all(sides):
            continue
        n_panels = math.ceil((b - a) / 0.5)
        for i in range(n_panels):
            half = (exact(b) - exact(a)) / (2 * n_panels)
            for y, weight in RULE:
                x = exact(a) + half * (2 * i + 1 + y)
                log_p, log_q = (
                    sum((w * f(x - d).exp() for w, d, f in terms), arb(0)).log() for terms in sides
                )
                log_p, log_q = (log_p, log_q)[::sign]
                if log_p > -400:
                    nodes.append(((half * weight).log() + log_p, log_p - log_q))

    def value(s):
        return sum(((acb(w) + s * x).exp() for w, x in nodes), acb(0))

    return value


def response_delta(n, bound, epsilon):
    """Of n randomised responses, as a binomial sum."""
    e = exact(bound).exp()
    p, q, target = e / (1 + e), 1 / (1 + e), exact(epsilon)
    losses = ((k, (2 * k - n) * exact(bound)) for k in range(n + 1))
    return sum(
        (
            comb(n, k) * p**k * q ** (n - k) * (1 - (target - x).exp())
            for k, x in losses
            if x > target
        ),
        arb(0),
    )


def sum_of_atoms(atoms, n, epsilon):
    """delta of n releases, by convolution of (loss, mass) with whole keys k: loss(k)."""
    masses, loss = atoms
    total = {0: arb(1)}
    for _ in range(n):
        new = {}
        for i, x in total.items():
            for k, y in masses.items():
                new[i + k] = new.get(i + k, arb(0)) + x * y
        total = new
    target = exact(epsilon)
    parts = (m * (1 - (target - loss(k, n)).exp()) for k, m in total.items() if loss(k, n) > target)
    return sum(parts, arb(0))
