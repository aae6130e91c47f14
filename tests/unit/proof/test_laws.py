"""Transforms of the laws against the integrals and sums that define them."""

import math
from fractions import Fraction

import pytest
from flint import acb, arb, ctx
from proof_oracle import exact, transform

from jaxdp.proof import balls, contour, finite, laws
from jaxdp.proof import exact as sums

# Kinds of noise: name in a statement, in the oracle, parameters.
NOISES = {
    "gaussian": ("Gaussian", {"scale": 0.75}),
    "laplace": ("Laplace", {"scale": 1.5}),
    "truncated_laplace": ("TruncatedLaplace", {"scale": 1.5, "bound": 7.0}),
    "flipped_huber": ("FlippedHuber", {"alpha": 0.5, "gamma": 1.25}),
    "offset_gaussian": ("OffsetGaussian", {"offset": 0.75, "scale": 1.5}),
}
# Where integrals of sampled noise end.
REACH = {"gaussian": 18.0, "laplace": 90.0}
TILTS = (0.5, 4.0)
# Nats to which transforms are resolved.
NATS = 45.0


@pytest.fixture(autouse=True)
def precise():
    with balls.precision(128):
        yield


def noise_of(kind):
    name, fields = NOISES[kind]
    return {"kind": name, **{key: Fraction(value) for key, value in fields.items()}}


def pair_of(kind, q=None, shift=1.0):
    """Additive noise, of which a share q of the records is sampled."""
    pair = {"kind": "Additive", "noise": noise_of(kind), "shift": Fraction(shift)}
    if q is None:
        return pair
    return {"kind": "Poisson", "base": pair, "sampling_prob": Fraction(q), "added": Fraction(0)}


def integral(kind, p, q, reach, *more):
    """The transform by the oracle, of components (weight, shift)."""
    return transform(kind, tuple(NOISES[kind][1].values()), p, q, reach, *more)


def sampled(kind, way, q=0.25):
    """The law of the prover, and M by the oracle."""
    p, clean = [(1 - q, 0.0), (q, 1.0)], [(1.0, 0.0)]
    if way == "replaced":
        pair = {"kind": "Replaced", "noise": noise_of(kind), "shift": Fraction(1)}
        law = laws.law_of(pair | {"sampling_prob": Fraction(q)}, False)
        sides = p, [(1 - q, 0.0), (q, -1.0)]
    else:
        law = laws.law_of(pair_of(kind, q), way == "add")
        sides = (p, clean)[:: -1 if way == "add" else 1]
    return law, integral(kind, *sides, REACH.get(kind, 30.0))


def unsampled(kind):
    return laws.law_of(pair_of(kind), False), integral(kind, [(1.0, 0.0)], [(1.0, 1.0)], 90.0)


def fixed_batch(kind, rate=0.25, shift=1.5):
    pair = pair_of(kind, shift=shift) | {"kind": "FixedBatch", "rate": Fraction(rate)}
    p, q = [(1 - rate, 0.0), (rate, shift)], [(1.0, 0.0)]
    parts = [integral(kind, p, q, 60.0, shift / 2, sign) for sign in (1, -1)]
    above = integral(kind, q, q, 60.0, shift / 2)(acb(0))
    middle = exact(1 - rate) * (1 - 2 * above)
    return laws.law_of(pair, False), lambda s: parts[0](s) + parts[1](s) + middle


def check_transform(law, truth, tilt, step=0.7, count=32):
    """M on a line, on its first point and the tail, each against the truth."""
    c, step = arb(tilt), arb(step)
    line = law.line(c, step, count, NATS)
    whole = law.real(c, NATS)
    slack = whole * arb(10) ** -16
    slack = acb(balls.within(slack), balls.within(slack))
    assert (whole + slack.real).overlaps(truth(acb(c)).real)
    for j in (1, 32):
        expected = truth(acb(c, step * j))
        assert (line[j] + slack).overlaps(expected), (tilt, j)
        assert line[j].real.rad() < whole.abs_upper() * arb(10) ** -17
    for start in (1.7, 7.0):
        tail = law.tail(c, start, NATS)
        for t in (1.0, 2.9):
            assert abs(truth(acb(c, arb(start * t)))).lower() <= tail


