"""The engine's two assumptions on a law's nodes, against the proved transform.

Two Gauss rules do not fail alike: the difference of both bounds the error of one. The density is
monotone between nodes: `log_fall` bounds the transform from a height on.
"""

import math

import numpy as np
import pytest
from flint import acb, arb

import jaxdp as dp
from jaxdp.accountant.contour.truncation import log_fall
from jaxdp.proof import balls, statement

KINDS = {
    "sampled laplace": dp.Mechanism(dp.Laplace(1.5), 1.0, 0.05, "remove"),
    "added laplace": dp.Mechanism(dp.Laplace(1.5), 1.0, 0.05, "add"),
    "replaced laplace": dp.Mechanism(dp.Laplace(1.5), 1.0, 0.05, "replace_one"),
    "flipped huber": dp.Mechanism(dp.FlippedHuber(1.0, 2.0), 1.0),
    "sampled flipped huber": dp.Mechanism(dp.FlippedHuber(1.0, 2.0), 1.0, 0.05, "remove"),
    "offset gaussian": dp.Mechanism(dp.OffsetGaussian(1.0, 2.0), 1.0),
    "sampled offset gaussian": dp.Mechanism(dp.OffsetGaussian(1.0, 2.0), 1.0, 0.05, "add"),
    "sampled truncated laplace": dp.Mechanism(dp.TruncatedLaplace(1.5, 40.0), 1.0, 0.05, "remove"),
    "fixed batch": dp.Mechanism(
        dp.Gaussian(1.5), 1.0, relation="replace_one",
        sampling=dp.sampling.WithoutReplacement(50, 1000),
    ),
    "sampled gaussian": dp.Mechanism(dp.Gaussian(1.5), 1.0, 0.05, "remove"),
    "replaced gaussian": dp.Mechanism(dp.Gaussian(1.5), 1.0, 0.05, "replace_one"),
}  # fmt: skip
TILTS = (1.0, 12.0)
# Heights over the inverse deviation of the loss.
HEIGHTS = (0.25, 1.0, 3.0, 8.0)
# Rounding of the nodes, over the mass. derived: of 1,000 of them
ROUNDING = 1e-12


def proved(loss, tilt, heights):
    """M(c + i t) / M(c) as intervals."""
    ((_, law),) = statement.read(loss.to_json()).releases(False)
    with balls.precision(128):
        whole = law.real(arb(tilt), 45.0)
        return [acb(law.line(arb(tilt), arb(t), 1, 45.0)[1]) / whole for t in heights]


def tilted(loss, log_mass, tilt):
    log_weight = log_mass + tilt * loss
    weight = np.exp(log_weight - log_weight.max())
    return weight / weight.sum()


@pytest.mark.parametrize("tilt", TILTS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_two_assumptions(kind, tilt):
    loss = dp.privacy_loss(KINDS[kind])
    law = loss.terms[0].pair.law()
    first = np.ravel(law.loss), np.ravel(law.log_mass)
    second = np.ravel(law.check[0]), np.ravel(law.check[1])
    kept = first[1] > -np.inf
    x, weight = first[0][kept], tilted(first[0][kept], first[1][kept], tilt)
    other = tilted(np.where(second[1] > -np.inf, second[0], 0.0), second[1], tilt)
    mean = float(weight @ x)
    deviation = math.sqrt(float(weight @ (x - mean) ** 2))
    heights = [h / deviation for h in HEIGHTS]
    truths = proved(loss, tilt, heights)
    gap = 0.0
    for t, truth in zip(heights, truths, strict=True):
        phi = complex(weight @ np.exp(1j * t * x))
        gap = max(gap, abs(phi - complex(other @ np.exp(1j * t * second[0]))))
        error = float(abs(truth - acb(phi.real, phi.imag)).lower())
        assert error <= gap + ROUNDING, (kind, t)
    density = np.ravel(law.log_density)[kept] + tilt * (x - mean)
    density = density - (np.log(np.exp(first[1][kept] + tilt * (x - mean)).sum()))
    masses, places, densities = (v.reshape(-1, 1, 1) for v in (weight, x - mean, density))
    with np.errstate(all="ignore"):
        falls = log_fall(masses, places, densities, np.array(heights)[:, None])
    for i, bound in enumerate(np.exp(np.asarray(falls)[:, 0, 0])):
        largest = max(float(abs(z).lower()) for z in truths[i:])
        if i + 1 < len(heights):
            largest = float(abs(truths[i]).lower())
        assert largest <= bound * (1 + ROUNDING), (kind, heights[i])


def test_a_rule_that_fails_is_seen():
    """A tenth of the mass at another loss."""
    loss = dp.privacy_loss(KINDS["flipped huber"])
    law = loss.terms[0].pair.law()
    x, weight = np.ravel(law.loss), tilted(np.ravel(law.loss), np.ravel(law.log_mass), 1.0)
    (truth,) = proved(loss, 1.0, [2.0])
    phi = complex(weight @ np.exp(2j * x)) * 0.9 + 0.1
    assert float(abs(truth - acb(phi.real, phi.imag)).lower()) > ROUNDING
