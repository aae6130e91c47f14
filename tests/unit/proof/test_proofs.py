"""Brackets of compositions against closed forms, exact sums and the accountant; planted errors."""

import functools
import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb
from proof_oracle import exact, gaussian_delta, normal_tail, response_delta, sum_of_atoms

import jaxdp as dp
from jaxdp.proof import balls, contour, curve, decision, finite, law, laws, statement

POINTS = 3000


@pytest.fixture(autouse=True)
def precise():
    with balls.precision(240):
        yield


def bracket(loss, epsilon, exchanged=False):
    known = statement.read(loss.to_json())
    return decision.bracket(known, exchanged, Fraction(epsilon), POINTS)


def check(found, truth, width):
    assert not found.lower > truth
    assert not truth > found.upper
    assert found.upper - found.lower < width * found.upper


def sampled(scale, q, relation):
    return dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0, q, relation))


def one_added(scale, q, epsilon):
    """The closed form of "add": P = N(0), Q a mixture, losses above epsilon left of x."""
    s, q, e = exact(scale), exact(q), epsilon.exp()
    x = s * s * ((1 / e - 1 + q) / q).log() + arb(1) / 2
    below = normal_tail(-x / s)
    return below - e * ((1 - q) * below + q * normal_tail((1 - x) / s))


def one_removed(scale, q, epsilon):
    """A Gaussian at the loss that sampling lifts to epsilon."""
    at = ((exact(epsilon).exp() - 1 + exact(q)) / exact(q)).log()
    return exact(q) * gaussian_delta(1 / exact(scale), at)


def check_one_added():
    for scale, q, epsilon in ((1.0, 0.25, 0.0625), (2.0, 0.5, 0.25), (0.625, 0.875, 1.0)):
        truth = one_added(scale, q, exact(epsilon))
        check(bracket(sampled(scale, q, "add"), epsilon), truth, 1e-15)


@functools.cache
def two_removed(scale, q, epsilon):
    """Over the loss of the first release, the closed form of the second."""
    s, q = exact(scale), exact(q)
    total = arb(0)
    # The kink, where the second release has a loss above its least one for certain: panels shrink
    # towards it from the left.
    kink = s * s * ((exact(epsilon).exp() / (1 - q) - 1 + q) / q).log() + arb(1) / 2
    edges = [kink + s * i / 4 for i in range(-56, 0)]
    edges += [kink - s * arb(2) ** -k for k in range(3, 60)]
    edges += [kink, *(kink + s * i / 2 for i in range(1, 30))]
    for low, high in itertools.pairwise(edges):
        for y, w in balls.gauss_rule(24, 160):
            x, w = (low + high + (high - low) * y) / 2, w * 8 * (high - low) / s
            clean = (-((x / s) ** 2) / 2).exp() / (s * (2 * arb.pi()).sqrt())
            ratio = 1 - q + q * ((2 * x - 1) / (2 * s * s)).exp()
            left = exact(epsilon) - ratio.log()
            lifted = (left.exp() - 1 + q) / q
            second = q * gaussian_delta(1 / s, lifted.log()) if lifted > 0 else 1 - left.exp()
            total += w * s / 16 * clean * ratio * second
    return total


def check_two_removed():
    truth = two_removed(1.0, 0.25, 1.0)
    check(bracket(2 * sampled(1.0, 0.25, "remove"), 1.0), truth, 1e-10)


def test_gaussians():
    for scale, count, epsilon in ((2.0, 1, 1.0), (0.5, 3, 0.5), (10.0, 100, 12.0)):
        loss = count * dp.privacy_loss(dp.Mechanism(dp.Gaussian(scale), 1.0))
        mu = arb(count).sqrt() / exact(scale)
        check(bracket(loss, epsilon), gaussian_delta(mu, exact(epsilon)), 1e-15)


def test_one_and_two_sampled_gaussians():
    check_one_added()
    check_two_removed()
    for scale, q, epsilon in ((1.0, 0.125, 0.5), (0.625, 0.03125, 1.0)):
        truth = one_removed(scale, q, epsilon)
        check(bracket(sampled(scale, q, "remove"), epsilon), truth, 1e-15)


def test_responses():
    for n, bound, epsilon in ((10, 0.5, 1.25), (101, 0.125, 2.0), (1000, 0.03125, 1.0)):
        loss = n * dp.privacy_loss(dp.PureDP(bound))
        check(bracket(loss, epsilon), response_delta(n, bound, epsilon), 1e-12)
    # Failures are infinite losses.
    truth = 1 - exact(0.875) ** 3 * (1 - response_delta(3, 0.5, 0.75))
    check(bracket(3 * dp.privacy_loss(dp.ApproxDP(0.5, 0.125)), 0.75), truth, 1e-12)


LATTICES = {
    "discrete Laplace": lambda: finite.discrete_laplace(Fraction(2), 3),
    "staircase": lambda: finite.staircase(
        Fraction("1/2"), Fraction(1), Fraction("1/4"), Fraction("3/2")
    ),
    "randomised response": lambda: finite.randomised_response(Fraction(1, 2), Fraction(5)),
}


@pytest.mark.parametrize("kind", LATTICES)
def test_losses_on_a_lattice(kind):
    known = LATTICES[kind]()
    assert known.lattice is not None
    unit, offset = known.lattice
    masses = {round((float(x) - float(offset)) / float(unit)): m for x, m in known.atoms}
    atoms = masses, lambda k, n: balls.ball(unit * k + n * offset)
    truth = sum_of_atoms(atoms, 3, 1.125)
    check(contour.bracket([(3, known)], Fraction(9, 8), POINTS), truth, 1e-12)


