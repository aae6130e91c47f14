"""Private naive Bayes: its statistics, what a record can move, the composed budget, accuracy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._core.neighbours import SOLVER_RELATIONS
from jaxdp.solvers import naive_bayes as nb
from jaxdp.solvers.lattice import whole_noise
from jaxdp.solvers.naive_bayes import _statistics

BUDGET = dp.Budget(1.0, 1e-6)
KEY = jax.random.key(0)


def make_plan(**other):
    known = {"classes": 2, "categories": (3, 0), "relation": "add_remove"}
    return nb.plan(other.pop("budget", BUDGET), **(known | other))


def statistics(features, labels, made):
    features = np.asarray(features, dtype=np.float64)
    categorical, continuous = made.columns
    codes = features[:, categorical].astype(np.int64)
    return _statistics(codes, features[:, continuous], np.asarray(labels), made)


def test_statistics_are_those_of_a_loop():
    made = make_plan(feature_bounds=(0.0, 10.0), levels=4)
    features = [[0, 0.0], [2, 10.0], [2, 5.0], [1, 99.0]]
    counts, tables, sums = statistics(features, [0, 1, 1, 1], made)
    np.testing.assert_array_equal(counts, [1, 3])
    np.testing.assert_array_equal(tables[:, 0], [[1, 0, 0], [0, 1, 2]])
    np.testing.assert_array_equal(sums[0, :, 0], [-4, 4 + 0 + 4])
    assert made.square_levels == 3
    np.testing.assert_array_equal(sums[1, :, 0], [3, 3 - 3 + 3])


@pytest.mark.parametrize("relation", SOLVER_RELATIONS)
@pytest.mark.parametrize("family", ["gaussian", "laplace"])
def test_no_neighbour_costs_more_than_the_plan(relation, family):
    """Every pair of records on a grid, all statistics at once, with the noise's own loss."""
    made = make_plan(relation=relation, noise=family, levels=8, categories=(2, 0, 0))
    records = [(a, b, c) for a in (0, 1) for b in (-1.0, 0.0, 1.0) for c in (-1.0, 0.3)]
    every = [(r, label) for r in records for label in (0, 1)]

    def ratios(record, label):
        counts, tables, sums = statistics([record], [label], made)
        held = [np.ravel(x) for x in (counts, tables)]
        scaled = np.concatenate(held) / float(made.count_noise.scale)
        return np.concatenate([scaled, np.ravel(sums) / float(made.sum_noise.scale)])

    vectors = [ratios(*e) for e in every]
    if relation == "replace_one":
        moved = [a - b for a, b in itertools.combinations(vectors, 2)]
    else:
        moved = vectors
    if family == "gaussian":
        spent = max(np.linalg.norm(m) for m in moved)
        allowed = float(made.guarantee.exact.mu)
    else:
        spent = max(np.abs(m).sum() for m in moved)
        terms = made.guarantee.exact.terms
        allowed = sum(float((t.pair.renyi(np.inf) * t.count).sum()) for t in terms)
    assert 0.7 * allowed <= spent <= allowed * (1.0 + 1e-12)


@pytest.mark.parametrize("relation", SOLVER_RELATIONS)
@pytest.mark.parametrize("levels", [1, 2, 3, 7, 64])
def test_no_two_values_move_both_sums_further_than_the_plan(relation, levels):
    """Rounding included: every pair of a fine grid of values, within a class and in two."""
    made = make_plan(relation=relation, levels=levels, categories=(0,))
    values = np.linspace(-1.0, 1.0, 401)
    moves = np.array([np.ravel(statistics([[x]], [0], made)[2][:, 0]) for x in values])
    gap = np.linalg.norm(moves[:, None] - moves[None], axis=-1).max()
    size = np.linalg.norm(moves, axis=-1).max()
    furthest = size if relation == "add_remove" else max(gap, np.sqrt(2.0) * size)
    counts = (2.0 if relation == "replace_one" else 1.0) / float(made.count_noise.scale) ** 2
    allowed = np.sqrt(float(made.guarantee.exact.mu) ** 2 - counts) * float(made.sum_noise.scale)
    assert furthest <= allowed * (1 + 1e-9)
    assert levels < 64 or furthest > 0.95 * allowed


def test_counts_add_up_to_the_number_of_records_where_it_is_public():
    features, labels = synthetic(60, 2)
    made = make_plan(classes=3, categories=(4, 0), relation="replace_one", budget=(0.2, 1e-6))
    for seed in range(5):
        counts = nb.release(features, labels, made, jax.random.key(seed)).class_counts
        np.testing.assert_allclose(jnp.sum(counts), 60.0)
        assert jnp.min(counts) >= 1.0


