"""Sampling schemes against sampling.json, and frozen values against an oracle of their own."""

from collections import defaultdict

import compositions
import jax.numpy as jnp
import numpy as np
import pytest
import references
import scheme_oracle
from scipy.stats import norm

import jaxdp as dp

pytestmark = pytest.mark.float64

VALUES = references.load("sampling.json")
S = dp.sampling
# Of delta and epsilon, relative, beyond what both state.
SLACK = 1e-6
# Of log values and epsilons that were written as doubles.
WRITTEN = 1e-12


def scheme_of(row):
    """The scheme of a row, None where the pair is a mixture, and its group size."""
    p = row["params"]
    size = p.get("group", 1)
    match row["scheme"]:
        case "truncated_poisson":
            return S.TruncatedPoisson(
                p["sampling_prob"], p["truncated_batch_size"], p["dataset_size"]
            ), size
        case "without_replacement":
            return S.WithoutReplacement(*whole_sizes(p["rate"])), size
        case "group_without_replacement":
            return S.WithoutReplacement(p["batch_size"], p["dataset_size"]), size
        case "poisson" | "group_poisson":
            return S.Poisson(p["sampling_prob"]), size
    return None, size


def whole_sizes(rate):
    """b and n of a rate b / n."""
    for n in (1000, 60_000, 50_000, 10, 10**6):
        if abs(rate * n - round(rate * n)) < 1e-9:
            return round(rate * n), n
    raise AssertionError(rate)


def loss_of(row):
    p, relation = row["params"], row["relation"]
    if row["scheme"] == "mixture_of_gaussians":
        pair = dp.GaussianMixture(p["sensitivities"], p["probabilities"], p["noise_multiplier"])
    elif row["scheme"] == "group_poisson_double":
        # So many records come in and so many leave.
        sides = [binomial(p[name], p["sampling_prob"]) for name in ("inserted", "removed")]
        pair = dp.GaussianMixture(*sides[0], p["noise_multiplier"], *sides[1])
    else:
        scheme, size = scheme_of(row)
        direction = row["direction"] if row["direction"] in ("add", "remove") else relation
        mechanism = dp.Mechanism(
            dp.Gaussian(p["noise_multiplier"]),
            1.0,
            sampling=scheme,
            relation=direction,
            group_size=size,
        )
        return dp.privacy_loss(mechanism)
    return dp.privacy_loss(pair, "add" if row["direction"] == "add" else "remove")


def binomial(size, q):
    from math import comb

    counts = range(size + 1)
    return [1.0 * k for k in counts], [comb(size, k) * q**k * (1 - q) ** (size - k) for k in counts]


def steps_of(row):
    return row.get("steps") or row["params"].get("steps", 1)


def asked(row):
    """(what, at, value, relative error or error of a logarithm) of a row."""
    for epsilon, value in row.get("epsilon_to_log_delta", ()):
        yield "log_delta", epsilon, value, 0.0
    for epsilon, value, spread in row.get("epsilon_to_log_delta_spread", ()):
        yield "log_delta", epsilon, value, spread
    for delta, value, spread in row.get("delta_to_epsilon_residual", ()):
        yield "epsilon", delta, value, spread


ROWS = [row for row in VALUES["schemes"] if row["direction"] != "remove_dp_accounting_loose"]
KINDS = sorted({(row["scheme"], row["relation"]) for row in ROWS})
# Of the published pair; ours is tighter.
PUBLISHED = "truncated_poisson", "replace_one"
# One of each kind of pair; the others are long.
QUICK = (("truncated_poisson", "add_remove"), ("group_poisson", "add_remove_group"))
# Rows of such a kind in the default suite; the others are long.
FEW = 2


def group_of(row):
    return row["params"].get("group", 1)


LONG = pytest.mark.long
SINGLE = sorted({(r["scheme"], r["relation"], group_of(r)) for r in ROWS if steps_of(r) == 1})


