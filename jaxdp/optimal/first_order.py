"""Tables of optimised noise, batched over budgets, on any device, certified on the host."""

import math
from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxdp import _check
from jaxdp._types import RealLike
from jaxdp.noise.histogram import Certificate, Histogram, from_whole
from jaxdp.optimal.certify import positive, safe_law, slack, weights_of
from jaxdp.optimal.dual import dual_bound
from jaxdp.optimal.exact import TOTAL, exact_delta, float_above
from jaxdp.optimal.halpern import Budgets, Costs, State, norms, solve
from jaxdp.optimal.measure import MeasureLike, measure_of
from jaxdp.optimal.program import Block, Shape

_ULP = float(np.finfo(np.float64).eps)


class NoiseTable(NamedTuple):
    """Arrays of the budgets' shape: certified brackets, exact deltas, whether the gap was met."""

    loss_lower: np.ndarray
    loss_upper: np.ndarray
    delta: np.ndarray
    met: np.ndarray
    steps: np.ndarray
    noises: tuple[Histogram, ...]  # in the order of the flattened budgets


def optimal_noise_table(
    epsilon: RealLike,
    delta: RealLike,
    loss: MeasureLike = "l1",
    *,
    sensitivity: float = 1.0,
    resolution: int = 10,
    support: float = 4.0,
    gap: float = 1e-3,
    max_steps: int = 20_000,
) -> NoiseTable:
    """`optimal_noise` for arrays of budgets at once, without an LP solver, even losses only.

    epsilon, delta: concrete, broadcast together; one grid serves all, so `support` (in the
    query's unit) must be long enough for each: ceil(log(1 + (e^epsilon - 1) / (2 delta)) /
    epsilon) sensitivities is. A lane stops when its bracket is narrower than `gap` times
    max(1, loss), or at `max_steps`, where `met` is False and the bracket as wide as it is. There
    is no atom at 0: the upper bound is the higher by about P[|T| < width / 2] width / 4.
    ValueError: as `optimal_noise`. Per lane it is slower than the LP on a CPU.
    """
    measure = measure_of(loss)
    if not measure.even:
        raise ValueError("loss must be even here: optimal_noise takes others")
    epsilons, deltas = (np.asarray(x) for x in np.broadcast_arrays(*_budget(epsilon, delta)))
    sensitivity = positive("sensitivity", sensitivity)
    width = math.nextafter(sensitivity / resolution, math.inf)
    half = math.ceil(positive("support", support) / width)
    cells = 2 * half + 1
    shapes = [
        Shape(cells, resolution, ((float(e), float(d)),), True, False)
        for e, d in zip(epsilons.ravel(), deltas.ravel(), strict=True)
    ]
    asked = np.array([d - slack(cells, e, d) for ((e, d),) in (s.budgets for s in shapes)])
    safe = [
        safe_law(s._replace(budgets=((s.budgets[0][0], float(a)),)))
        for s, a in zip(shapes, asked, strict=True)
    ]
    short = [s.budgets[0] for s, law in zip(shapes, safe, strict=True) if law is None]
    if short:
        raise ValueError(f"support must be longer for budgets {short}, got {support}")
    values = measure.node_values(np.arange(-half - 1, half + 2) * (width * (1.0 - 8.0 * _ULP)))
    means = measure.cell_means((np.arange(cells + 1) - 0.5 * cells) * width)
    costs = Costs(jnp.asarray(np.append(values[1:-1], values[0])), jnp.asarray(means))
    growth = np.exp(epsilons.ravel())
    budgets = Budgets(
        jnp.asarray(growth),
        jnp.asarray(asked),
        jnp.asarray(np.stack([law[0] for law in safe if law])),
        jnp.asarray(np.array([law[1] for law in safe if law])),
        norms(jnp.asarray(growth), cells, resolution),
    )
    found = solve(budgets, costs, resolution, gap, max_steps)
    lanes = [jax.tree.map(lambda x, i=i: np.asarray(x[i]), found) for i in range(len(shapes))]
    made = [
        _certificate(shape, lane, values, means, sensitivity, gap)
        for shape, lane in zip(shapes, lanes, strict=True)
    ]
    noises = tuple(from_whole(width, w.tolist(), 0, c) for w, c in made)
    grid = epsilons.shape
    return NoiseTable(
        np.array([c.loss_lower for _, c in made]).reshape(grid),
        np.array([c.loss_upper for _, c in made]).reshape(grid),
        np.array([c.deltas[0] for _, c in made]).reshape(grid),
        np.array([c.complete for _, c in made]).reshape(grid),
        np.asarray(found.steps).reshape(grid),
        noises,
    )


def _budget(epsilon: RealLike, delta: RealLike) -> tuple[np.ndarray, np.ndarray]:
    if not (_check.is_concrete(epsilon) and _check.is_concrete(delta)):
        raise ValueError("epsilon and delta must be concrete: certificates are made on the host")
    high = np.asarray(_check.real("epsilon", epsilon, 0.0, 30.0, open_lower=True))
    low = np.asarray(_check.real("delta", delta, 0.0, 1.0, open_lower=True))
    return high, low


def _certificate(
    shape: Shape,
    lane: State,
    values: np.ndarray,
    means: np.ndarray,
    sensitivity: float,
    gap: float,
) -> tuple[np.ndarray, Certificate]:
    """Whole weights and multipliers, judged as if they came from anywhere."""
    ((epsilon, delta),) = shape.budgets
    weights = weights_of(np.asarray(lane.best_law), 0.0, shape)
    weights[shape.cells // 2] += weights[-1]
    weights = weights[:-1]
    kept = exact_delta(weights, 0, shape.steps, epsilon)
    if kept > Fraction(delta):
        raise ValueError(f"delta must be larger for weights of 2^-40, got {delta}")
    dual = np.asarray(lane.best_dual)
    blocks = tuple(
        Block(k, 0, np.where(np.arange(shape.cells) >= k, dual[k - 1, :-1], 0.0), dual[k - 1, -1])
        for k in range(1, shape.steps + 1)
    )
    lower = dual_bound(shape, values[1:-1], values[[0, -1]], blocks, np.zeros(0))
    upper = math.fsum(means * weights) / TOTAL * (1.0 + 32.0 * _ULP)
    met = upper - lower <= gap * max(1.0, upper) * (1.0 + 1e-3)
    lower = max(lower - 16.0 * _ULP * abs(lower), 0.0)
    return weights, Certificate(
        lower, upper, (epsilon,), (float_above(kept),), sensitivity, bool(met)
    )
