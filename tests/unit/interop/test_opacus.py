"""The accountant with Opacus' interface."""

import math
import pickle
import types

import numpy as np
import pytest

import jaxdp as dp

SHORT = {"sampling_prob": 0.01, "steps": 1000}


def test_accountant_records_and_resumes():
    accountant = dp.dpsgd.Accountant()
    assert accountant.get_epsilon(1e-6) == accountant.get_delta(1.0) == len(accountant) == 0
    assert accountant
    optimizer = types.SimpleNamespace(noise_multiplier=1.0, accumulated_iterations=2)
    hook = accountant.get_optimizer_hook_fn(sample_rate=0.005)
    for _ in range(3):
        hook(optimizer)
    accountant.step(noise_multiplier=2.0, sample_rate=0.01)
    accountant.step(noise_multiplier=1.0, sample_rate=0.01)
    assert accountant.history == [(1.0, 0.01, 3), (2.0, 0.01, 1), (1.0, 0.01, 1)]
    assert len(accountant) == 5
    state = accountant.state_dict({"other": 1})
    assert state == {"other": 1, "history": accountant.history, "mechanism": "jaxdp"}
    again = dp.dpsgd.Accountant()
    again.load_state_dict(state)
    again.step(noise_multiplier=1.0, sample_rate=0.01)
    assert len(again) == len(accountant) + 1
    assert state["history"] == accountant.history
    # As Opacus searches for a noise multiplier.
    again.history = [(1.0, 0.01, 1000)]
    assert again.get_epsilon(delta=1e-6) == float(dp.dpsgd.epsilon(1.0, 1e-6, **SHORT))