@pytest.mark.parametrize(
    "kind",
    [pytest.param(k, marks=LONG if k[2] > 2 else (), id="-".join(map(str, k))) for k in SINGLE],
)
def test_single_releases(kind):
    """By the profile alone."""
    rows = [r for r in ROWS if (r["scheme"], r["relation"], group_of(r)) == kind]
    rows = [r for r in rows if steps_of(r) == 1]
    for row in rows:
        points = list(asked(row))
        found = np.asarray(loss_of(row).log_delta(jnp.array([at for _, at, _, _ in points])))
        truth = np.array([value for *_, value, _ in points])
        assert np.all(found >= truth - WRITTEN * (1 + abs(truth))), row
        assert np.all(found <= truth + 1e-9 * (1 + abs(truth))), (row, found - truth)


# Every size of a group is a program of its own.
COMPOSED = sorted({(r["scheme"], r["relation"], group_of(r)) for r in ROWS if steps_of(r) > 1})


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            k, marks=() if k[:2] in QUICK and k[2] <= 2 else LONG, id="-".join(map(str, k))
        )
        for k in COMPOSED
    ],
)
def test_compositions(kind):
    check_compositions(rows_of(kind)[:FEW])


@pytest.mark.long
@pytest.mark.parametrize("kind", COMPOSED, ids=str)
def test_all_compositions(kind):
    check_compositions(rows_of(kind)[FEW:])


def rows_of(kind):
    rows = [r for r in ROWS if (r["scheme"], r["relation"], group_of(r)) == kind]
    return [r for r in rows if steps_of(r) > 2] + [r for r in rows if steps_of(r) == 2]


def check_compositions(rows):
    for row in rows:
        loss, relation = steps_of(row) * loss_of(row), row["relation"]
        points = defaultdict(list)
        for what, at, value, spread in asked(row):
            points[what].append((at, value, spread))
        for what, each in points.items():
            at, truth, spread = np.array(each).T
            found = np.asarray(getattr(loss, what)(jnp.asarray(at)))
            size = 1.0 if what == "log_delta" else truth
            if (row["scheme"], relation) != PUBLISHED:
                least = truth - spread - WRITTEN * (1 + abs(truth))
                assert np.all(found >= least), (row, found)
            error = np.asarray(loss.log_delta_error(at)) if what == "log_delta" else 0.0
            assert np.all(found <= truth + spread + SLACK * size + error), (row, found - truth)
            # Two releases are on no contour: their bracket is that of a grid.
            assert np.all(error < (1e-5 if steps_of(row) > 2 else 1e-3)), (row, error)


ALLOCATIONS = [r for r in VALUES["random_allocation"] if r["steps"] <= 10**5]


def allocated(row):
    """The loss of all epochs."""
    kept = row["scheme"].startswith("balls in bins")
    scheme = (
        S.BallsInBins(row["steps"], row["epochs"])
        if kept
        else S.RandomAllocation(row["steps"], row.get("selected", 1))
    )
    noise = dp.Gaussian(row["sigma"])
    one = dp.privacy_loss(dp.Mechanism(noise, 1.0, sampling=scheme, relation="add_remove"))
    return one if kept or row["epochs"] == 1 else row["epochs"] * one


def check_allocations(rows):
    groups = defaultdict(list)
    for row in rows:
        key = row["scheme"], row["sigma"], row["steps"], row["epochs"], row.get("selected", 1)
        groups[key, row["ask"]].append(row)
    for (_, ask), each in groups.items():
        loss, columns = allocated(each[0]), zip(*(values_of(row) for row in each), strict=True)
        at, truth, unsure = map(np.array, columns)
        found = np.asarray(getattr(loss, ask)(at))
        error = unsure + np.asarray(loss.log_delta_error(at)) if ask == "delta" else 5e-5
        least = truth * (1 - (error if ask == "delta" else unsure))
        assert np.all(least - 1e-24 <= found), (each, found)
        assert np.all(found <= truth * (1 + error + 5 * SLACK) + 1e-19), (each, found)
        # Of 50,000 steps one rare large loss decides, and the lower bound is weak.
        assert np.all(error < (1e-3 if each[0]["steps"] < 50_000 else 3.0)), (each, error)


def values_of(row):
    """Argument, value and relative error."""
    if row["ask"] == "delta":
        return row["epsilon"], row["delta"], max(row["rel_err_remove"], row["rel_err_add"])
    return row["delta"], row["epsilon"], row["rel_err"]


