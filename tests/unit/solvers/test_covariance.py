"""Private second moments: the ensemble's law, sensitivities, accounting, the published table."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._core.neighbours import SOLVER_RELATIONS
from jaxdp.solvers import covariance

BUDGET = dp.Budget(1.0, 1e-6)


def svec(matrix):
    rows, columns = np.triu_indices(matrix.shape[-1])
    weights = np.where(rows == columns, 1.0, np.sqrt(2.0))
    return weights * np.asarray(matrix)[..., rows, columns]


def unit_rows(rng, records, dimension):
    rows = rng.normal(size=(records, dimension))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.float64
def test_goe_noise_is_isotropic_in_svec():
    drawn = covariance.goe_noise(jax.random.key(0), 4, 3.0, (40_000,))
    np.testing.assert_array_equal(drawn, jnp.swapaxes(drawn, -1, -2))
    coordinates = svec(drawn) / 3.0
    # Entries of the mean and the covariance are normal: one of 65 beyond 5 s.e. once in 3e4 runs.
    tolerance = 5.0 / np.sqrt(40_000)
    np.testing.assert_allclose(coordinates.mean(axis=0), 0.0, atol=tolerance)
    np.testing.assert_allclose(np.cov(coordinates.T), np.eye(10), atol=np.sqrt(2.0) * tolerance)


def test_goe_noise_broadcasts_and_refuses():
    assert covariance.goe_noise(jax.random.key(0), 3, jnp.ones(2), (5, 2)).shape == (5, 2, 3, 3)
    for bad in (-1.0, 0.0, np.nan):
        with pytest.raises(ValueError, match="scale"):
            covariance.goe_noise(jax.random.key(0), 3, bad)
    with pytest.raises(ValueError, match="dimension"):
        covariance.goe_noise(jax.random.key(0), 0, 1.0)
    traced = jax.jit(lambda s: covariance.goe_noise(jax.random.key(0), 3, s))(-1.0)
    assert bool(jnp.isnan(traced).all())


@pytest.mark.parametrize("relation", SOLVER_RELATIONS)
@pytest.mark.parametrize(
    ("method", "family"),
    [
        ("goe", "gaussian"),
        ("iid", "gaussian"),
        ("inid", "gaussian"),
        ("iid", "laplace"),
        ("inid", "laplace"),
    ],
)
def test_no_pair_of_rows_costs_more_than_the_plan(method, family, relation):
    """Random and extreme neighbours, each entry's shift over its own scale."""
    dimension, records = 5, 40
    made = covariance.plan(
        BUDGET,
        dimension=dimension,
        records=records,
        relation=relation,
        row_bound=2.0,
        method=method,
        family=family,
    )
    assert made.guarantee.delta(1.0) <= 1e-6
    rng = np.random.default_rng(3)
    rows = 2.0 * np.concatenate(
        [
            np.eye(dimension),
            unit_rows(rng, 50, dimension),
            rng.choice([-1.0, 1.0], size=(50, dimension)) / np.sqrt(dimension),
            rng.choice([-1.0, 1.0], size=(50, dimension)) * (np.arange(dimension) < 2) / 2**0.5,
        ]
    )
    outer = np.einsum("ij,ik->ijk", rows, rows) / records
    others = np.zeros((1, dimension, dimension)) if relation == "add_remove" else outer
    moved = np.abs(outer[:, None] - others[None])
    scales = np.full((dimension, dimension), float(made.scales[0]))
    np.fill_diagonal(scales, float(made.scales[1]))
    ratios = (moved / scales)[..., *np.triu_indices(dimension)]
    norm = np.linalg.norm(ratios, ord=2 if family == "gaussian" else 1, axis=-1)
    assert norm.max() <= float(made.ratio) * (1.0 + 1e-12)
    if method != "inid":  # which takes all entries to their bounds at once
        assert norm.max() >= 0.6 * float(made.ratio)
    if method == "goe":
        np.testing.assert_allclose(norm.max(), float(made.ratio), rtol=1e-12)


def test_goe_is_the_least_noise_off_the_diagonal_for_its_own_diagonal():
    """(s_d, s_o) = (1, 1/sqrt 2) / mu: any smaller s_o breaks the budget for a spread-out row."""
    made = covariance.plan(BUDGET, dimension=9, records=1, relation="add_remove")
    mu, (off, on) = float(made.ratio), np.asarray(made.scales)
    np.testing.assert_allclose([off * 2**0.5 * mu, on * mu], 1.0, rtol=1e-12)
    for share in (1.0 / 9, 0.5, 1.0):  # sum x_i^4 of a unit row
        cost = share / on**2 + 0.5 * (1.0 - share) / off**2
        np.testing.assert_allclose(cost, mu**2, rtol=1e-12)


def test_release_adds_the_noise_of_the_plan():
    rows = unit_rows(np.random.default_rng(0), 30, 3)
    made = covariance.plan(BUDGET, dimension=3, records=30, relation="replace_one")
    draws = jax.vmap(lambda k: covariance.release(rows, made, k))(
        jax.random.split(jax.random.key(5), 5_000)
    )
    np.testing.assert_array_equal(draws, jnp.swapaxes(draws, -1, -2))
    noise = np.asarray(draws) - rows.T @ rows / 30
    deviation = noise.std(axis=0)[np.triu_indices(3)]
    expected = np.array(
        [made.scales[int(i == j)] for i, j in zip(*np.triu_indices(3), strict=True)]
    )
    # 1 % standard error, 6 of them beyond 5 once in 3e5 runs.
    np.testing.assert_allclose(deviation, expected, rtol=0.05)


