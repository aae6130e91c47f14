"""Dominating pairs of a user's own: what engines may ask them, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._core.pytree import static
from jaxdp._numeric.quadrature import gauss_legendre
from jaxdp.dominating_pair.additive import Additive
from jaxdp.dominating_pair.base import Law
from jaxdp.dominating_pair.poisson import Poisson
from jaxdp.dominating_pair.replaced import Replaced
from jaxdp.noise.nodes import along_last

pytestmark = pytest.mark.float64


@pytest.mark.parametrize(
    ("pair", "hit"),
    [
        (Additive(dp.Gaussian(0.1), 1.0), 1.0),
        (Poisson(Additive(dp.Gaussian(0.1), 1.0), 0.01, 1.0), 0.01),
        (Poisson(Poisson(Additive(dp.Gaussian(0.1), 1.0), 0.3, 0.0), 0.01, 0.0), 0.003),
        (Replaced(dp.Gaussian(0.1), 1.0, 0.01), 0.01),
        (Poisson(Additive(dp.Gaussian(0.1), 1.0), 0.0, 0.0), 0.0),
    ],
)
def test_a_release_that_touches_no_record_tells_nothing(pair, hit):
    """delta(0) is at most the probability of a hit, in both directions."""
    for one in (pair, pair.reversed()):
        np.testing.assert_allclose(jnp.exp(one.log_hit()), hit, rtol=1e-14)
        assert float(one.log_delta(0.0)) <= float(one.log_hit()) + 1e-14


@dp.own.pytree
class Short(dp.own.DominatingPair):
    """A Gaussian by nodes between two ends, and what it states of the probability beyond them."""

    mu: jax.Array
    reach: jax.Array
    log_left_out: jax.Array

    def _gaussian(self):
        return Additive(dp.Gaussian(jnp.ones_like(self.mu)), self.mu)

    def log_delta(self, epsilon):
        return self._gaussian().log_delta(epsilon)

    def law(self):
        def rule(order):
            place, share = gauss_legendre(order)
            x = self.reach[..., None] * along_last(2.0 * place - 1.0, self.mu.ndim)
            weight = 2.0 * self.reach[..., None] * along_last(share, self.mu.ndim)
            log_density = -0.5 * x * x - 0.5 * jnp.log(2.0 * jnp.pi)
            mu = self.mu[..., None]
            return mu * x + 0.5 * mu * mu, log_density + jnp.log(weight), log_density - jnp.log(mu)

        never = jnp.full_like(self.mu, -jnp.inf)
        endless = jnp.full_like(self.mu, jnp.inf)
        return Law(*rule(100), rule(90)[:2], self.log_left_out, never, endless)

    def singularities(self):
        return self._gaussian().singularities()

    def reversed(self):
        return self

    def renyi(self, order):
        """No divergence is known, so that the nodes alone count."""
        return jnp.full_like(self._gaussian().renyi(order), jnp.inf)


def short(mu, reach, left_out):
    return Short(*(jnp.array(x) for x in (mu, reach, left_out)))


# log P[|x| > 4] of a standard Gaussian.
BEYOND_FOUR = np.log(6.3342484e-5)


@pytest.mark.parametrize("sampled", [False, True])
def test_nodes_that_end_early_are_refused(sampled):
    """Whether the pair is taken as it is or sampled, in a batch, beside others, by every engine."""
    pair = short(1.0, 4.0, -np.inf)
    pair = Poisson(pair, jnp.array(0.5), jnp.array(0.0)) if sampled else pair
    loss = 4 * dp.privacy_loss(pair)
    for ask in (
        lambda: loss.log_delta(20.0),
        lambda: loss.epsilon(1e-6),
        lambda: loss.bounds(20.0),
        lambda: (loss + dp.GDP(1.0)).log_delta(jnp.array([0.5, 1.0])),
    ):
        with pytest.raises(ValueError, match=r"masses of the law of .* must add up to 1"):
            ask()


LONG = pytest.mark.long


@pytest.mark.parametrize(
    ("question", "argument"),
    [("log_delta", 20.0), pytest.param("epsilon", 1e-6, marks=LONG)],
)
def test_in_a_trace_nodes_that_end_early_claim_nothing(question, argument):
    def answer(reach):
        loss = 4 * dp.privacy_loss(Short(jnp.ones(2), reach, jnp.full(2, -jnp.inf)))
        return getattr(loss, question)(argument)

    short, whole = jax.jit(answer)(jnp.array([4.0, 12.0]))
    assert not short < (0.0 if question == "log_delta" else np.inf)
    assert whole < (-40.0 if question == "log_delta" else 12.0)


@pytest.mark.long
def test_what_a_law_leaves_out_counts_at_most_once_a_release():
    """Of 4 releases 4 times; of nodes that reach far it is nothing."""
    found = float((4 * dp.privacy_loss(short(1.0, 4.0, BEYOND_FOUR))).log_delta(20.0))
    truth = float((4 * dp.privacy_loss(dp.GDP(1.0))).log_delta(20.0))
    assert truth <= found <= BEYOND_FOUR + np.log(4.0) + 1e-3
    far = 4 * dp.privacy_loss(short(1.0, 8.0, -34.0))
    truth = float((4 * dp.privacy_loss(dp.GDP(1.0))).log_delta(4.0))
    assert truth <= float(far.log_delta(4.0)) <= truth + 1e-6


def test_a_staircase_moved_by_many_sensitivities():
    """Levels beyond those that are nodes are left out: three releases are no less than one."""
    staircase = dp.Mechanism(dp.Staircase(0.05, 1.0, 0.3), 100.0, 0.1, "remove")
    loss = dp.privacy_loss(staircase)
    assert float((3 * loss).log_delta(2.0)) >= float(staircase.log_delta(2.0))


COUNT = 30
EPSILON = 3.0


@dp.own.pytree
class Answer(dp.own.DominatingPair):
    """A yes, with probabilities `often` and `rarely`, or a no; losses on what is claimed."""

    often: jax.Array
    rarely: jax.Array
    unit: jax.Array
    odd: jax.Array
    kind: str = static(default="lattice")

    def log_delta(self, epsilon):
        ratio = jnp.exp(epsilon)
        yes = jnp.maximum(self.often - ratio * self.rarely, 0.0)
        no = jnp.maximum((1.0 - self.often) - ratio * (1.0 - self.rarely), 0.0)
        return jnp.minimum(jnp.log(yes + no) + 1e-12, 0.0)

    def law(self):
        p, q = (jnp.stack([x, 1.0 - x], axis=-1) for x in (self.often, self.rarely))
        loss, log_mass = jnp.log(p / q), jnp.log(p)
        never = jnp.full_like(self.often, -jnp.inf)
        largest = jnp.max(loss, axis=-1) + 1e-14
        density = jnp.full_like(loss, jnp.inf)
        return dp.own.Law(loss, log_mass, density, (loss, log_mass), never, never, largest)

    def singularities(self):
        return dp.own.Kinks(()) if self.kind == "kinks" else dp.own.Lattice(self.unit, self.odd)

    def reversed(self):
        return Answer(self.rarely, self.often, self.unit, self.odd, self.kind)

    def renyi(self, order):
        no, other = 1.0 - self.often, 1.0 - self.rarely
        s = order - 1.0
        yes = self.often * (self.often / self.rarely) ** s
        return jnp.log(yes + no * (no / other) ** s) / s


def answer(often, rarely, unit, odd=0.0, kind="lattice"):
    p, q, lattice, half = (jnp.array(float(x)) for x in (often, rarely, unit, odd))
    return Answer(p, q, lattice, half, kind)


def truth(often, rarely, count, epsilon):
    """delta by summing over the number of yeses."""
    yes = np.arange(count + 1)
    choose = np.cumprod(np.concatenate([[1.0], (count - yes[:-1]) / (yes[:-1] + 1.0)]))
    p, q = (choose * x**yes * (1.0 - x) ** (count - yes) for x in (often, rarely))
    return np.sum(np.maximum(p - np.exp(epsilon) * q, 0.0))


# Losses log 2 and -log 4, on a lattice of log 2; +-log 3, on one of 2 log 3, odd, and of log 3.
RIGHT = [
    (6 / 7, 3 / 7, np.log(2.0), 0.0),
    (3 / 4, 1 / 4, 2.0 * np.log(3.0), 1.0),
    (3 / 4, 1 / 4, np.log(3.0), 0.0),
]
WRONG = [
    (6 / 7, 3 / 7, 2.0 * np.log(2.0), 0.0),
    (6 / 7, 3 / 7, np.log(2.0), 1.0),
    (6 / 7, 3 / 7, np.log(2.0) * (1.0 + 1e-9), 0.0),
    (3 / 4, 1 / 4, 2.0 * np.log(3.0), 0.0),
    (3 / 4, 1 / 4, 1.0, 0.0),
    (3 / 4, 1 / 4, 0.0, 0.0),
    (3 / 4, 1 / 4, -np.log(3.0), 0.0),
]


@pytest.mark.parametrize("case", RIGHT)
def test_a_right_lattice_is_exact(case):
    lower, upper = (COUNT * dp.privacy_loss(answer(*case), "remove")).bounds(EPSILON)
    known = truth(case[0], case[1], COUNT, EPSILON)
    assert known * (1 - 1e-9) <= lower <= known <= upper <= known * (1 + 1e-9)


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_lattice_is_refused(case):
    loss = COUNT * dp.privacy_loss(answer(*case))
    for ask in (loss.bounds, loss.log_delta, loss.log_delta_error, (loss + dp.PureDP(0.1)).bounds):
        with pytest.raises(ValueError, match=r"singularities\(\) of Answer must be a Lattice"):
            ask(EPSILON)
    with pytest.raises(ValueError, match=r"singularities\(\) of Answer must be a Lattice"):
        loss.epsilon(1e-3)


@pytest.mark.long
def test_in_a_trace_a_wrong_lattice_claims_nothing():
    @jax.jit
    def log_delta(unit):
        pair = Answer(jnp.array(0.75), jnp.array(0.25), unit, jnp.array(0.0))
        return (COUNT * dp.privacy_loss(pair, "remove")).log_delta(EPSILON)

    known = np.log(truth(0.75, 0.25, COUNT, EPSILON))
    assert not log_delta(1.0) < known  # Renyi divergences do not read the lattice.
    np.testing.assert_allclose(log_delta(np.log(3.0)), known, rtol=1e-7)


@pytest.mark.parametrize(("often", "rarely"), [pytest.param(0.9, 0.3, marks=LONG), (0.75, 0.25)])
def test_kinks_without_atoms_are_atoms_anywhere(often, rarely):
    pair = answer(often, rarely, np.nan, kind="kinks")
    loss = COUNT * dp.privacy_loss(pair, "remove")
    lower, upper = loss.bounds(EPSILON)
    known = truth(often, rarely, COUNT, EPSILON)
    assert lower <= known <= upper <= float(loss.delta(EPSILON)) * (1 + 1e-6) <= 1.001 * known
    sampled = dp.privacy_loss(Poisson(pair, jnp.array(0.2), jnp.array(0.0)), "remove")
    assert 0.0 < float((COUNT * sampled).delta(1.0)) < float(loss.delta(1.0))
