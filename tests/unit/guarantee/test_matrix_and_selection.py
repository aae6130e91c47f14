"""Matrix mechanisms by enumeration, tuning and AboveThreshold against what is simulated."""

from itertools import combinations, pairwise

import numpy as np
import pytest

import jaxdp as dp
from jaxdp.guarantee.gaussian_dp import matrix_sensitivity


def patterns(steps, min_sep, most):
    for size in range(1, most + 1):
        for steps_taken in combinations(range(steps), size):
            if all(b - a >= min_sep for a, b in pairwise(steps_taken)):
                yield list(steps_taken)


@pytest.mark.parametrize(("min_sep", "most"), [(1, 2), (3, 3), (5, 2)])
def test_the_sensitivity_of_a_matrix_with_positive_products(min_sep, most):
    """That of one direction in all steps, over every pattern."""
    matrix = np.tril(np.random.default_rng(0).random((12, 12)))
    each = [np.linalg.norm(matrix[:, p].sum(axis=1)) for p in patterns(12, min_sep, most)]
    found = matrix_sensitivity(matrix, min_sep, most)
    assert max(each) <= found <= max(each) * 1.02


def forest(steps):
    """Nodes of the complete binary trees that `steps` leaves fill, the largest first."""
    nodes, start = [], 0
    for depth in range(steps.bit_length() - 1, -1, -1):
        if steps >> depth & 1:
            for size in (2**k for k in range(depth + 1)):
                places = np.arange(start, start + 2**depth, size)
                nodes += [np.isin(np.arange(steps), range(place, place + size)) for place in places]
            start += 2**depth
    return np.array(nodes, float)


@pytest.mark.parametrize(
    ("steps", "min_sep", "most", "square"),
    # The last ones are cases that tensorflow_privacy publishes for trees.
    [
        (4, 2, 4, 8),
        (4, 4, 2, 3),
        (4, 1, 4, 28),
        (8, 8, 1, 4),
        (9, 4, 3, 11),
        (7, 3, 3, 9),
        (8, 1, 8, 120),
    ],
)
def test_a_tree_has_more_outputs_than_steps(steps, min_sep, most, square):
    matrix = forest(steps)
    each = [(matrix[:, p].sum(axis=1) ** 2).sum() for p in patterns(steps, min_sep, most)]
    assert max(each) == square
    guarantee = dp.GDP.of_matrix(matrix, 1.0, min_sep=min_sep, participations=most)
    assert float(dp.to_zcdp(guarantee).rho) == pytest.approx(square / 2, rel=1e-9)
    triangle = dp.GDP.of_matrix(np.linalg.qr(matrix)[1], 1.0, min_sep=min_sep, participations=most)
    assert guarantee.mu == pytest.approx(triangle.mu, rel=1e-9)


def test_a_matrix_may_have_fewer_outputs_than_steps():
    found = dp.GDP.of_matrix([[1.0, 2.0, 0.5]], 2.0, min_sep=2, participations=2)
    assert found.mu == pytest.approx(1.0, rel=1e-9)


def test_a_banded_matrix_needs_its_columns_alone():
    band = np.subtract.outer(np.arange(9), np.arange(9))
    matrix = np.where((band >= 0) & (band < 3), 0.5**band, 0.0)
    best = max(np.sqrt((matrix[:, p] ** 2).sum()) for p in patterns(9, 3, 3))
    assert matrix_sensitivity(matrix, 3, 3) == pytest.approx(best, rel=1e-10)
    assert float(dp.GDP.of_matrix(matrix, 2.0).mu) == pytest.approx(
        np.linalg.norm(matrix, axis=0).max() / 2.0, rel=1e-10
    )


def test_selection_of_one_run_costs_nothing_more_than_the_theorem_says():
    orders = np.geomspace(1.05, 200.0, 100)
    each = dp.to_rdp(dp.GDP(0.2), orders)
    for arguments in ({"gamma": 0.1}, {"gamma": 0.1, "eta": 0.0}, {"mean": 10.0}):
        best = dp.repeat_and_select(each, **arguments)
        assert np.all(np.asarray(best.value) >= np.asarray(each.value))
        assert float(best.epsilon(1e-6)) < 5 * float(each.epsilon(1e-6))
    rarer = dp.repeat_and_select(each, gamma=0.01)
    assert float(rarer.epsilon(1e-6)) > float(dp.repeat_and_select(each, gamma=0.1).epsilon(1e-6))


