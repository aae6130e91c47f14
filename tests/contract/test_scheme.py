"""The contract of every scheme: JSON, jit, slopes, brackets, refusals; see test_pair for laws."""

import jax
import numpy as np
import pytest
from compositions import SCHEMES, over

import jaxdp as dp

S = dp.sampling


MULTIPLIER = 1.2


@pytest.mark.parametrize("name", SCHEMES)
def test_json_is_the_same_loss(name):
    loss = 10 * SCHEMES[name](MULTIPLIER)
    again = dp.PrivacyLoss.from_json(loss.to_json())
    assert again.relation == loss.relation
    for a, b in zip(jax.tree.leaves(loss), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.long
@pytest.mark.parametrize("name", SCHEMES)
def test_a_single_release_has_derivatives_and_traces(name):
    build = SCHEMES[name]

    def log_delta(multiplier):
        loss = build(multiplier)
        # The host alone evaluates an allocation.
        return loss.log_delta(0.3) if name == "allocation" else loss.terms[0].pair.log_delta(0.3)[0]

    value, slope = jax.jit(jax.value_and_grad(log_delta))(MULTIPLIER)
    assert float(value) == pytest.approx(float(log_delta(MULTIPLIER)), rel=1e-7)
    step = 1e-4
    each = [float(log_delta(MULTIPLIER + side * step)) for side in (-2, -1, 1, 2)]
    differences = (each[0] - 8 * each[1] + 8 * each[2] - each[3]) / (12 * step)
    assert float(slope) == pytest.approx(differences, rel=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("name", SCHEMES)
def test_compositions_lie_in_their_brackets(name):
    loss = 30 * SCHEMES[name](MULTIPLIER)
    epsilon = 1.0
    lower, upper = (float(x) for x in loss.bounds(epsilon))
    value, error = float(loss.log_delta(epsilon)), float(loss.log_delta_error(epsilon))
    assert np.log(lower) <= value
    assert value - error <= np.log(upper)
    assert error < 1e-3
    least = loss.epsilon(np.exp(value))
    assert float(least) == pytest.approx(epsilon, rel=1e-3)
    # More noise, less loss.
    assert float((30 * SCHEMES[name](1.3 * MULTIPLIER)).log_delta(epsilon)) < value


def test_the_short_form_is_poisson():
    short = dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.1, "add_remove")
    named = dp.Mechanism(dp.Gaussian(1.0), 1.0, sampling=S.Poisson(0.1), relation="add_remove")
    assert jax.tree.structure(short) == jax.tree.structure(named)
    zeroed = dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.1, "zero_out")
    assert float(zeroed.delta(1.0)) == float(short.delta(1.0))


def test_a_group_of_one_is_poisson():
    """And one of two has both records in a release with q^2."""
    pair = dp.GaussianMixture([0.0, 1.0], [0.9, 0.1], 1.0)
    short = dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.1, "remove")
    for epsilon in (-0.05, 0.0, 0.5, 3.0):
        assert float(pair.log_delta(epsilon)) == pytest.approx(
            float(short.log_delta(epsilon)), rel=1e-12
        )
    two = dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.1, "remove", group_size=2)
    same = dp.GaussianMixture([0.0, 1.0, 2.0], [0.81, 0.18, 0.01], 1.0)
    assert float(two.log_delta(1.0)) == pytest.approx(float(same.log_delta(1.0)), rel=1e-12)


def test_without_sampling_a_group_moves_so_often():
    group = dp.Mechanism(dp.Gaussian(4.0), 1.0, group_size=4)
    assert float(group.delta(1.0)) == float(dp.Mechanism(dp.Gaussian(1.0), 1.0).delta(1.0))


def test_a_limit_that_is_never_met_changes_nothing():
    whole = over(S.Poisson(0.02))(1.0).terms[0].pair
    cut = over(S.TruncatedPoisson(0.02, 1000, 1000))(1.0).terms[0].pair
    assert float(cut.log_delta(0.3)[0]) == pytest.approx(float(whole.log_delta(0.3)[0]), rel=1e-13)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sampling": S.RandomAllocation(10), "relation": "replace_one"}, "RandomAllocation"),
        ({"sampling": S.RandomAllocation(10), "relation": "add", "group_size": 2}, "group_size"),
        ({"sampling": S.TruncatedPoisson(0.1, 5, 40)}, "relation must be one of"),
        ({"sampling": S.Poisson(0.1), "sampling_prob": 0.1, "relation": "add"}, "either"),
        ({"sampling_prob": 0.1, "relation": "add", "group_size": 200}, r"lie in \[1, 128\]"),
    ],
)
def test_what_is_not_known_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        dp.Mechanism(dp.Gaussian(1.0), 1.0, **arguments)


@pytest.mark.parametrize(
    "make",
    [
        lambda: S.TruncatedPoisson(1.5, 10, 100),
        lambda: S.TruncatedPoisson(0.5, 0, 100),
        lambda: S.WithoutReplacement(11, 10),
        lambda: S.WithoutReplacement(5, np.inf),
        lambda: S.RandomAllocation(3, 4),
        lambda: S.BallsInBins(3, 0.5),
        lambda: dp.GaussianMixture([0.0, 1.0], [0.5, 0.4], 1.0),
        lambda: dp.GaussianMixture([-1.0], [1.0], 1.0),
    ],
)
def test_bad_values_are_refused(make):
    with pytest.raises(ValueError, match="must"):
        make()


def test_other_noises_where_a_theorem_allows_them():
    """Laplace noise, cut; not where the two sides are opposite."""
    scheme = S.TruncatedPoisson(0.02, 25, 1000)
    step = dp.Mechanism(dp.Laplace(2.0), 1.0, sampling=scheme, relation="add_remove")
    poisson = dp.Mechanism(dp.Laplace(2.0), 1.0, 0.02, "add_remove")
    assert float(step.delta(0.01)) > float(poisson.delta(0.01))
    with pytest.raises(ValueError, match="must be Gaussian"):
        dp.Mechanism(dp.Laplace(2.0), 1.0, sampling=scheme, relation="zero_out")
