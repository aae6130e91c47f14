"""Many epsilons, deltas and rates of one loss: the values that each of them has alone."""

import numpy as np
import pytest
from compilations import counted

import jaxdp as dp
from jaxdp.accountant import evaluate, grid
from jaxdp.accountant.contour import engine, shared

pytestmark = pytest.mark.float64

LOSS, MECHANISM = dp.privacy_loss, dp.Mechanism


def sampled(noise, q, steps):
    return steps * LOSS(MECHANISM(noise, 1.0, q, "add_remove"))


def random_losses():
    """Trainings, phases, sampled and mixed noises with random parameters."""
    random = np.random.default_rng(5)

    def between(low, high):
        return float(np.exp(random.uniform(np.log(low), np.log(high))))

    def gaussian():
        noise, q = dp.Gaussian(between(0.7, 4)), between(1e-3, 0.05)
        return sampled(noise, q, int(between(100, 5000)))

    def laplace():
        noise, q = dp.Laplace(between(1, 4)), between(1e-3, 0.05)
        return sampled(noise, q, int(between(50, 2000)))

    def mixed():
        many = int(between(5, 60)) * LOSS(MECHANISM(dp.Laplace(between(3, 30)), 1.0))
        return many + LOSS(MECHANISM(dp.Gaussian(between(1, 6)), 1.0))

    yield pytest.param(gaussian(), id="training")
    yield pytest.param(gaussian(), id="another training", marks=pytest.mark.long)
    yield pytest.param(gaussian() + gaussian(), id="two phases")
    yield pytest.param(laplace(), id="sampled Laplace")
    yield pytest.param(mixed(), id="Laplace and Gaussian", marks=pytest.mark.long)
    infinite = LOSS(dp.ApproxDP(0.01, 1e-9))
    yield pytest.param(gaussian() + infinite, id="infinite losses", marks=pytest.mark.long)


def bracket(question, loss, values):
    found = getattr(evaluate, question)(loss.terms, np.asarray(values), loss.both)
    return tuple(map(np.asarray, found))


def agree(together, alone, close):
    """Brackets intersect, and the first is at most twice as wide as the second, or `close`."""
    (low, high), (low_alone, high_alone) = together, alone
    slack = 1e-14 * np.abs(high)
    assert np.all((low <= high_alone + slack) & (low_alone <= high + slack))
    assert np.all(high - low <= np.maximum(2.0 * (high_alone - low_alone), close))


@pytest.mark.parametrize("loss", list(random_losses()))
def test_many_values_are_those_of_each_alone(loss):
    # Below the probability of infinite losses no epsilon is finite.
    least = 1e-13 if np.isfinite(loss.epsilon(1e-13)) else 1e-8
    last = float(loss.epsilon(least))
    first = float(loss.log_delta(0.0))
    for question, values, close in (
        ("log_delta", np.linspace(0.0, last, 40), 4e-10),
        ("epsilon", np.exp(np.linspace(np.log(least), first - 0.1, 40)), 1e-10 * (1 + last)),
    ):
        with counted() as programs:
            together = bracket(question, loss, values)
        assert not programs
        few = np.arange(3, 40, 12)
        alone = np.array([bracket(question, loss, values[i]) for i in few]).T
        agree([x[few] for x in together], alone, close)
        assert np.all(np.diff(together[1]) < 0)
    # An epsilon satisfies its delta.
    deltas = np.exp(np.linspace(np.log(10.0 * least), first - 0.1, 40))
    assert np.all(np.asarray(loss.delta(loss.epsilon(deltas))) <= deltas * (1 + 1e-9))


def test_few_contours_answer_200_epsilons(monkeypatch):
    loss = sampled(dp.Gaussian(1.1), 256 / 60000, 3515)
    alone = []
    for question, function in list(engine._CURVES.items()):

        def counting(stage, rows, values, *rest, function=function):
            alone.append(values.size)
            return function(stage, rows, values, *rest)

        monkeypatch.setitem(engine._CURVES, question, counting)
    monkeypatch.setattr(shared, "_kept", type(shared._kept)())
    epsilon = np.linspace(0.0, 2.0, 200)
    with counted() as programs:
        together = bracket("log_delta", loss, epsilon)
        loss.epsilon(np.logspace(-9, -2.2, 200))
        loss.tradeoff(np.logspace(-5, -0.01, 200))
    assert not programs
    assert len(shared._kept) == 2  # both directions
    assert sum(alone) < 40  # of some 2,500 values
    few = slice(None, None, 20)
    of_few = bracket("log_delta", loss, epsilon[few])
    assert sum(alone) >= 20
    agree([x[few] for x in together], of_few, 4e-10)


def test_few_grids_answer_many_epsilons_of_atoms(monkeypatch):
    loss = 40 * LOSS(MECHANISM(dp.Laplace(12.0), 1.0))
    grids = []
    total = grid._total
    monkeypatch.setattr(grid, "_total", lambda *x: grids.append(1) or total(*x))
    epsilon = np.linspace(0.0, float(loss.epsilon(1e-8)), 14)
    with counted() as programs:
        grids.clear()
        together = bracket("log_delta", loss, epsilon)
    assert not programs
    assert len(grids) <= 4
    few = [2, 9]
    alone = np.array([bracket("log_delta", loss, epsilon[i]) for i in few]).T
    agree([x[few] for x in together], alone, 1e-10)
    deltas = np.logspace(-8, -1, 12)
    low, high = bracket("epsilon", loss, deltas)
    alone = np.array([bracket("epsilon", loss, deltas[i]) for i in few]).T
    agree((low[few], high[few]), alone, 1e-10)
    assert np.all(np.asarray(loss.delta(high)) <= deltas * (1 + 1e-7))


def test_different_losses_of_a_batch_have_contours_of_their_own():
    noise, epsilon = np.array([1.0, 2.0, np.nan, 1.5])[:, None], np.linspace(0.1, 1.0, 26)
    with pytest.raises(ValueError, match="scale"):
        sampled(dp.Gaussian(noise), 0.01, 800)
    noise = noise[[0, 1, 3]]
    together = bracket("log_delta", sampled(dp.Gaussian(noise), 0.01, 800), epsilon)
    for i, scale in enumerate(noise[:, 0]):
        loss = sampled(dp.Gaussian(scale), 0.01, 800)
        alone = np.array([bracket("log_delta", loss, x) for x in epsilon[::10]]).T
        agree([x[i, ::10] for x in together], alone, 4e-10)


def test_ends_among_many():
    loss = sampled(dp.Gaussian(1.0), 0.01, 800)
    epsilon = np.concatenate([[-1.0, 0.0, 50.0, 1e12, np.inf], np.linspace(0.1, 2.0, 30)])
    deltas = np.concatenate([[0.0, 1e-300, 0.5, 1.0], np.logspace(-9, -3, 30)])
    for question, values in ((loss.log_delta, epsilon), (loss.epsilon, deltas)):
        few = [0, 1, 2, 3, 4]
        alone = np.array([float(question(x)) for x in values[few]])
        np.testing.assert_allclose(np.asarray(question(values))[few], alone, rtol=1e-9)
