"""The contract of `noise_laws`, `noise_losses` and `noise_calls`, on every noise."""

import jax.numpy as jnp
import noise_calls
import noise_laws
import noise_losses
import numpy as np
import oracle
import oracle_pieces
import own_noises
import pytest

import jaxdp as dp

pytestmark = pytest.mark.float64


def flipped_huber_boundaries(r, a=2.5):
    return [a * r, r * (r + 2 * a) / 2, (r * r + a * a) / 2, abs(r - 2 * a) * min(r / 2, a)]


BARS = (1, 2, 4, 9, 18, 30, 30, 18, 9, 4, 2, 1)

CASES = (
    noise_laws.Case("gaussian", dp.Gaussian, oracle.gaussian, lambda r: [r * r / 2]),
    noise_laws.Case("laplace", dp.Laplace, oracle.laplace, lambda r: [r]),
    noise_laws.Case(
        "truncated_laplace",
        lambda scale: dp.TruncatedLaplace(scale, 3.0 * scale),
        lambda scale: oracle.truncated_laplace(scale, 3.0 * scale),
        lambda r: [min(r, 6.0 - r)],
        has_fisher=False,
        bound=3.0,
        parameters="scale|bound",
    ),
    noise_laws.Case(
        "staircase",
        lambda scale: dp.Staircase(1.0, scale, 0.4),
        lambda scale: oracle_pieces.Steps(1.0, scale, 0.4),
        lambda r: [0.0, 1.0, float(np.floor(r)), float(np.ceil(r))],
        has_fisher=False,
        parameters="sensitivity",
        smooth=((1.0, 0.7, 0.4), (2.0, 0.5, 0.01), (0.7, 1.5, -0.8), (1.0, 4.3, 1.2)),
    ),
    noise_laws.Case(
        "histogram",
        lambda scale: dp.Histogram(0.5 * scale, BARS),
        lambda scale: oracle_pieces.Bars(0.5 * scale, BARS),
        lambda r: [0.0, float(np.log(3)), float(np.log(1.5))],
        has_fisher=False,
        bound=3.0,
        parameters="width",
        smooth=((1.0, 0.7, 0.4), (0.7, 1.6, -0.8)),
    ),
    noise_laws.Case(
        "flipped_huber",
        lambda scale: dp.FlippedHuber(jnp.minimum(2.5 * scale, 1e300), scale),
        lambda scale: oracle.flipped_huber(2.5 * scale, scale),
        flipped_huber_boundaries,
        parameters="alpha|gamma",
    ),
    noise_laws.Case(
        "offset_gaussian",
        lambda scale: dp.OffsetGaussian(jnp.minimum(1.5 * scale, 1e300), scale),
        lambda scale: oracle.offset_gaussian(1.5 * scale, scale),
        lambda r: [r * (r + 3.0) / 2],
        parameters="offset|scale",
    ),
    noise_laws.Case(
        "subbotin_low",
        lambda scale: dp.Subbotin(scale, 1.5),
        lambda scale: oracle.subbotin(scale, 1.5),
        lambda r: [r**1.5 / 1.5],
    ),
    noise_laws.Case(
        "subbotin_high",
        lambda scale: dp.Subbotin(scale, 3.0),
        lambda scale: oracle.subbotin(scale, 3.0),
        lambda r: [r**3 / 3],
    ),
    noise_laws.Case(
        "discrete_gaussian",
        dp.DiscreteGaussian,
        oracle.discrete_gaussian,
        lambda r: [r * r / 2],
        has_fisher=False,
        lattice=True,
    ),
    noise_laws.Case(
        "discrete_laplace",
        dp.DiscreteLaplace,
        oracle.discrete_laplace,
        lambda r: [r, r / 3],
        has_fisher=False,
        lattice=True,
    ),
    noise_laws.Case("own_logistic", own_noises.logistic, oracle.logistic, lambda r: [r], own=True),
    noise_laws.Case("own_sech", own_noises.sech, oracle.sech, lambda r: [r], own=True),
)
CHECKS = tuple(
    value
    for module in (noise_laws, noise_losses, noise_calls)
    for name, value in vars(module).items()
    if name.startswith("check_")
)


# What compiles for longer than two seconds is long. measured: `pytest --durations=0`
_SUBBOTIN, _OWN = {"subbotin_low", "subbotin_high"}, {"own_logistic", "own_sech"}
SLOW = {
    "delta": {*_SUBBOTIN, *_OWN, "flipped_huber", "offset_gaussian"},
    "divergence": {*_SUBBOTIN, *_OWN},
    "gradients": {
        *_SUBBOTIN,
        *_OWN,
        "discrete_gaussian",
        "discrete_laplace",
        "flipped_huber",
        "offset_gaussian",
        "staircase",
    },
    "bad_input_is_never_private": {*_SUBBOTIN, "own_logistic"},
    "moments": {"own_logistic"},
    "sampler": {*_OWN},
    "survival": {*_SUBBOTIN},
    "transformations": {*_SUBBOTIN, *_OWN},
}
CONTRACT = [
    pytest.param(
        check,
        case,
        id=f"{check.__name__}-{case.name}",
        marks=pytest.mark.long if case.name in SLOW.get(check.__name__[6:], ()) else (),
    )
    for check in CHECKS
    for case in CASES
]


@pytest.mark.parametrize(("check", "case"), CONTRACT)
def test_contract(check, case):
    check(case)


def test_the_contract_has_all_its_checks():
    assert len(CHECKS) == 17