def test_bins_that_are_kept():
    check_allocations([r for r in ALLOCATIONS if r["scheme"].startswith("balls")][:2])


@pytest.mark.long
@pytest.mark.parametrize("sigma", sorted({r["sigma"] for r in ALLOCATIONS}))
def test_all_random_allocations(sigma):
    check_allocations([r for r in ALLOCATIONS if r["sigma"] == sigma])


def test_two_steps_by_quadrature():
    """mpmath, 25 digits."""
    for row in VALUES["two_steps"]:
        scheme = S.RandomAllocation(row["steps"])
        for way in ("remove", "add"):
            mechanism = dp.Mechanism(dp.Gaussian(row["sigma"]), 1.0, sampling=scheme, relation=way)
            truth = float(row[f"delta_{way}"])
            found = float(mechanism.delta(row["epsilon"]))
            assert truth * (1 - 1e-13) <= found <= truth * (1 + 1e-8), row


@pytest.mark.parametrize(("sigma", "far"), [(0.05, 150.0), (0.7, 10.0)])
def test_one_step_is_a_gaussian(sigma, far):
    """Also of a noise so small that a fixed step stands for the allocation."""
    one = dp.Mechanism(dp.Gaussian(sigma), 1.0, sampling=S.RandomAllocation(1), relation="add")
    epsilon = np.array([1.0, far])
    truth = np.asarray(dp.Gaussian(sigma).log_delta(1.0, epsilon))
    found = np.asarray(dp.privacy_loss(one).log_delta(epsilon))
    assert np.all((found >= truth - 1e-13) & (found <= truth + 1e-8 * (1 - truth))), found - truth


FROZEN = references.load("engine.json")
FROZEN_KINDS = ("truncated_poisson", "without_replacement", "group", "gaussian_mixture")


@pytest.mark.long
@pytest.mark.parametrize("kind", [*FROZEN_KINDS, "random_allocation"])
def test_frozen_values_are_true(kind):
    rows = [row for row in FROZEN if row["kind"] == kind]
    assert len(rows) == 8
    # A node of an allocation is a point in three dimensions: half of the rows take 50 s.
    for row in rows[:: 2 if kind == "random_allocation" else 1]:
        points = zip(row["epsilon"], row["log_delta"], row["log_delta_error"], strict=True)
        for epsilon, value, error in points:
            truth = scheme_oracle.log_delta(row["kind"], row["parameters"], epsilon)
            assert truth - scheme_oracle.NOISE <= value, (row, epsilon, value - truth)
            assert value <= truth + error + scheme_oracle.NOISE, (row, epsilon, value - truth)


# Of the frozen values' sizes.
TRUE = {
    "truncated_poisson": {"sampling_prob": 0.02, "limit": 25},
    "without_replacement": {"batch": 20},
    "group": {"sampling_prob": 0.03},
}


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=() if k == "group" else pytest.mark.long) for k in TRUE]
)
def test_epsilon_of_schemes_is_the_least(kind):
    scale, count, delta = np.array([1.2, 3.0]), np.array([20.0, 1000.0]), 1e-6
    loss = compositions.KINDS[kind](scale=scale, count=count, **TRUE[kind])
    epsilon = np.asarray(loss.epsilon(delta))
    for s, n, e in zip(scale, count, epsilon, strict=True):
        at = TRUE[kind] | {"scale": s, "count": n}
        assert scheme_oracle.log_delta(kind, at, e) <= np.log(delta) + scheme_oracle.NOISE
        assert scheme_oracle.log_delta(kind, at, e - 1e-5 * (1 + e)) > np.log(delta)


def test_the_oracle_knows_one_gaussian():
    """A mixture that always moves by 1: n of them are one of sqrt(n)."""
    nodes = scheme_oracle.mixture((0.0, 1.0), (0.0, 1.0), 0.0, 41.0)
    found = scheme_oracle.one_way(nodes[0], lambda z: (z + 1.0) * nodes[1], 4, 3.0, 1.0)
    truth = norm.cdf(-0.5) - np.exp(3.0) * norm.cdf(-2.5)
    np.testing.assert_allclose(np.exp(found), truth, rtol=1e-12)