PIECES = ("truncated_laplace", "flipped_huber", "offset_gaussian")
CASES = [
    *((sampled, kind, way) for kind in NOISES for way in ("remove", "add", "replaced")),
    *((unsampled, kind) for kind in ("laplace", *PIECES)),
    *((fixed_batch, kind) for kind in ("gaussian", "laplace", "flipped_huber")),
]


def is_slow(build, kind, *_):
    """Of two noises with pieces one is quick."""
    return build is sampled and kind == "flipped_huber"


@pytest.mark.parametrize(
    "case",
    [pytest.param(x, marks=pytest.mark.long if is_slow(*x) else ()) for x in CASES],
    ids=lambda case: "-".join([case[0].__name__, *case[1:]]),
)
def test_continuous_noise(case):
    build, *names = case
    law, truth = build(*names)
    before = ctx.prec
    for tilt in TILTS:
        check_transform(law, truth, tilt)
    assert ctx.prec == before


@pytest.mark.parametrize("exchanged", [False, True])
def test_groups_and_mixtures(exchanged):
    group = pair_of("gaussian") | {"kind": "SampledGroup", "added": Fraction(0)}
    group |= {"log_probabilities": [Fraction(x) for x in (-1.0, -1.5, -2.0)]}
    mixture = {
        "kind": "GaussianMixture",
        "scale": Fraction(3, 4),
        "sensitivities": [Fraction(0), Fraction(1)],
        "log_probabilities": [Fraction(-1), Fraction(-2)],
        "other_sensitivities": [Fraction(0), Fraction(1, 2)],
        "other_log_probabilities": [Fraction(-3), Fraction(-1)],
    }

    def weighted(logs, shifts):
        sizes = [math.exp(x) for x in logs]
        return [(x / sum(sizes), shift) for x, shift in zip(sizes, shifts, strict=True)]

    cases = [
        (group, weighted((-1.0, -1.5, -2.0), (0.0, 1.0, 2.0)), [(1.0, 0.0)]),
        (mixture, weighted((-1, -2), (0.0, 1.0)), weighted((-3, -1), (0.0, -0.5))),
    ]
    for pair, *sides in cases:
        law = laws.law_of(pair, exchanged)
        truth = integral("gaussian", *(sides[::-1] if exchanged else sides), 18.0)
        for j, found in enumerate(law.line(arb(2), arb(1.7), 3, NATS)):
            # Weights of the oracle are rounded.
            assert abs(found - truth(acb(2, 1.7 * j))) < arb(10) ** -12 * (1 + abs(found))


