"""DP-SGD by the scheme that is run: numbers of sampling.md, words, refusals."""

import numpy as np
import pytest
from scipy.stats import binom, norm

import jaxdp as dp

MNIST = {"dataset_size": 60_000, "batch_size": 256}


def test_balls_in_bins_and_their_words():
    text = str(dp.dpsgd.statement(1.1, 1e-5, **MNIST, epochs=15, sampling="balls_in_bins"))
    assert "(15.11, 1e-05)-differentially" in text
    assert "one of 235 steps, the same in every epoch" in text
    assert "none is cut" in text


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "epsilon"),
    [
        ({"sampling": "truncated", "batch_size_limit": 320, "steps": 3516}, 1.161),
        ({"sampling": "truncated", "batch_size_limit": 256, "steps": 3516}, 5.961),
        ({"sampling": "without_replacement", "steps": 3516}, 7.817),
        ({"sampling": "random_allocation", "epochs": 15}, 1.0922),
        ({"group_size": 2, "steps": 3516}, 2.451),
    ],
)
def test_the_table_of_what_is_run(arguments, epsilon):
    found = float(dp.dpsgd.epsilon(1.1, 1e-5, **MNIST, **arguments))
    assert found == pytest.approx(epsilon, abs=6e-4)


def test_shuffling_is_refused_with_what_is_known():
    """At the delta that was asked, and without numbers where none was."""
    training = {**MNIST, "epochs": 15, "sampling": "shuffled"}
    for delta, numbers in (
        (1e-5, "delta 1e-05.* 4.301.* 21.46"),
        (1e-8, "delta 1e-08.* 26.42"),
    ):
        for ask in (dp.dpsgd.epsilon, dp.dpsgd.statement, dp.dpsgd.curve):
            with pytest.raises(ValueError, match=numbers + ".*shuffled_bounds"):
                ask(1.1, delta, **training)
    for ask in (
        lambda: dp.dpsgd.Phase(1.1, **training),
        lambda: dp.dpsgd.delta(1.1, 2.0, **training),
        lambda: dp.dpsgd.noise_multiplier(epsilon=1.0, delta=1e-6, **training),
    ):
        with pytest.raises(ValueError, match=r"no useful bound is known; see dp"):
            ask()
    lower, upper = dp.dpsgd.shuffled_bounds(1.1, 1e-5, **MNIST, epochs=15)
    assert 4.3 < lower < upper
    assert upper == pytest.approx(21.461, abs=1e-3)


def test_the_attack_on_shuffled_batches_counts_all_passes():
    """By the binomial laws of scipy, at the threshold that is best; 6.6 after one pass.

    The loader that keeps the last batch ends 39 passes, of 235 batches, and begins another.
    """
    one, many = (dp.dpsgd.shuffled_bounds(0.7, 1e-5, **MNIST, epochs=e)[0] for e in (1, 40))
    assert (one, many) == (pytest.approx(6.622, abs=1e-3), pytest.approx(34.736, abs=1e-3))
    cuts, others = np.linspace(-6.0, 14.0, 801), 235 - 1
    share = 210 / (60_000 / 256)
    laws = []
    for mean in (2, 1):
        ways = norm.logcdf(cuts - mean / 0.7), norm.logcdf(cuts)
        whole = binom.pmf(np.arange(41), 39, -np.expm1(ways[0] + others * ways[1])[:, None])
        below = share * np.exp(ways[0]) + (1 - share) * np.exp(ways[1])
        last = 1 - (below * np.exp(209 * ways[1]))[:, None]
        laws.append((1 - last) * whole + last * np.roll(whole, 1, axis=1))
    p, q = laws
    deltas = [np.max(np.sum(np.maximum(p - np.exp(e) * q, 0), -1)) for e in (many, many + 1e-6)]
    assert deltas == [pytest.approx(1e-5, rel=1e-5)] * 2


@pytest.mark.parametrize(("records", "batch"), [(3, 2), (1000, 333), (1000, 501), (1000, 10)])
def test_a_record_may_be_in_no_batch_that_is_released(records, batch):
    """One step, by quadrature: the record is in it with probability batch / records."""
    for delta in (1e-2, 1e-5):
        sizes = {"dataset_size": records, "batch_size": batch, "steps": 1}
        lower, upper = dp.dpsgd.shuffled_bounds(1.0, delta, **sizes)
        y, share = np.linspace(-12.0, 14.0, 20_001), batch / records
        p, q = (share * norm.pdf(y - m) + (1 - share) * norm.pdf(y) for m in (2, 1))
        truth = np.trapezoid(np.maximum(p - np.exp(lower) * q, 0.0), y)
        assert lower == 0 or delta * (1 - 1e-6) <= truth <= delta * 1.1
        assert lower < upper


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({**MNIST, "sampling": "truncated", "steps": 10}, "batch_size_limit must be given"),
        ({**MNIST, "batch_size_limit": 10, "steps": 10}, "batch_size_limit must be given"),
        ({**MNIST, "sampling": "random_allocation", "steps": 10}, "whole epochs of 235"),
        ({**MNIST, "sampling": "balls_in_bins", "epochs": 1.5}, "must be whole"),
        ({**MNIST, "sampling": "by_hand", "steps": 10}, "sampling must be one of"),
        (
            {"sampling": "without_replacement", "sampling_prob": 0.1, "steps": 1},
            "dataset_size must be given",
        ),
    ],
)
def test_what_is_missing_is_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        dp.dpsgd.Phase(1.1, **arguments)


@pytest.mark.parametrize(
    "drawn", [{"sampling": "truncated", "batch_size_limit": 130}, {"group_size": 2}]
)
def test_as_many_steps_as_a_scheme_allows(drawn):
    run = {"dataset_size": 10_000, "batch_size": 100, **drawn}
    most = dp.dpsgd.steps(2.0, epsilon=1.0, delta=1e-5, **run)
    for extra, within in ((0, True), (1, False)):
        spent = dp.dpsgd.delta(2.0, 1.0, steps=most + extra, **run)
        assert bool(spent <= 1e-5) is within
    with pytest.raises(ValueError, match="steps must be whole epochs of 100"):
        dp.dpsgd.steps(2.0, epsilon=1.0, delta=1e-5, sampling_prob=0.01, sampling="balls_in_bins")
