"""The contract of every kind of composition: values, brackets, inverses, slopes, bad input, traces.

Values are compared with those that an earlier engine froze, within both stated errors. Every kind
compiles for seconds: some of them stand for all in the default suite.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references
from compositions import KINDS

ROWS = references.load("engine.json")
# Widest bracket of log delta of compositions without atoms, of few or equal releases with atoms.
SMOOTH, KINKED = 1e-8, 1e-4
# And of others: sampled Gaussians; many equal atoms; atoms that a sample scatters.
WIDTHS = {
    "laplace": 1e-3,
    "laplaces": KINKED,
    "flipped_huber": KINKED,
    "hubers_and_laplace": KINKED,
    "offset_gaussian": KINKED,
    "subbotin": KINKED,
    "truncated_laplace": KINKED,
    "staircase": 2e-8,
    "removed_gaussian": 1e-6,
    "added_gaussian": 1e-6,
    "two_phases": 1e-6,
    "steps_and_laplaces": 0.05,
    "sampled_laplace": 1e-3,
    "replaced_laplace": 5e-3,
    "sampled_staircase": 0.05,
    "sampled_discrete_laplace": 0.05,
    "sampled_discrete_gaussian": 0.05,
    "sampled_truncated_laplace": KINKED,
    "truncated_poisson": 1e-4,
    "without_replacement": 1e-6,
    "gaussian_mixture": 1e-5,
}
# Widest bracket of a grid, where a few large losses make it wide.
GRIDS = {"truncated_poisson": 0.1, "gaussian_mixture": 0.15}
# Fewer hits of the record than this: one large loss makes the total, and brackets are wide.
MANY_HITS = 10.0
# One for each engine and each way in which pairs are built.
QUICK = ("gaussian", "laplace", "guarantees", "removed_gaussian")


def kinds(quick=QUICK):
    """All of them; those that are not quick are long."""
    return [pytest.param(k, marks=() if k in quick else pytest.mark.long) for k in KINDS]


def rows_of(kind):
    return [row for row in ROWS if row["kind"] == kind]


def frozen(kind, count=None):
    """The loss of the rows, their epsilons, log deltas and errors, (rows, 3) each."""
    rows = rows_of(kind)[:count]
    names = rows[0]["parameters"]
    columns = {k: jnp.array([[row["parameters"][k]] for row in rows]) for k in names}
    epsilon, log_delta, error = (
        np.array([row[k] for row in rows], dtype=float)
        for k in ("epsilon", "log_delta", "log_delta_error")
    )
    # Null: no lower bound is known.
    return KINDS[kind](**columns), epsilon, log_delta, np.where(np.isnan(error), np.inf, error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [2, pytest.param(None, marks=pytest.mark.long)])
def test_log_delta_lies_within_both_errors(kind, count):
    loss, epsilon, known, known_error = frozen(kind, count)
    found, error = np.asarray(loss.log_delta(epsilon)), np.asarray(loss.log_delta_error(epsilon))
    # Both are upper bounds: each less its own error is below the truth, and so below the other.
    assert np.all(found - error <= known), found - error - known
    assert np.all(known - known_error <= found), known - known_error - found
    wide = (error > WIDTHS.get(kind, SMOOTH)).any(axis=-1)
    hits = np.array([expected_hits(row["parameters"]) for row in rows_of(kind)[:count]])
    assert np.all(~wide | (hits < MANY_HITS)), error
    if np.any(wide):
        pytest.xfail("rare hits")


def expected_hits(parameters):
    """How often the record is sampled; infinite where every release sees it."""
    q = parameters.get("sampling_prob", np.inf)
    return q * parameters.get("count", 1.0)


@pytest.mark.parametrize("kind", kinds())
def test_the_grid_brackets_what_is_known(kind):
    loss, epsilon, known, known_error = frozen(kind, 2)
    lower, upper = (np.log(np.asarray(x)) for x in loss.bounds(epsilon))
    assert np.all(lower <= known)
    assert np.all(known - known_error <= upper)
    assert np.all(upper - lower < GRIDS.get(kind, 0.05)), upper - lower


@pytest.mark.parametrize("kind", kinds())
def test_epsilon_is_feasible_and_not_wasteful(kind):
    loss, epsilon, log_delta, known_error = frozen(kind, 2)
    finite = log_delta > -700.0
    found = np.asarray(loss.epsilon(np.exp(np.where(finite, log_delta, -1.0))))
    reported = np.asarray(loss.log_delta(found))
    # Two brackets on a grid are two grids.
    slack = 1e-6 if kind in WIDTHS else 1e-10
    assert np.all((reported <= log_delta + slack) | ~finite), reported - log_delta
    # An epsilon of which delta is known, so that the least one is no larger.
    wide = np.minimum(known_error, 1.0) + max(WIDTHS.get(kind, 0.0), 1e-7)
    more = np.asarray(loss.log_delta(epsilon * (1.0 - 1e-3))) - log_delta
    least = epsilon - np.where(more > wide, 0.0, np.inf)
    assert np.all((found <= epsilon * (1.0 + 1e-3)) | ~np.isfinite(least))


@pytest.mark.parametrize("kind", kinds(("laplace",)))
def test_derivatives(kind):
    row = rows_of(kind)[0]
    known, name = row["derivative"], row["derivative"]["parameter"]

    def log_delta(value):
        return KINDS[kind](**row["parameters"] | {name: value}).log_delta(row["epsilon"][0])

    slope = float(jax.grad(log_delta)(row["parameters"][name]))
    tolerance = 1e-4 if kind in WIDTHS else 1e-6
    assert abs(slope - known["value"]) <= tolerance * abs(known["value"]) + known["error"]


@pytest.mark.parametrize("kind", kinds())
def test_traces_agree_and_bad_values_claim_nothing(kind):
    """jit = vmap = known values; NaN in any parameter, and a count that is not whole, is NaN."""
    row = rows_of(kind)[1]
    names = list(row["parameters"])
    good = jnp.array([row["parameters"][name] for name in names])
    size = len(names)

    def log_delta(values):
        return KINDS[kind](**dict(zip(names, values, strict=True))).log_delta(row["epsilon"][1])

    bad = jnp.where(jnp.eye(size, dtype=bool), jnp.nan, good[None])
    if "count" in names:
        uneven = jnp.where(jnp.array([name == "count" for name in names]), good + 0.5, good)
        bad = jnp.concatenate([bad, uneven[None]])
    found = jax.jit(jax.vmap(log_delta))(jnp.concatenate([good[None], bad]))
    assert bool(jnp.all(jnp.isnan(found[1:]))), found
    np.testing.assert_allclose(found[0], log_delta(row_values(row, names)), rtol=0, atol=1e-9)


def row_values(row, names):
    return [row["parameters"][name] for name in names]


@pytest.mark.parametrize("kind", kinds())
def test_no_release_tells_nothing(kind):
    row = rows_of(kind)[0]
    none = 0 * KINDS[kind](**row["parameters"])
    epsilon = jnp.array([0.0, 0.3])
    assert bool(jnp.all(none.log_delta(epsilon) == -jnp.inf)), none.log_delta(epsilon)
    assert none.epsilon(1e-6) == 0.0
    np.testing.assert_allclose(none.delta(-1.0), 1.0 - np.exp(-1.0), rtol=1e-9)