def test_losses_off_a_lattice():
    """By all sums of three losses."""
    p, q = np.array([0.125, 0.375, 0.5]), np.array([0.25, 0.5, 0.25])
    loss = dp.PrivacyLoss.from_pmf(np.log(p / q), p, q, "remove")
    pair = json.loads(loss.to_json())["terms"][0]["pair"]
    losses, masses = ([exact(float.fromhex(x)) for x in pair[k]] for k in ("losses", "masses"))
    truth = arb(0)
    for triple in itertools.product(zip(losses, masses, strict=True), repeat=3):
        total = sum((x for x, _ in triple), arb(0))
        mass = math.prod((m for _, m in triple), start=arb(1))
        truth += mass * balls.positive_part(1 - (exact(0.5) - total).exp())
    check(bracket(3 * loss, 0.5), truth, 1e-15)


def released(count, *arguments, **named):
    """The loss of so many releases of a mechanism."""
    return count * dp.privacy_loss(dp.Mechanism(*arguments, **named))


def replaced(sampling):
    return released(300, dp.Gaussian(1.5), 1.0, relation="replace_one", sampling=sampling)


LOSSES = {
    "fixed batch": lambda: replaced(dp.sampling.WithoutReplacement(20, 1000)),
    "truncated": lambda: replaced(dp.sampling.TruncatedPoisson(0.02, 1000, 25)),
    "group": lambda: released(300, dp.Gaussian(3.0), 1.0, 0.02, "add_remove", group_size=3),
    "replaced": lambda: released(300, dp.Laplace(2.0), 1.0, 0.02, "replace_one"),
    "zero_out": lambda: 300 * sampled(1.5, 0.02, "zero_out"),
    "flipped huber": lambda: released(50, dp.FlippedHuber(2.0, 9.0), 1.0),
    "offset gaussian": lambda: released(50, dp.OffsetGaussian(2.0, 9.0), 1.0),
    "truncated laplace": lambda: released(50, dp.TruncatedLaplace(20.0, 700.0), 1.0),
    "discrete gaussian": lambda: released(50, dp.DiscreteGaussian(9.0), 2),
    "mixed": lambda: (
        300 * sampled(1.5, 0.02, "add_remove")
        + released(5, dp.Laplace(9.0), 1.0)
        + released(1, dp.Gaussian(np.array([4.0, 5.0])), 1.0).sum()
    ),
}
# Their proofs take 8 CPU seconds each; of noises with pieces another one is quick.
LONG = ("flipped huber", "fixed batch")


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.long if k in LONG else ()) for k in LOSSES]
)
def test_the_accountant_is_proved_and_a_smaller_delta_refuted(kind):
    loss = LOSSES[kind]()
    epsilon = float(loss.epsilon(1e-5))
    proof = dp.verify(loss, epsilon, 1e-5)
    assert proof.proved is True
    assert float(proof.lower) <= float(proof.upper) <= 1e-5
    width = (float(proof.upper) - float(proof.lower)) / 1e-5
    assert width < 1e-9
    refuted = dp.verify(loss, epsilon, float(proof.lower) * (1 - 1e-6))
    assert refuted.proved is False


def test_an_accountant_with_half_of_the_kernel_is_refuted():
    """It would report the epsilon of twice the delta."""
    loss = LOSSES["group"]()
    assert dp.verify(loss, float(loss.epsilon(2e-5)), 1e-5).proved is False


def test_a_bad_choice_is_wide_and_never_wrong():
    known = statement.read((10 * sampled(1.0, 0.25, "remove")).to_json())
    good = decision.bracket(known, False, Fraction(2), 2000)
    for most in (60, 16):
        found = decision.bracket(known, False, Fraction(2), most)
        assert found.lower <= good.lower
        assert good.upper <= found.upper


def test_a_statement_is_left_open_when_its_time_is_over():
    loss = 10 * sampled(1.0, 0.25, "remove")
    proof = dp.verify(loss, 2.0, 0.5, seconds=1e-6)
    assert (proof.proved, float(proof.upper)) == (None, 1.0)
    assert dp.verify(loss, 2.0, 0.5).proved is True
    with pytest.raises(ValueError, match="seconds must be above 0"):
        dp.verify(loss, 2.0, 0.5, seconds=0.0)


def missing_exchange(monkeypatch):
    whole = laws._mixture
    monkeypatch.setattr(
        laws, "_mixture", lambda pair, exchanged: whole({**pair, "added": 0}, False)
    )


def doubled_kernel(monkeypatch):
    whole = contour._summed
    monkeypatch.setattr(contour, "_summed", lambda *a: [2 * x for x in whole(*a)])


def conjugate(monkeypatch):
    """The transform on the other half line, for the complex points of a polygon."""
    whole = law.Law.line
    monkeypatch.setattr(law.Law, "line", lambda self, c, step, *more: whole(self, c, -step, *more))


def no_tail(monkeypatch):
    monkeypatch.setattr(law.Law, "tail", lambda self, c, start, nats, stop: arb(0))
    monkeypatch.setattr(law.Law, "log_tail", lambda self, c, t: -1000.0)


def wrong_factor(monkeypatch):
    """Gauss weights of half of the size."""
    whole = balls.gauss_rule
    rule = lambda order, bits: [(y, w / 2) for y, w in whole(order, bits)]  # noqa: E731
    monkeypatch.setattr(curve, "gauss_rule", rule)


@pytest.mark.parametrize(
    ("plant", "caught_by"),
    [
        (missing_exchange, check_one_added),
        (doubled_kernel, check_two_removed),
        (conjugate, check_two_removed),
        (no_tail, check_two_removed),
        (wrong_factor, check_two_removed),
    ],
)
def test_a_planted_error_is_caught(plant, caught_by, monkeypatch):
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        caught_by()
