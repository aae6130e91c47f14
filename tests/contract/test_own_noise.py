"""A noise of a user's own that contradicts itself: refused in every question about privacy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from own_noises import Logistic, Twin

import jaxdp as dp
from jaxdp.composition import stored
from jaxdp.design.families import known

pytestmark = pytest.mark.float64


@dp.own.pytree
class Claimed(dp.own.NumericalNoise):
    """A logistic noise whose formulas may be wrong: factors of the density and of its places.

    `inner` moves the survival function between the kinks alone; `bump` is a wave of log g.
    """

    scale: jax.Array
    factor: jax.Array
    offset: jax.Array
    stretch: jax.Array
    inner: jax.Array
    bump: jax.Array

    def _log_density(self, x):
        x = x - self.offset
        y = jnp.abs(x) / self.scale
        wave = self.bump * jnp.cos(3.0 * y)
        return -y - 2.0 * jnp.log1p(jnp.exp(-y)) - jnp.log(self.scale) + jnp.log(self.factor) + wave

    def _log_survival(self, x):
        y = self.stretch * x / self.scale
        step = self.inner * y * jnp.maximum(1.0 - y**2, 0.0)
        return -jnp.logaddexp(0.0, y + step)

    def kinks(self):
        return -self.scale, self.scale


RIGHT = {"scale": 0.9, "factor": 1.0, "offset": 0.0, "stretch": 1.0, "inner": 0.0, "bump": 0.0}


def claimed(**wrong):
    return Claimed(**{name: jnp.array(x) for name, x in (RIGHT | wrong).items()})


# What is wrong, and what the error says.
FAULTS = {
    "no log of the scale": ({"factor": 0.9}, "must have a mass of 1"),
    "too little mass": ({"factor": 1e-3}, "must have a mass of 1"),
    "too much mass": ({"factor": 1.0001}, "must have a mass of 1"),
    "not even": ({"offset": 0.01}, "must be even and concave"),
    "not concave": ({"bump": 0.3}, "must be even and concave"),
    "tails": ({"stretch": 1.001}, "log_survival must be the tail of log_density"),
    "between the kinks": ({"inner": 1e-3}, "log_survival must be the tail of log_density"),
}

RELEASES = {
    "plain": (),
    "sampled": (0.1, "add_remove"),
    "replaced": (0.1, "replace_one"),
}


def released(noise, name="plain"):
    return dp.Mechanism(noise, 0.1, *RELEASES[name])


@pytest.mark.parametrize("fault", FAULTS)
def test_compositions_refuse_it(fault):
    wrong, said = FAULTS[fault]
    loss = 100 * dp.privacy_loss(released(claimed(**wrong)))
    with pytest.raises(ValueError, match=f"{said}: not so in Claimed"):
        loss.epsilon(1e-6)


QUESTIONS = {
    "log_delta": lambda loss, _: loss.log_delta(0.5),
    "epsilon": lambda loss, _: loss.epsilon(1e-6),
    "several": lambda loss, _: (100 * loss).delta(jnp.array([0.5, 1.0])),
    "renyi": lambda loss, _: (100 * loss).renyi(2.0),
    "largest": lambda loss, _: (100 * loss).renyi(jnp.inf),
    "mechanism": lambda _, mechanism: mechanism.epsilon(1e-6),
    "bounds": lambda loss, _: (100 * loss).bounds(1.0),
    "never": lambda loss, _: (100 * loss).epsilon(0.0),
    "beside": lambda loss, _: (100 * loss + dp.GDP(1.0)).epsilon(1e-6),
}
# Compile little; every other pair of a release and a question is long.
QUICK = {
    ("plain", "several"),
    ("plain", "mechanism"),
}
# Of a sample the laws are others, and what is asked of them is the same.
PAIRS = [("plain", x) for x in QUESTIONS]
PAIRS += [(x, question) for x in ("sampled", "replaced") for question in ("log_delta", "several")]
ASKED = [pytest.param(*pair, marks=() if pair in QUICK else pytest.mark.long) for pair in PAIRS]


@pytest.mark.parametrize(("release", "question"), ASKED)
def test_every_question_refuses_it(release, question):
    """Of one release and of many, sampled or not, beside others, and of the mechanism itself."""
    mechanism = released(claimed(stretch=1.001), release)
    with pytest.raises(ValueError, match="log_survival must be"):
        QUESTIONS[question](dp.privacy_loss(mechanism), mechanism)


@pytest.mark.parametrize("count", [1, 20])
def test_calibration_refuses_it(count):
    def build(scale):
        one = released(Claimed(scale, *(jnp.array(x) for x in (0.9, 0.0, 1.0, 0.0, 0.0))))
        return one if count == 1 else count * dp.privacy_loss(one)

    with pytest.raises(ValueError, match="must have a mass of 1"):
        dp.calibrate(build, (1.0, 1e-6))


@pytest.mark.parametrize(
    "count", [None, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 9))]
)
def test_in_a_trace_it_claims_nothing(count):
    """None: the mechanism itself."""

    @jax.jit
    def asked(factor):
        mechanism = released(claimed(factor=factor), "sampled" if count == 1 else "plain")
        loss = (count or 1) * dp.privacy_loss(mechanism)
        value = (mechanism if count is None else loss).log_delta(0.1)
        return jnp.stack([value, loss.renyi(2.0)])

    assert not np.any(np.isnan(asked(1.0)))
    value, divergence = asked(0.9)
    assert not value < 0.0
    assert np.isnan(divergence)


# Every symmetric log-concave noise on the reals, with a bounded loss or without.
TWINS = {
    "gaussian": dp.Gaussian(1.5),
    "laplace": dp.Laplace(2.0),
    "flipped_huber": dp.FlippedHuber(1.0, 1.0),
    "offset_gaussian": dp.OffsetGaussian(1.0, 1.0),
    "subbotin": dp.Subbotin(1.0, 1.3),
    "subbotin of a large power": dp.Subbotin(1.0, 3.0),
}
SHIFTS = np.array([0.01, 1.0, 30.0, 1e4])[:, None]


def of_twins(name, ask):
    """The answers of a noise by its formulas, and of the package's own."""
    return (np.asarray(ask(noise)) for noise in (Twin(TWINS[name]), TWINS[name]))


