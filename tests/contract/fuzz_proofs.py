"""Random statements on lattices and of Laplace noise, each proved by the second program."""

import math
import random

import jaxdp as dp


def statement(draw: random.Random) -> tuple[str, dp.PrivacyLoss]:
    """A composition of 1 to 1e4 releases, whose epsilon is of the order of 1."""
    count = round(10 ** draw.uniform(0, 4))
    size = math.sqrt(count) * 10 ** draw.uniform(-0.5, 1)
    shift = draw.randint(1, 4)
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
    """The statements of `count` that the second program does not prove."""
    draw, found = random.Random(number), []
    for _ in range(count):
        name, loss = statement(draw)
        delta = 10 ** draw.uniform(-20, -2)
        epsilon = float(loss.epsilon(delta))
        if epsilon < math.inf and dp.verify(loss, epsilon, delta).proved is not True:
            found.append(f"{name}: epsilon {epsilon!r} at delta {delta!r}")
    return found
