"""Sampled Gaussians of which few samples hold the record: integrals, and frozen values."""

import jax
import numpy as np
import pytest
import references
from composition_checks import batch

import jaxdp as dp
from jaxdp._core.namespace import kernel
from jaxdp.accountant.contour import few_hits
from jaxdp.accountant.contour.engine import lanes_last
from jaxdp.accountant.steps import LogBounds

pytestmark = pytest.mark.float64

# log delta by epsilon, by line integrals of 25 digits: of 1e5 releases of noise .7 at q = 1e-6 from
# which a record is removed, and of 1e4 of noise .6 at q = 1e-4 where it is replaced.
TRUTHS = {
    "remove": {
        0.1: -34.315067,
        0.2: -38.417881,
        0.5: -44.809639,
        1.0: -51.079677,
        2.0: -60.255486,
        4.0: -76.881738,
        8.0: -114.270692,
        12.0: -159.28617,
    },
    "replace_one": {
        0.1: -6.891924053,
        0.3: -11.662331292,
        0.924: -16.143682704,
        2.0: -21.060200657,
        4.0: -29.617689127,
        8.0: -50.086025564,
    },
}
ERROR = 1e-6  # of the truths
# Frozen upper bounds with errors of 1e-11, to which an earlier engine took minutes.
FROZEN = [row for row in references.load("engine.json") if row["kind"] == "rarely_hit_gaussian"]


def sampled(noise, q, steps=1, how="remove"):
    return steps * dp.privacy_loss(dp.Mechanism(dp.Gaussian(noise), 1.0, q, how))


def of_truths(how):
    """The loss, its epsilons and their log deltas."""
    setting = (0.7, 1e-6, 1e5) if how == "remove" else (0.6, 1e-4, 1e4)
    return sampled(*setting, how), np.array(list(TRUTHS[how])), np.array(list(TRUTHS[how].values()))


def bracket(question, loss, values):
    """The engine's bounds alone."""
    unknown = LogBounds(np.full(len(values), -np.inf), np.full(len(values), np.inf))
    with np.errstate(all="ignore"):
        return few_hits.engine(question).solve(batch(loss, values), unknown, 1)


def readings(loss, epsilon, plans=few_hits.PLANS, periods=1.0):
    """Bounds on log delta by each plan, with a share of its period."""
    with kernel(), jax.numpy_rank_promotion("allow"), np.errstate(all="ignore"):
        lanes, (replaces,) = few_hits.lanes_of(batch(loss, [epsilon]), None)
        of = lanes_last(lanes.rows)
        wide = few_hits._law(of, bool(replaces), few_hits.LAST, few_hits.PLACES)
        for plan in plans:
            planned = few_hits._planned(wide, epsilon, plan)
            if planned is not None:
                planned = planned._replace(period=periods * planned.period)
                yield *few_hits._line(planned, epsilon).read(epsilon)[:2], plan


@pytest.mark.parametrize("how", TRUTHS)
def test_few_hits_on_one_line(how):
    loss, epsilon, truth = of_truths(how)
    lower, upper = bracket("log delta", loss, epsilon)
    assert np.all(lower <= truth + ERROR)
    assert np.all(upper >= truth - ERROR)
    assert np.all(upper - lower < 1e-5)
    lower, upper = bracket("epsilon", loss, np.exp(truth))
    assert np.all(lower <= epsilon + ERROR)
    assert np.all(upper >= epsilon - ERROR)
    assert np.all(upper - lower < 1e-5)


@pytest.mark.parametrize("how", TRUTHS)
def test_every_plan_brackets_the_truth(how):
    """Places of the steps, widths and numbers of points change the errors alone."""
    loss, *truths = of_truths(how)
    for epsilon, truth in list(zip(*truths, strict=True))[::3]:
        for lower, upper, plan in readings(loss, epsilon):
            assert lower <= truth + ERROR, (epsilon, plan)
            assert upper >= truth - ERROR, (epsilon, plan)


@pytest.mark.parametrize("how", TRUTHS)
@pytest.mark.parametrize(
    ("plan", "periods", "spacing"),
    [
        pytest.param((0.35, 1.0, 0.2, 1024), 1.0, 0.34, id="losses above both steps"),
        pytest.param((0.95, 4.0, 0.2, 1024), 1.0, 0.34, id="losses below both steps"),
        pytest.param((0.35, 4.0, 0.2, 1024), 0.5, 0.34, id="images"),
        pytest.param((0.35, 4.0, 0.2, 1024), 0.2, 0.34, id="more images"),
        pytest.param((0.35, 4.0, 0.2, 64), 1.0, 0.34, id="truncation"),
        pytest.param((0.35, 4.0, 0.2, 24), 1.0, 0.34, id="more truncation"),
        pytest.param((0.35, 4.0, 0.2, 1024), 1.0, 0.5, id="quadrature"),
        pytest.param((0.35, 4.0, 0.2, 1024), 1.0, 1.2, id="more quadrature"),
    ],
)
def test_each_error_is_in_the_bracket(how, plan, periods, spacing, monkeypatch):
    """Plans so coarse that one error is as large as delta bracket the truth all the same."""
    monkeypatch.setattr(few_hits, "SPACING", spacing)
    loss, *truths = of_truths(how)
    for epsilon, truth in list(zip(*truths, strict=True))[::2]:
        ((lower, upper, _),) = readings(loss, epsilon, [plan], periods)
        assert lower <= truth + ERROR, epsilon
        assert upper >= truth - ERROR, epsilon