@pytest.mark.parametrize(
    "name", ["gaussian", *(pytest.param(x, marks=pytest.mark.long) for x in [*TWINS][1:])]
)
def test_one_release_has_the_epsilon_of_its_twin(name):
    delta = np.array([0.3, 1e-2, 1e-9, 1e-120])
    found, truth = of_twins(name, lambda noise: dp.Mechanism(noise, SHIFTS).epsilon(delta))
    assert np.all(found >= truth * (1 - 1e-12))
    np.testing.assert_allclose(found, truth, rtol=1e-6)


@pytest.mark.parametrize("name", TWINS)
def test_one_release_has_the_deltas_of_its_twin(name):
    """At every epsilon; below e^-300 nothing is looked at."""
    epsilon = np.array([-2.0, 0.0, 0.3, 4.0, 30.0, 500.0, 1e4, 1e9, 1e30, np.inf])
    found, truth = of_twins(name, lambda noise: noise.log_delta(SHIFTS, epsilon))
    assert np.all((found >= truth - 1e-12) | (found == -np.inf))
    seen = np.maximum(truth, -300.0)
    assert np.all(found <= seen + 1e-9 * (1.0 + np.abs(seen)))


@pytest.mark.long
@pytest.mark.parametrize("relation", ["add_remove", "replace_one"])
@pytest.mark.parametrize("name", TWINS)
def test_one_sampled_release_has_the_epsilon_of_its_twin(name, relation):
    delta = np.array([1e-2, 1e-9, 1e-120])
    found, truth = of_twins(name, lambda x: dp.Mechanism(x, 1.0, 0.1, relation).epsilon(delta))
    np.testing.assert_allclose(found, truth, rtol=1e-6)


