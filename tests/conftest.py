"""Strict: double precision, no silent rank promotion, warnings are errors, types are checked."""

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path

import first_calls
import jax
import pytest
from hypothesis import settings

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
first_calls.install("jaxdp")
# What one worker, or the last run, has compiled; a home that cannot be written to costs time only.
with contextlib.suppress(OSError, ValueError):
    importlib.import_module("jaxdp").enable_cache()

settings.register_profile("jaxdp", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("jaxdp")

# Linux gives a process 65,530 mappings; every compilation keeps some, and without more XLA crashes.
_MANY_MAPPINGS = 25_000


@pytest.fixture(autouse=True)
def types_are_checked_once() -> None:
    first_calls.CALLED.clear()


@pytest.fixture(autouse=True, scope="module")
def few_compilations_are_kept() -> Iterator[None]:
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > _MANY_MAPPINGS:
        jax.clear_caches()


# Cases of 6 to 13 s each, most of it compilation, beside others of their kind: `make test-long`.
DEAR = {
    "test_accountant_contract.py::test_log_delta_lies_within_both_errors": (
        *("gaussian_mixture-2", "hubers_and_laplace-2", "sampled_flipped_huber-2"),
        *("steps_and_laplaces-2", "truncated_laplace-2", "offset_gaussian-2"),
        *("subbotin-2", "sampled_discrete_gaussian-2"),
    ),
    "test_accountant_contract.py::test_derivatives": ("guarantees",),
    "test_numerical_noise.py::test_it_composes": ("sampled0", "sampled2"),
    "test_dominating_pair.py::test_divergences_are_moments_of_the_law": ("removed_gaussian",),
    "test_dominating_pair.py::test_divergences_against_integrals": (),
    "test_numerical_noise.py::test_finite_laws_are_those_of_the_response": (),
    "test_calibrate.py::test_the_true_delta_never_exceeds_the_target": ("gaussian",),
    "test_replaced_gaussian.py::test_always_hit_it_is_a_gaussian_at_twice_the_sensitivity": (),
    "test_accountant.py::test_random_compositions_of_laplaces_responses_and_ranges": (),
    "test_lattice.py::test_wide_discrete_gaussians_are_nearly_gaussian": (),
    "test_accountant.py::test_millions_of_atoms": (),
    "test_lattice.py::test_as_many_responses_as_there_may_be": ("3e-05-1000000000-2.0-10.0",),
    "test_odometer.py::test_a_sampled_step_costs_its_own_divergence": (),
    "test_plan.py::test_mixed_noises_keep_the_budget": ("kinds0",),
    "test_schemes.py::test_masses_add_up_and_explain_the_profile": ("allocation",),
    "test_dpsgd_schemes.py::test_as_many_steps_as_a_scheme_allows": ("truncated",),
    "test_extremes.py::test_losses_beyond_doubles_fail_closed": (
        "staircase",
        "exponential",
        "pure",
    ),
    "test_own_noise.py::test_every_question_refuses_it": ("plain-several", "plain-mechanism"),
    "test_sampled_compositions.py::test_sampled_lattice_noise": ("noise1-2.0-remove",),
    "test_sampled_compositions.py::test_few_sampled_laplaces": ("0.0-2",),
    "test_sampled_compositions.py::test_sampled_beside_a_gaussian": ("noise0-remove-1",),
    "test_sampling_reference.py::test_compositions": ("group_poisson-add_remove_group-2",),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark dear cases long."""
    for item in items:
        name, _, case = item.nodeid.rpartition("/")[2].partition("[")
        if name in DEAR and (not DEAR[name] or case.rstrip("]") in DEAR[name]):
            item.add_marker("long")