def test_the_mean_is_continuous_at_eta_zero():
    each = dp.to_rdp(dp.GDP(0.2), [2.0, 4.0])
    near, at = (dp.repeat_and_select(each, gamma=0.1, eta=e).value for e in (1e-7, 0.0))
    np.testing.assert_allclose(near, at, rtol=1e-6)


def test_one_run_is_the_run():
    each = dp.to_rdp(dp.GDP(0.5), [1.0, 2.0, 4.0])
    for eta in (0.0, 0.5, 3.0):
        np.testing.assert_array_equal(
            dp.repeat_and_select(each, gamma=1.0, eta=eta).value, each.value
        )


@pytest.mark.parametrize("arguments", [{"gamma": 0.1}, {"gamma": 0.1, "eta": 0.5}, {"mean": 5.0}])
def test_order_one_has_the_least_value_of_all(arguments):
    """Papernot & Steinke, corollary 4: below its best order a divergence is no larger."""
    orders = np.array([1.0, 1.1, *np.geomspace(1.5, 40.0, 60), 1e3])
    value = np.asarray(dp.repeat_and_select(dp.to_rdp(dp.GDP(0.3), orders), **arguments).value)
    alone = dp.repeat_and_select(dp.to_rdp(dp.GDP(0.3), orders[1:]), **arguments).value
    assert value[0] == np.min(alone)
    assert np.isfinite(value).all()


@pytest.mark.parametrize("each", [dp.ApproxDP(1.0, 0.1), 1.0, None])
def test_selection_says_what_it_takes(each):
    for arguments in ({"gamma": 0.1}, {"mean": 10.0}):
        with pytest.raises(ValueError, match=f"each must be .*, got {type(each).__name__}"):
            dp.repeat_and_select(each, **arguments)


def test_a_pure_guarantee_stays_pure():
    """(2 + eta) epsilon: the limit of the divergences of high orders; one run is the run."""
    for eta, times in ((1.0, 3.0), (0.0, 2.0), (-0.5, 1.5)):
        best = dp.repeat_and_select(dp.PureDP(np.array([0.5, 2.0])), gamma=0.1, eta=eta)
        assert np.asarray(best.epsilon_bound) == pytest.approx([0.5 * times, 2 * times], rel=1e-14)
        assert best.epsilon_bound[0] >= 0.5 * times
        far = dp.repeat_and_select(dp.to_rdp(dp.PureDP(2.0), [2.0, 1e6]), gamma=0.1, eta=eta)
        assert float(far.value[-1]) == pytest.approx(2.0 * times, rel=1e-4)
    assert dp.repeat_and_select(dp.PureDP(2.0), gamma=1.0).epsilon_bound == pytest.approx(2.0)


def test_poisson_counts_the_exact_profile():
    """Theorem 6 by hand, with the closed profile of a Gaussian; an RDP implies less."""
    mu, mean, orders = 0.3, 40.0, np.geomspace(1.05, 300.0, 50)
    loss = dp.privacy_loss(dp.Mechanism(dp.Gaussian(1.0 / mu), 1.0))
    best = dp.repeat_and_select(loss, mean=mean, order=orders)
    delta = np.asarray(dp.GDP(mu).delta(np.log(orders / (orders - 1.0))))
    by_hand = 0.5 * orders * mu**2 + mean * delta + np.log(mean) / (orders - 1.0)
    np.testing.assert_allclose(best.value, by_hand, rtol=1e-9)
    assert np.all(np.asarray(best.value) >= by_hand * (1 - 1e-12))
    implied = dp.repeat_and_select(dp.to_rdp(loss, orders), mean=mean)
    assert float(best.epsilon(1e-6)) < 5.2 < 7.0 < float(implied.epsilon(1e-6))
    batch = dp.repeat_and_select(dp.GDP(np.array([mu, mu])), mean=mean, order=orders)
    np.testing.assert_allclose(batch.value, [by_hand, by_hand], rtol=1e-9)


@pytest.mark.parametrize(
    "make",
    [
        *(lambda x=x: dp.GDP.of_matrix(np.ones(x), 1.0) for x in ((4,), (0, 0), (3, 0), (2, 2, 2))),
        lambda: dp.repeat_and_select(dp.RDP([2.0], [0.1])),
        lambda: dp.repeat_and_select(dp.RDP([2.0], [0.1]), gamma=1.5),
        lambda: dp.repeat_and_select(dp.PureDP(1.0), gamma=1.5),
        lambda: dp.above_threshold(1.0, threshold_scale=0.0, query_scale=1.0),
    ],
)
def test_bad_values_are_refused(make):
    with pytest.raises(ValueError, match=r"must|give"):
        make()