@pytest.mark.parametrize("scale", [-0.9, 0.0, np.nan])
def test_a_scale_out_of_range_is_named(scale):
    """Whatever else the formulas say of it; not where another parameter is at fault."""
    named = f"log_density must be a number everywhere: not so in .*, with .*scale = {scale}"
    for noise in (claimed(scale=scale), claimed(scale=scale, factor=0.9)):
        for ask in (
            lambda noise=noise: noise.log_delta(0.1, 0.5),
            lambda noise=noise: (10 * dp.privacy_loss(released(noise))).epsilon(1e-6),
        ):
            with pytest.raises(ValueError, match=named):
                ask()
    with pytest.raises(ValueError, match=r"must have a mass of 1: not so in Claimed$"):
        claimed(factor=0.9).log_delta(0.1, 0.5)


def test_its_losses_are_stored_and_read_where_it_is_defined(monkeypatch):
    loss = 3 * dp.privacy_loss(dp.Mechanism(Logistic(jnp.array(2.0)), 1.0))
    text = loss.to_json()
    assert f"{Logistic.__module__}:Logistic" in text
    assert dp.PrivacyLoss.from_json(text).epsilon(1e-5) == loss.epsilon(1e-5)
    others = {name: kind for name, kind in stored.kinds().items() if kind is not Logistic}
    monkeypatch.setattr(stored, "kinds", lambda: others)
    with pytest.raises(ValueError, match="Logistic' is a class of your own that is not defined"):
        dp.PrivacyLoss.from_json(text)


def test_its_class_is_a_family():
    assert known("family", Logistic) is Logistic
    assert known("family", dp.Laplace) == "laplace"
    member = Logistic._member(jnp.ones(()), jnp.array(3.0))
    np.testing.assert_allclose(member.variance(), 9.0, rtol=1e-9)
    for wrong in (dp.Histogram, dp.own.Noise, int):
        with pytest.raises(ValueError, match="family must"):
            dp.fit_noise(wrong, (1.0, 1e-5), 2.0)


@pytest.mark.long
def test_it_is_fitted_compared_and_allocated():
    noise = dp.fit_noise(Logistic, (1.0, 1e-5), 2.0)
    assert 0.9999e-5 < noise.delta(2.0, 1.0) <= 1e-5
    rows = dp.compare((1.0, 1e-5), 2.0, families=[Logistic, "gaussian", dp.Laplace])
    assert [row.family for row in rows] == ["laplace", "logistic", "gaussian"]
    scales = dp.allocate_exact(Logistic(1.0), [1.0, 2.0], (1.0, 1e-5))
    moves = dp.Mechanism(Logistic(scales), jnp.array([1.0, 2.0]))
    assert 0.9e-5 < dp.privacy_loss(moves).sum().delta(1.0) <= 1e-5


def test_it_is_released_from_a_lattice():
    """Whole multiples, of its law; what float64 may lose of its log density is in delta."""
    noise = Logistic(jnp.array(2.0))
    released = dp.release(
        dp.Mechanism(noise, 1.0), np.zeros(2000), jax.random.key(1), disjoint=True
    )
    multiples = released.value / released.granularity
    np.testing.assert_array_equal(multiples, np.round(multiples))
    places = np.sort(released.value)
    gaps = np.exp(np.asarray(noise.log_survival(places))) - 1.0 + np.arange(2000.0) / 2000.0
    assert np.sqrt(2000.0) * abs(gaps).max() < 2.5
    assert 2000 * 2.0**-40 <= released.sampling_error < 2000 * 2.0**-39.9
    exact = noise.delta(1.0, 0.4)
    assert exact + 2.0**-29 < released.delta(0.4) < exact * 1.001
    with pytest.raises(ValueError, match="must have a mass of 1"):
        dp.release(dp.Mechanism(claimed(factor=0.9), 1.0), 0.0)
    with pytest.raises(ValueError, match=r"or your own noise on the reals .* got Stair"):
        dp.release(dp.Mechanism(dp.Staircase(1.0, 1.0, 0.4), 1.0), 0.0)
