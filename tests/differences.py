"""Derivatives against differences."""

import jax
import numpy as np


def check_gradient(function, point, rtol=1e-6, step=1e-6):
    """In each argument, against values a share `step` of it to either side."""
    gradient = jax.grad(function, tuple(range(len(point))))(*point)
    for k, slope in enumerate(gradient):
        h = step * point[k]
        up, down = ((*point[:k], point[k] + x, *point[k + 1 :]) for x in (h, -h))
        numeric = (function(*up) - function(*down)) / (2 * h)
        np.testing.assert_allclose(slope, numeric, rtol=rtol, err_msg=f"argument {k}")
    return gradient
