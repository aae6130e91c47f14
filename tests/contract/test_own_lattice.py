"""A pair of one's own that says where its atoms lie: rightly, wrongly, or not at all."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxdp as dp
from jaxdp._core.pytree import static
from jaxdp.dominating_pair.poisson import Poisson

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
    lower, upper = (COUNT * dp.privacy_loss(answer(*case))).bounds(EPSILON)
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


def test_in_a_trace_a_wrong_lattice_claims_nothing():
    @jax.jit
    def log_delta(unit):
        pair = Answer(jnp.array(0.75), jnp.array(0.25), unit, jnp.array(0.0))
        return (COUNT * dp.privacy_loss(pair)).log_delta(EPSILON)

    assert not log_delta(1.0) < -1e-9
    np.testing.assert_allclose(
        log_delta(np.log(3.0)), np.log(truth(0.75, 0.25, COUNT, EPSILON)), rtol=1e-7
    )


@pytest.mark.parametrize(("often", "rarely"), [(0.9, 0.3), (0.75, 0.25)])
def test_kinks_without_atoms_are_atoms_anywhere(often, rarely):
    pair = answer(often, rarely, np.nan, kind="kinks")
    loss = COUNT * dp.privacy_loss(pair)
    lower, upper = loss.bounds(EPSILON)
    known = truth(often, rarely, COUNT, EPSILON)
    assert lower <= known <= upper <= float(loss.delta(EPSILON)) * (1 + 1e-6) <= 1.001 * known
    sampled = dp.privacy_loss(Poisson(pair, jnp.array(0.2), jnp.array(0.0)))
    assert 0.0 < float((COUNT * sampled).delta(1.0)) < float(loss.delta(1.0))


def test_the_worse_direction_of_an_asymmetric_pair():
    pair = answer(0.9, 0.3, np.nan, kind="kinks")
    one, other = (float((COUNT * dp.privacy_loss(x)).delta(6.0)) for x in (pair, pair.reversed()))
    both = float((COUNT * dp.privacy_loss(pair, relation="add_remove")).delta(6.0))
    assert one != other
    assert both == pytest.approx(max(one, other), rel=1e-9)
    assert truth(0.9, 0.3, COUNT, 6.0) <= one <= truth(0.9, 0.3, COUNT, 6.0) * 1.001
    assert truth(0.3, 0.9, COUNT, 6.0) <= other <= truth(0.3, 0.9, COUNT, 6.0) * 1.001