def test_staircase_by_its_density():
    epsilon, width, split, shift = 0.5, 1.0, 0.375, 1.75
    law = finite.staircase(Fraction(epsilon), Fraction(width), Fraction(split), Fraction(shift))
    b = exact(-epsilon).exp()
    height = (1 - b) / (2 * (exact(split) + b * exact(1 - split)))
    masses, cell = {}, Fraction(1, 8)
    for i in range(-800, 800):
        x = (Fraction(2 * i + 1) / 2) * cell
        here, there = (
            max(0, int((abs(y) - Fraction(split)) // 1) + 1) for y in (x, x - Fraction(shift))
        )
        masses[there - here] = masses.get(there - here, arb(0)) + height * b**here / 8
    for loss, mass in law.atoms:
        k = round(float(loss.mid()) / epsilon)
        assert abs(mass - masses.pop(k)) < arb(10) ** -18
    assert not masses


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_sampled_discrete_noise(kind, added):
    """By sums over the integers."""
    scale, shift, q = Fraction(3, 2), 2, exact(0.25)
    rate = {
        "laplace": lambda k: -abs(k) / exact(1.5),
        "gaussian": lambda k: -((arb(k) / exact(1.5)) ** 2) / 2,
    }
    total = sum((rate[kind](k).exp() for k in range(-300, 301)), arb(0))
    base = (
        finite.discrete_laplace(scale, shift)
        if kind == "laplace"
        else finite.discrete_gaussian(scale, shift)
    )
    law = finite.sampled(base, arb(0), q, added)
    for s in (acb(0), acb(1.5), acb(0.5, 2.0)):
        expected = acb(0)
        for k in range(-250, 251):
            clean, moved = (rate[kind](j).exp() / total for j in (k, k - shift))
            mixed = (1 - q) * clean + q * moved
            p, r = (clean, mixed) if added else (mixed, clean)
            expected += p * (s * (p / r).log()).exp()
        line = law.line(s.real, s.imag, 1, NATS)[1]
        assert abs(line - expected).lower() < arb(10) ** -12


def test_finite_pair_is_exchanged():
    pair = {
        "kind": "Finite",
        "losses": [Fraction(-1), Fraction(1)],
        "masses": [Fraction(1, 4), Fraction(1, 2)],
        "infinite": Fraction(1, 4),
        "hidden": Fraction(1, 8),
        "backward": Fraction(0),
    }
    forward, backward = (laws.law_of(pair, x) for x in (False, True))
    assert float(forward.infinite) == 0.25
    assert float(backward.infinite) == 0.125
    expected = exact(0.25) * exact(1.0).exp()
    assert {float(x): m for x, m in backward.atoms}[1.0].overlaps(expected)


def test_a_coin_adds_its_laws():
    pairs = [pair_of("gaussian", q) for q in (0.25, 0.5)]
    coin = {"kind": "PublicCoin", "pairs": pairs, "log_shares": [Fraction(0), Fraction(0)]}
    whole, first, second = (laws.law_of(pair, False) for pair in (coin, *pairs))
    lines = [law.line(arb(1), arb(2), 3, NATS) for law in (whole, first, second)]
    assert all(x.overlaps((y + z) / 2) for x, y, z in zip(*lines, strict=True))
    profiles = [law.profile(arb(1)) for law in (whole, first, second)]
    assert profiles[0].overlaps((profiles[1] + profiles[2]) / 2)


def test_tails_cover_a_density_of_several_pieces():
    """The cells, where the polygon off the axis alone gives nothing."""
    law, truth = sampled("laplace", "remove", 0.125)
    c, start = arb(2), 0.9
    tail = law.tail(c, start, NATS)
    assert tail < law.real(c, NATS)
    for i in range(40):
        assert abs(truth(acb(c, start + i * 0.7))).lower() <= tail


def laplace(scale, bound=None):
    noise = {"kind": "Laplace" if bound is None else "TruncatedLaplace", "scale": Fraction(scale)}
    noise |= {} if bound is None else {"bound": Fraction(bound)}
    return laws.law_of({"kind": "Additive", "noise": noise, "shift": Fraction(1)}, False)


def by_residues(releases):
    found = sums.delta(releases, Fraction(3, 2), 1000)
    assert found is not None
    return found[0]


def test_laplaces_by_residues_and_by_the_contour():
    releases = [(40, laplace(8)), (3, laplace(4, 24))]
    one = by_residues(releases)
    other = contour.bracket(releases, Fraction(3, 2), 200)
    assert one.rad() < 1e-15 * one
    assert other.lower <= one
    assert one <= other.upper


def test_many_laplaces_have_the_bits_that_their_residues_need():
    """More than the precision at which the law was built."""
    value = by_residues([(200, laplace(40))])
    assert 0 < value.rad() < 1e-15 * value


def test_a_moment_whose_square_is_no_float_has_a_tail():
    """M(1000) is e^500 / 2."""
    tail = laplace(2)._cells(arb(1000), 3.0, 3.5, 40.0)
    assert 0 < tail < arb(600).exp()
