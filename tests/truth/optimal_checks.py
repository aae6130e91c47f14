"""What every optimised noise and mechanism must keep, and the expected values of both."""

import math
from fractions import Fraction

import numpy as np
import pytest
import references

import jaxdp as dp
from jaxdp.optimal.exact import exact_delta
from jaxdp.optimal.table import close_points, exact_table_delta, felt_sensitivity

ROWS = references.load("optimal_noise.json")


def rows(quantity, largest=math.inf):
    found = [r for r in ROWS if r["quantity"] == quantity and r["inputs"].get("K", 0) <= largest]
    assert found, quantity
    return found


def budget(row):
    return dp.Budget(row["inputs"]["eps"], row["inputs"]["delta"])


def check_noise(noise):
    """The exact deltas keep the budgets, and the loss lies in its bracket."""
    made = noise.certificate
    steps = math.ceil(Fraction(made.sensitivity) / Fraction(float(noise.width)))
    for epsilon, delta in zip(made.epsilons, made.deltas, strict=True):
        exact = exact_delta(np.array(noise.weights), noise.atom_weight, steps, epsilon)
        assert exact <= Fraction(delta)
        assert float(noise.delta(made.sensitivity, epsilon)) <= delta * (1 + 1e-12) + 1e-14
    assert made.loss_lower <= made.loss_upper
    return made


def check_mechanism(made):
    """The exact delta over all close answers keeps the budget."""
    weights = np.array(made.weights)
    proof = made.certificate
    points = close_points(made.nodes, felt_sensitivity(made.nodes, proof.sensitivity))
    exact = exact_table_delta(weights, points, proof.epsilons[0])
    assert np.all(weights.sum(axis=1) == 2**40)
    assert exact <= Fraction(proof.deltas[0])
    assert proof.loss_lower <= proof.loss_upper
    return proof


def edge_noise(row, *, monotone=False, resolution=None, support=None, sensitivity=1.0, loss="l1"):
    """A cell boundary at 0 and no atom, as published."""
    return dp.optimal.noise(
        budget(row),
        loss,
        sensitivity=sensitivity,
        resolution=resolution or round(sensitivity / row["inputs"]["beta"]),
        support=support or float(row["inputs"]["support"]),
        centred=False,
        max_atom=0.0,
        monotone=monotone,
        symmetric=loss != "asymmetric",
    )


def slow_if(condition, *values):
    return pytest.param(*values, marks=pytest.mark.long if condition else ())