def test_a_pure_budget_is_shared_by_the_tables():
    pure = dp.Budget(1.0, 0.0)
    made = make_plan(budget=pure, noise="laplace", categories=(3, 2))
    # Three tables of one cell each.
    np.testing.assert_allclose(made.count_noise.scale, 3.0, rtol=1e-12)
    assert made.sum_noise is None
    with pytest.raises(ValueError, match="delta"):
        make_plan(budget=pure, noise="gaussian", categories=(3, 2))


@pytest.mark.float64
def test_cells_are_whole_numbers_plus_whole_noise():
    made = make_plan(categories=(3, 3), noise="gaussian")
    draws = whole_noise(made.count_noise, KEY, (50_000,))
    np.testing.assert_array_equal(draws, np.round(draws))
    expected = np.sqrt(float(made.count_noise.scale) ** 2 + 1 / 12)
    # 0.32 % standard error: 5 of them, 1 run in 2e6.
    np.testing.assert_allclose(np.std(draws), expected, rtol=0.016)


def synthetic(records, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, records)
    codes = np.where(rng.random(records) < 0.7, labels, rng.integers(0, 4, records))
    numbers = rng.normal(labels - 1.0, 0.5)
    return np.column_stack([codes, numbers]), labels


def test_with_a_wide_budget_it_is_that_of_scikit_learn():
    from sklearn.naive_bayes import CategoricalNB, GaussianNB

    features, labels = synthetic(3000, 0)
    wide = dp.Budget(np.inf, 0.5)
    made = make_plan(
        budget=wide, classes=3, categories=(4, 0), feature_bounds=(-4.0, 4.0), levels=2**20
    )
    model = nb.release(features, np.asarray(labels), made, KEY)
    ours = jax.nn.log_softmax(nb.log_joint(features, model, made), axis=1)
    numbers = GaussianNB(var_smoothing=0.0).fit(features[:, 1:], labels)
    codes = CategoricalNB().fit(features[:, :1].astype(int), labels)
    theirs = (
        numbers.predict_joint_log_proba(features[:, 1:])
        + codes.predict_joint_log_proba(features[:, :1].astype(int))
        - np.log(numbers.class_prior_)
    )
    theirs = jax.nn.log_softmax(theirs, axis=1)
    # Three values lie outside the bounds: the rest agrees to what clipping them changes.
    inside = np.abs(features[:, 1]) < 4.0
    np.testing.assert_allclose(ours[inside], theirs[inside], atol=5e-3)


@pytest.mark.float64
def test_categories_never_seen_get_noise_and_unknown_codes_count_for_nothing():
    made = make_plan(categories=(5,))
    model = nb.release(np.zeros((9, 1)), np.zeros(9, dtype=int), made, jax.random.key(2))
    assert np.unique(np.asarray(model.log_likelihood[0, 0, 1:])).size > 1
    far = nb.log_joint(np.array([[7.0], [0.5], [-1.0]]), model, made)
    np.testing.assert_array_equal(far, jnp.broadcast_to(model.log_prior[None], (3, 2)))


def test_bad_input():
    for bad in (
        {"relation": "both"},
        {"noise": "cauchy"},
        {"classes": 0},
        {"levels": 0},
        {"categories": (3, -1)},
        {"categories": ()},
        {"feature_bounds": (1.0, 1.0)},
        {"feature_bounds": (-1.0, np.ones(3))},
    ):
        with pytest.raises(ValueError, match=next(iter(bad))):
            make_plan(**bad)
    made = make_plan()
    good = np.array([[0.0, 0.0], [1.0, 0.5]])
    for features, labels, name in (
        (good[:, :1], [0, 1], "features"),
        (good, [0], "labels"),
        (good, [0, 2], "labels"),
        (good, [0, 0.5], "labels"),
        (np.add(good, [[0.5, 0.0]]), [0, 1], "features"),
        (np.add(good, [[2.0, 0.0]]), [0, 1], "features"),
        (np.add(good, [[np.nan, 0.0]]), [0, 1], "features"),
        (np.add(good, [[0.0, np.inf]]), [0, 1], "features must be finite"),
    ):
        with pytest.raises(ValueError, match=name):
            nb.release(features, np.asarray(labels), made, KEY)


def test_messages_print_no_record():
    made = make_plan()
    for column, secret in ((0, 7.25), (1, np.inf)):
        features = np.zeros((2, 2))
        features[1, column] = secret
        with pytest.raises(ValueError, match="features must be") as caught:
            nb.release(features, np.zeros(2), made, KEY)
        assert "7.25" not in str(caught.value)
    with pytest.raises(ValueError, match="labels must be") as caught:
        nb.release(np.zeros((2, 2)), np.array([0, 7.25]), made, KEY)
    assert "7.25" not in str(caught.value)