@pytest.mark.parametrize("how", TRUTHS)
def test_one_release_has_its_profile(how):
    """Plans bracket the delta of one release, of a record or of a group."""
    rng, exact = np.random.default_rng(0), 4e-12
    for i in range(6):
        noise, epsilon = np.exp(rng.uniform(-1.2, 1.2)), float(np.exp(rng.uniform(-7.0, 3.0)))
        q, group = 10.0 ** rng.uniform(-8.0, -1.0), 1 + i % 3 if how == "remove" else 1
        mechanism = dp.Mechanism(dp.Gaussian(noise), 1.0, q, how, group_size=group)
        loss = dp.privacy_loss(mechanism)
        truth = float(loss.log_delta(epsilon))
        for lower, upper, plan in readings(loss, epsilon, few_hits.PLANS[::2]):
            slack = exact * (1.0 + abs(truth))
            assert lower - slack <= truth <= upper + slack, (noise, q, group, epsilon, plan)


@pytest.mark.long
def test_frozen_values():
    for row in FROZEN:
        epsilon, truth, error = (
            np.array(row[name], float) for name in ("epsilon", "log_delta", "log_delta_error")
        )
        loss = sampled(*(row["parameters"][name] for name in ("scale", "sampling_prob", "count")))
        found, stated = (np.asarray(x(epsilon)) for x in (loss.log_delta, loss.log_delta_error))
        assert np.all(found >= truth - error), (row, found - truth)
        assert np.all(found - stated <= truth), (row, found - stated - truth)
        for least, most in ((-580.0, 2e-3), (-200.0, 1e-5)):
            assert np.all((found <= truth + most) | (truth <= least)), (row, found - truth)


def test_epsilon_inverts_log_delta_of_few_hits():
    """A bound on epsilon that was 7 % high, as it did not invert the bound on delta."""
    loss = 15 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(0.73834914), 1.0, 2.1e-5, "add_remove"))
    epsilon = float(loss.epsilon(1.018416e-5))
    assert abs(epsilon - 3.5331392e-4) < 1e-10
    assert abs(float(loss.log_delta(epsilon)) - np.log(1.018416e-5)) < 1e-7
    assert float(loss.log_delta_error(epsilon)) < 1e-6


def test_phases_with_noises_of_their_own():
    """Equal releases as one phase, and as three; different ones against a sum of few hits."""
    together = bracket("log delta", sampled(0.7, 1e-6, 3e4), [1.0])
    apart = sampled(0.7, 1e-6, 1e4) + sampled(0.7, 1e-6, 5e3) + sampled(0.7, 1e-6, 1.5e4)
    apart = bracket("log delta", apart, [1.0])
    assert apart.upper - apart.lower < 1e-5
    assert apart.lower <= together.upper
    assert together.lower <= apart.upper
    # Where one hit decides, deltas of releases add up.
    parts = [sampled(0.7, 1e-6), sampled(0.8, 2e-6)]
    single = [float(1000.0 * np.exp(x.log_delta(4.0))) for x in parts]
    found = bracket("log delta", 1000 * parts[0] + 1000 * parts[1], [4.0])
    assert found.upper - found.lower < 1e-5
    assert np.log(sum(single)) - 1e-9 <= found.upper[0] <= np.log(sum(single)) + 1e-3


@pytest.mark.parametrize("noise", [0.01, 1e-4])
def test_little_noise_takes_little_memory(noise):
    """Nodes are a share of the noise apart: no plan has more than its limit."""
    assert len(list(readings(sampled(noise, 1e-6, 100), 1.0))) < len(few_hits.PLANS)
    lower, upper = bracket("log delta", sampled(noise, 1e-6, 100), [1.0])
    rate = np.log(-np.expm1(100 * np.log1p(-1e-6)))
    assert lower[0] <= rate <= upper[0] + 1e-9


def test_other_losses_are_left_to_other_engines():
    mechanism = dp.Mechanism(dp.Gaussian(0.7), 1.0, 1e-6, "add")
    for loss in (1e5 * dp.privacy_loss(mechanism), sampled(0.7, 0.1, 1e4)):
        lower, upper = bracket("log delta", loss, [1.0])
        assert lower[0] == -np.inf
        assert upper[0] == np.inf
