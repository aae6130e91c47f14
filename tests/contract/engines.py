"""Pairs asked as engines ask them: constants meet batches, and known numbers compile nothing."""

import jax
import numpy as np

from jaxdp._core.float64 import in_float64


@in_float64
def asked(method, *arguments):
    """The answer of a pair's method, as arrays of NumPy."""
    with jax.numpy_rank_promotion("allow"):
        return method(*arguments)


def one(pair):
    """With an axis along which releases compose."""
    return jax.tree.map(lambda x: np.broadcast_to(x, (1,)), pair)


def law_of(pair):
    """Losses and logarithms of masses of a pair's law, its largest and its infinite loss."""
    law = asked(pair.law)
    parts = (law.loss, law.log_mass, law.largest, law.log_infinite)
    return tuple(np.asarray(x)[0] for x in parts)
