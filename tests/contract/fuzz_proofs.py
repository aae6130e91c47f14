"""Random statements on lattices and of Laplace noise, each proved by the second program."""

import math
import random

import jaxdp as dp

LAPLACE = 1 / 6  # probability of a Laplace statement. chosen: one of six kinds
MOST_LAPLACES = 200  # of its releases. measured: 200 take .1 s, 600 take seconds
# An epsilon above all finite losses. derived: they are at most 4 count / size, 1,300
ABOVE_ALL = 1e4


def statement(draw: random.Random) -> tuple[str, dp.PrivacyLoss]:
    """A composition of 1 to 1e4 releases, whose epsilon is of the order of 1."""
    laplace = draw.random() < LAPLACE
    count = round(10 ** draw.uniform(0, math.log10(MOST_LAPLACES) if laplace else 4))
    size = math.sqrt(count) * 10 ** draw.uniform(-0.5, 1)
    shift = draw.randint(1, 4)
    if laplace:
        loss = count * dp.privacy_loss(dp.Mechanism(dp.Laplace(size), 1.0))
        return f"{count} x Laplace at {size}", loss
    kind, release = draw.choice(
        [
            ("pure", lambda: dp.PureDP(1 / size)),
            ("approximate", lambda: dp.ApproxDP(1 / size, 10 ** draw.uniform(-20, -10))),
            ("responses", lambda: dp.RandomisedResponse(1 / size, draw.randint(2, 9))),
            ("discrete Laplace", lambda: dp.Mechanism(dp.DiscreteLaplace(size), shift)),
            ("staircase", lambda: dp.Mechanism(dp.Staircase(1 / size, 1.0, draw.random()), 1.5)),
        ]
    )
    return f"{count} x {kind} at {size}, {shift}", count * dp.privacy_loss(release())


def refuted(count: int, number: int) -> list[str]:
    """The statements of `count` that the second program does not prove.

    Where no epsilon has so small a delta, it must refute one above all finite losses.
    """
    draw, found = random.Random(number), []
    for _ in range(count):
        name, loss = statement(draw)
        delta = 10 ** draw.uniform(-20, -2)
        epsilon = float(loss.epsilon(delta))
        proof = dp.verify(loss, min(epsilon, ABOVE_ALL), delta)
        if proof.proved is not (epsilon < math.inf):
            found.append(f"{name}: epsilon {epsilon!r} at delta {delta!r}")
    return found