@pytest.mark.float64
@pytest.mark.parametrize("family", covariance.FAMILIES)
def test_entries_are_on_a_lattice_unless_floating_point_is_asked_for(family):
    rows = unit_rows(np.random.default_rng(0), 30, 3)
    known = {"dimension": 3, "records": 30, "relation": "replace_one", "method": "iid"}
    made = covariance.plan(BUDGET, family=family, **known)
    drawn = np.asarray(covariance.release(rows, made, jax.random.key(1)))
    steps = drawn * 2.0**36 / 2.0 ** np.floor(np.log2(float(made.scales[0])))
    np.testing.assert_array_equal(2.0 * steps, np.round(2.0 * steps))
    assert made.sampling_error < 1e-21
    research = covariance.plan(BUDGET, family=family, release="float", **known)
    assert research.sampling_error == 1
    np.testing.assert_allclose(research.scales, made.scales, rtol=1e-13)
    kind = jax.random.normal if family == "gaussian" else jax.random.laplace
    noise = research.scales[0] * kind(jax.random.key(1), (3, 3), dtype=jnp.float64)
    drawn = covariance.release(rows, research, jax.random.key(1))
    exact = covariance.second_moment(jnp.asarray(rows), made)
    np.testing.assert_allclose(jnp.triu(drawn), jnp.triu(exact + noise), rtol=1e-12)


@pytest.mark.float64
def test_long_rows_are_shortened():
    rows = np.array([[3.0, 4.0], [0.3, -0.4]])
    made = covariance.plan(BUDGET, dimension=2, records=2, relation="add_remove")
    exact = covariance.second_moment(jnp.asarray(rows), made)
    np.testing.assert_allclose(
        exact, (np.outer([0.6, 0.8], [0.6, 0.8]) + np.outer(rows[1], rows[1])) / 2, rtol=1e-12
    )


def test_bad_input():
    def plan(**other):
        known = {"dimension": 3, "records": 10, "relation": "replace_one"}
        return covariance.plan(BUDGET, **(known | other))

    for bad in (
        {"relation": "both"},
        {"method": "wishart"},
        {"family": "cauchy", "method": "iid"},
        {"family": "laplace"},
        {"row_bound": -1.0},
        {"records": 0},
        {"dimension": -2},
        {"release": "exact"},
    ):
        with pytest.raises(ValueError, match=next(iter(bad))):
            plan(**bad)
    made, key = plan(), jax.random.key(0)
    for rows in (np.ones((9, 3)), np.ones((10, 2))):
        with pytest.raises(ValueError, match="features must be"):
            covariance.release(rows, made, key)
    for secret in (np.nan, 7.25e200, np.float32(np.inf)):
        with pytest.raises(ValueError, match="features must lie") as caught:
            covariance.release(np.full((10, 3), secret), made, key)
        assert "7.25" not in str(caught.value)
    with pytest.raises(ValueError, match="rank"):
        covariance.principal_subspace(jnp.eye(3), 4)


@pytest.mark.float64
def test_the_principal_subspace_is_recovered():
    rng = np.random.default_rng(0)
    basis = jnp.asarray(np.linalg.qr(rng.normal(size=(6, 2)))[0])
    spectrum = jnp.asarray(basis @ np.diag([3.0, 2.0]) @ basis.T)
    values, vectors = covariance.principal_subspace(spectrum, 2)
    np.testing.assert_allclose(values, [3.0, 2.0], rtol=1e-12)
    np.testing.assert_allclose(vectors @ (vectors.T @ basis), basis, atol=1e-12)


def test_the_published_gain_is_that_of_symmetry():
    """Rows of a random 5-dimensional subspace of R^100: GOE over i.i.d. error .705 to .712.

    Averages of 3,000 trials: .1763 and .2481, ratio .7107 (benchmarks/reproductions/pca.py).
    """
    rng = np.random.default_rng(1)
    dimension, rank, records, trials, scale = 100, 5, 2000, 20, 0.0051
    goe = np.asarray(covariance.goe_noise(jax.random.key(2), dimension, scale, (trials,)))
    errors = []
    for noise in goe:
        basis = np.linalg.qr(rng.normal(size=(dimension, rank)))[0]
        rows = unit_rows(rng, records, rank)
        moment = basis @ (rows.T @ rows / records) @ basis.T
        # The same normal draws on the upper triangle, off the diagonal not shrunk.
        for added in (noise, np.where(np.eye(dimension), noise, np.sqrt(2.0) * noise)):
            found = np.linalg.eigh(moment + added)[1][:, -rank:]
            errors.append(np.linalg.norm(basis - found @ (found.T @ basis)) / rank**0.5)
    ours, iid = np.array(errors).reshape(trials, 2).mean(axis=0)
    # Standard errors .0014, .0019 and, draws being shared, .0009: 5 of them, 1 run in 2e6.
    np.testing.assert_allclose([ours, iid], [0.1763, 0.2481], atol=0.009)
    np.testing.assert_allclose(ours / iid, 0.7107, atol=0.005)