def test_accountant_refuses_what_is_bad_and_keeps_what_it_has():
    accountant = dp.dpsgd.Accountant()
    accountant.step(noise_multiplier=1.0, sample_rate=0.01)
    for bad in ({"noise_multiplier": -1.0}, {"sample_rate": 1.1}, {"sample_rate": math.nan}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            accountant.step(**{"noise_multiplier": 1.0, "sample_rate": 0.1, **bad})
    with pytest.raises(ValueError, match="delta must lie"):
        accountant.get_epsilon(-1.0)
    for state, why in (
        (None, "must hold"),
        ({"history": []}, "must hold"),
        ({"history": [], "mechanism": "other"}, "must be one of jaxdp"),
        ({"history": [(1.0, 2.0, 3)], "mechanism": "jaxdp"}, "sample_rate"),
    ):
        with pytest.raises(ValueError, match=why):
            accountant.load_state_dict(state)
    assert accountant.history == [(1.0, 0.01, 1)]


def test_accountant_takes_what_those_of_opacus_take():
    accountant = dp.dpsgd.Accountant()
    for name in ("rdp", "prv", "gdp"):
        accountant.load_state_dict({"history": [(1.0, 0.01, 1000)], "mechanism": name})
    usual = accountant.get_epsilon(1e-6)
    assert usual == accountant.get_epsilon(1e-6, [2, 3])
    assert usual == accountant.get_epsilon(1e-6, eps_error=0.1, delta_error=1e-9)
    assert usual == accountant.get_epsilon(delta=1e-6, alphas=[2.0], poisson=True)
    with pytest.raises(ValueError, match="poisson must be True"):
        accountant.get_epsilon(1e-6, poisson=False)


def test_no_noise_is_no_privacy():
    """Where a record takes part in a step: delta is the probability of that."""
    accountant = dp.dpsgd.Accountant()
    accountant.step(noise_multiplier=0.0, sample_rate=0.0)
    assert accountant.get_epsilon(1e-6) == accountant.get_delta(0.0) == 0.0
    accountant.step(noise_multiplier=1.0, sample_rate=0.01)
    one = dp.dpsgd.epsilon(1.0, 1e-6, sampling_prob=0.01, steps=1)
    np.testing.assert_allclose(accountant.get_epsilon(1e-6), one, rtol=1e-9)
    rare = dp.dpsgd.Accountant()
    for _ in range(2):
        rare.step(noise_multiplier=0.0, sample_rate=1e-9)
    np.testing.assert_allclose(rare.get_delta(100.0), 2e-9, rtol=1e-8)
    assert rare.get_epsilon(1e-6) == 0.0
    assert rare.get_epsilon(1e-9) == math.inf
    rare.step(noise_multiplier=0.0, sample_rate=1.0)
    assert rare.get_delta(100.0) == 1.0
    again = dp.dpsgd.Accountant()
    again.load_state_dict(accountant.state_dict())
    assert again.history == accountant.history


def test_opacus_takes_the_accountant():
    """Skipped where Opacus is missing: the interface itself is tested above."""
    accountants = pytest.importorskip("opacus.accountants")
    dp.dpsgd.register()
    dp.dpsgd.register()
    made = accountants.create_accountant("jaxdp")
    assert isinstance(made, accountants.IAccountant)
    assert isinstance(made, dp.dpsgd.Accountant)
    utils = pytest.importorskip("opacus.accountants.utils")
    scale = utils.get_noise_multiplier(
        target_epsilon=2.2, target_delta=1e-6, sample_rate=0.01, steps=1000, accountant="jaxdp"
    )
    assert 2.1 < dp.dpsgd.epsilon(scale, 1e-6, **SHORT) <= 2.2


def test_registering_without_opacus_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opacus", None)
    with pytest.raises(ImportError, match="pip install opacus"):
        dp.dpsgd.register()


def test_registering_hands_the_class_over(monkeypatch):
    """A stand-in for Opacus' registry: a name and a class, refused a second time unless forced."""
    registered, bases = {"rdp": dict}, []

    def register_accountant(mechanism, accountant, force=False):
        if mechanism in registered and not force:
            raise ValueError(f"Accountant for mechanism {mechanism} is already registered")
        registered[mechanism] = accountant

    def create_accountant(mechanism):
        if mechanism not in registered:
            raise ValueError(f"Unexpected accounting mechanism: {mechanism}")
        return registered[mechanism]()

    registry = types.ModuleType("opacus.accountants.registry")
    registry.register_accountant = register_accountant
    registry.create_accountant = create_accountant
    accountants = types.ModuleType("opacus.accountants")
    accountants.IAccountant = types.SimpleNamespace(register=bases.append)
    for name, module in (
        ("opacus", types.ModuleType("opacus")),
        ("opacus.accountants", accountants),
        ("opacus.accountants.registry", registry),
    ):
        monkeypatch.setitem(__import__("sys").modules, name, module)
    dp.dpsgd.register()
    assert registered == {"rdp": dict, "jaxdp": dp.dpsgd.Accountant}
    # A cell that is run again, and one whose module was loaded again: the class is another.
    dp.dpsgd.register()
    reloaded = type("Accountant", (), {"__module__": dp.dpsgd.Accountant.__module__})
    registered["jaxdp"] = reloaded
    dp.dpsgd.register()
    assert registered == {"rdp": dict, "jaxdp": dp.dpsgd.Accountant}
    with pytest.raises(ValueError, match="already registered"):
        dp.dpsgd.register("rdp")
    assert set(bases) == {dp.dpsgd.Accountant}


def test_cohorts_of_a_fixed_size_and_truncated_batches_are_counted():
    schemes = dp.sampling.WithoutReplacement(10, 1000), dp.sampling.TruncatedPoisson(0.01, 15, 1000)
    accountant = dp.dpsgd.Accountant()
    for scheme in schemes:
        for _ in range(5):
            accountant.step(2.0, sampling=scheme)
    assert [entry[2] for entry in accountant.history] == [5, 5]
    assert repr(accountant) == "Accountant(10 steps)"
    phases = [dp.dpsgd.Phase(2.0, sampling=scheme, steps=5) for scheme in schemes]
    assert accountant.get_epsilon(1e-5) == float(dp.dpsgd.epsilon(delta=1e-5, phases=phases))
    again = dp.dpsgd.Accountant()
    again.load_state_dict(pickle.loads(pickle.dumps(accountant.state_dict())))
    assert again.get_epsilon(1e-5) == accountant.get_epsilon(1e-5)
    with pytest.raises(ValueError, match="either sample_rate or sampling"):
        accountant.step(2.0)
    with pytest.raises(ValueError, match=r"sampling must be a scheme .* got 'truncated'"):
        accountant.step(2.0, sampling="truncated")
    with pytest.raises(ValueError, match="noise_multiplier must lie"):
        accountant.step(0.0, sampling=schemes[0])


def test_opacus_history():
    history = [(1.0, 0.01, 400), (1.0, 0.01, 600), (2.0, 0.02, 10)]
    loss = dp.interop.opacus.loss_from_history(history)
    assert loss.relation == "add_remove"
    np.testing.assert_array_equal(loss.terms[0].count, [1000.0, 10.0])
    first = dp.interop.opacus.loss_from_history(history[:2])
    # The high-precision value of the design notes of this accountant's engine.
    np.testing.assert_allclose(first.delta(1.0), 2.61242e-3, rtol=1e-5)
    for bad in ([], [(1.0, 0.1)], [(-0.1, 0.1, 1)], [(1.0, 1.1, 1)], [(1.0, 0.1, 1.5)], ["abc"]):
        with pytest.raises(ValueError, match="history"):
            dp.interop.opacus.loss_from_history(bad)
