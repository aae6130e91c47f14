"""Claims of audits: every kind is refuted at its own delta, and nothing is cleared for nothing."""

import jax
import numpy as np
import pytest

import jaxdp as dp
from jaxdp.guarantee.drawn import Drawn

KEY = jax.random.key(11)
RECORDS = np.array([1.0, 1.0, 0.0])


def laplace(keys, shape=()):
    """Noise of as many trials as there are keys."""
    generator = np.random.default_rng(np.asarray(jax.random.key_data(keys[0])))
    return generator.laplace(0, 1.0, (len(keys), *shape))


def of_epsilon_six(data, keys):
    """Laplace noise whose loss reaches 6.65, rounded."""
    return np.round((data + laplace(keys) / 6.65) * 2**10) / 2**10


def quick(mechanism=of_epsilon_six, pair=(0.0, 1.0), trials=4000, **known):
    known = {"key": KEY, "chunk": trials, "progress": False} | known
    return dp.audit.run(mechanism, pair, trials, **known)


@pytest.mark.parametrize(
    ("claim", "delta"),
    [
        *(((1.0, 0.05), 0.05), (dp.Budget(1.0, 0.05), 0.05), (dp.ApproxDP(1.0, 1e-5), 1e-5)),
        *((dp.PureDP(1.0), 0.0), (1.0, 0.0), (1, 0.0), (np.float32(1.0), 0.0)),
        (Drawn(dp.ApproxDP(1.0, 1e-5), 1e-12), 1e-5),
        (dp.Mechanism(dp.Laplace(1.0), 1.0), 0.0),
        (dp.privacy_loss(dp.Mechanism(dp.Laplace(1.0), 1.0)), 0.0),
    ],
    ids=str,
)
def test_every_kind_of_claim_is_refuted_at_its_own_delta(claim, delta):
    found = quick(claim=claim)
    assert found.is_refuted is True
    assert found.claimed == pytest.approx(1.0)
    assert found.delta == pytest.approx(delta)

    def training(included, key):
        return included + laplace([key], included.shape)[0] / 6.65

    one = dp.audit.one_run(training, 400, claim=claim, key=KEY)
    assert one.is_refuted is (delta < 0.05)  # a large delta leaves one run little to refute
    assert (one.claimed, one.delta) == (found.claimed, found.delta)


@pytest.mark.parametrize(
    "claim",
    [
        *("abc", True, np.inf, np.nan, -1.0, (1.0,), (-1.0, 0.1), (np.inf, 0.1), (1.0, 1.0), {}),
        *(dp.Laplace(1.0), dp.PureDP(np.inf), dp.GDP(np.inf), dp.ZCDP(0.0, 1.0), (np.ones(2), 0.1)),
        *(Drawn(dp.PureDP(1.0), 1.0), dp.Mechanism(dp.Gaussian(1.0), 1.0, 0.5, "add_remove")),
    ],
    ids=str,
)
def test_a_claim_that_nothing_refutes_is_an_error(claim):
    for audit in (
        lambda: quick(claim=claim, trials=10),
        lambda: dp.audit.one_run(lambda taken, key: taken, 10, claim=claim, key=KEY),
    ):
        with pytest.raises(ValueError, match=r"claim|epsilon|delta|mu"):
            audit()


def test_a_delta_below_that_of_the_claim_is_an_error():
    with pytest.raises(ValueError, match=r"claim must be .* have a finite epsilon at delta"):
        quick(claim=dp.ApproxDP(1.0, 1e-5), delta=1e-6)


def test_there_is_no_verdict_without_a_claim():
    found = quick()
    assert found.is_refuted is None
    assert found.finding == "no claim to refute"
    assert found.epsilon_lower > 3.0


SAME = {
    "numbers": (1.0, 1.0),
    "arrays": (RECORDS, RECORDS.copy()),
    "not a number": (np.array([np.nan, 1.0]), np.array([np.nan, 1.0])),
    "trees": ({"x": RECORDS, "y": ["a", 1]}, {"x": RECORDS.copy(), "y": ["a", 1]}),
}


@pytest.mark.parametrize("name", SAME)
def test_equal_neighbours_are_an_error(name):
    with pytest.raises(ValueError, match="neighbours must differ"):
        quick(lambda data, keys: laplace(keys), SAME[name], claim=1.0)


OUTPUTS = {
    "not a number": (lambda x, k: laplace(k) * np.nan, "finite numbers"),
    "infinite": (lambda x, k: x / np.zeros(len(k)), "finite numbers"),
    "constant": (lambda x, k: np.ones((len(k), 2)), "constant output"),
    "nothing": (lambda x, k: [], "constant output"),
    "text": (lambda x, k: np.array(["a"] * len(k)), "must return numbers"),
    "one for all": (lambda x, k: np.float64(x), "one row for each of 20 keys"),
    "keys last": (lambda x, k: laplace(k)[None], "one row for each of 20 keys"),
    "two a key": (lambda x, k: np.repeat(laplace(k), 2), "one row for each of 20 keys"),
}


@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs_without_a_test_are_an_error(name):
    mechanism, message = OUTPUTS[name]
    with pytest.raises(ValueError, match=message):
        quick(mechanism, claim=1.0, trials=20)


def test_a_mechanism_without_noise_is_refuted():
    """Its outputs are constant for each neighbour, not for both."""
    assert quick(lambda x, k: np.full(len(k), x), claim=1.0).is_refuted
