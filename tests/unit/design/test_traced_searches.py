"""Searches inside of transformations: one call of the host, the known answers, and slopes."""

import jax
import numpy as np
import pytest
from compilations import counted

import jaxdp as dp
from jaxdp.accountant import primitive

TRAINING = {"sampling_prob": 0.01, "steps": 200}
SEARCHES = {
    "noise multiplier": lambda e: dp.dpsgd.noise_multiplier(e, 1e-6, **TRAINING),
    "laplaces": lambda e: dp.fit_noise("laplace", (e, 1e-6), 1.0, 30).scale,
    "truncated": lambda e: dp.fit_noise("truncated_laplace", (e, 1e-6), 1.0).variance(),
}
LONG = {
    "phases": lambda e: dp.dpsgd.noise_multiplier(
        e, 1e-6, phases=[dp.dpsgd.Phase(1.0, **TRAINING), dp.dpsgd.Phase(2.0, **TRAINING)]
    ),
    "whole": lambda e: dp.allocate("discrete_gaussian", [1.0, 3.0], (e, 1e-6)),
    "flipped_huber": lambda e: dp.fit_noise("flipped_huber", (e, 1e-6), 1.0).variance(),
    "subbotins": lambda e: dp.fit_noise("subbotin", (e, 1e-6), 1.0, 4).variance(),
}


@pytest.fixture(autouse=True)
def _with_doubles():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(
    "name", [*SEARCHES, *(pytest.param(x, marks=pytest.mark.long) for x in LONG)]
)
def test_a_traced_search_finds_what_the_known_one_finds(name, monkeypatch):
    search, calls, known_of = {**SEARCHES, **LONG}[name], [], primitive._known

    def counting(*leaves, query, **params):
        calls.append(query)
        return known_of(*leaves, query=query, **params)

    known, known_above = (np.asarray(search(e)) for e in (1.0, 1.0 + 1e-4))
    monkeypatch.setattr(primitive, "_known", counting)
    np.testing.assert_allclose(jax.jit(lambda e: search(e))(1.0), known, rtol=1e-12)
    assert 1 <= len(calls) <= 5
    assert {type(x) for x in calls} == {primitive.Search}
    mapped = np.asarray(jax.jit(jax.vmap(search))(np.array([1.0, np.nan, -1.0])))
    np.testing.assert_allclose(mapped[0], known, rtol=4e-9)
    assert not np.any(mapped[1:] < np.inf)
    value, slope = jax.jit(lambda e: jax.jvp(search, (e,), (1.0,)))(1.0)
    np.testing.assert_allclose(value, known, rtol=1e-12)
    np.testing.assert_allclose(slope, (known_above - known) / 1e-4, rtol=2e-3)


def test_slopes_in_the_numbers_of_a_schedule():
    def least(q, scale):
        phase = dp.dpsgd.Phase(scale, sampling_prob=q, steps=200)
        return dp.dpsgd.noise_multiplier(1.0, 1e-6, phases=phase)

    slopes = jax.jit(jax.grad(least, argnums=(0, 1)))(0.02, 2.0)
    along_q = (least(0.02002, 2.0) - least(0.01998, 2.0)) / 4e-5
    np.testing.assert_allclose(slopes, [along_q, -least(0.02, 2.0) / 2.0], rtol=1e-5)


def test_where_no_noise_is_needed_slopes_are_0():
    assert jax.value_and_grad(SEARCHES["noise multiplier"])(np.inf) == (0.0, 0.0)


def test_further_eager_maps_of_a_search_compile_nothing():
    search = jax.vmap(SEARCHES["noise multiplier"])
    search(np.array([1.0, 2.0]))
    with counted() as programs:
        search(np.array([1.5, 2.5]))
    assert not programs
