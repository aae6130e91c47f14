"""Accountants: `prepare(setting)` returns `Answers`, epsilon of delta and delta of epsilon.

An adapter imports its library when it is made, and raises `UnsupportedError` for settings that the
library has no call for. A new accountant is one function and one line of ADAPTERS.
"""

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

Setting = dict[str, Any]


class UnsupportedError(Exception):
    """The library has no call for a setting."""


class Answers:
    """Two functions of one setting; None where the library answers one question alone."""

    def __init__(
        self, epsilon: Callable[[float], Any] | None, delta: Callable[[float], Any] | None
    ):
        self.epsilon, self.delta = epsilon, delta


def sampled_gaussians(setting: Setting) -> list[tuple[float, float, int]]:
    """(Noise multiplier, sampling probability, steps) of Gaussians with Poisson samples."""
    found = []
    for r in setting["releases"]:
        poisson = r.get("sampling", "poisson") == "poisson" and "group_size" not in r
        if r["noise"] != "gaussian" or not poisson or setting["relation"] != "add_remove":
            raise UnsupportedError
        found.append((r["scale"], r.get("probability", 1.0), r["count"]))
    return found


def jaxdp_loss(setting: Setting) -> Any:
    """The setting as a `PrivacyLoss`."""
    dp: Any = import_module("jaxdp")

    parameters = ("scale", "bound", "alpha", "gamma", "offset", "power")
    parameters = (*parameters, "epsilon", "sensitivity", "split")
    total: Any = 0
    for r in setting["releases"]:
        noise = getattr(dp, r["noise"].title().replace("_", ""))(
            **{k: r[k] for k in parameters if k in r}
        )
        schemes = {
            "poisson": lambda r: dp.sampling.Poisson(r["probability"]),
            "truncated": lambda r: dp.sampling.TruncatedPoisson(
                r["probability"], r["limit"], r["records"]
            ),
            "without_replacement": lambda r: dp.sampling.WithoutReplacement(
                r["batch"], r["records"]
            ),
            "random_allocation": lambda r: dp.sampling.RandomAllocation(r["steps"]),
            "balls_in_bins": lambda r: dp.sampling.BallsInBins(r["steps"], r["epochs"]),
        }
        more = {}
        if "sampling" in r:
            more = {"sampling": schemes[r["sampling"]](r), "relation": setting["relation"]}
        mechanism = dp.Mechanism(noise, 1.0, group_size=r.get("group_size", 1), **more)
        total = total + r["count"] * dp.privacy_loss(mechanism)
    return total


def jaxdp() -> Callable[[Setting], Answers]:
    import jax

    jax.config.update("jax_enable_x64", True)

    def prepare(setting: Setting) -> Answers:
        loss = jaxdp_loss(setting)
        return Answers(loss.epsilon, loss.delta)

    return prepare


def dp_accounting(rdp: bool) -> Callable[[Setting], Answers]:
    dpa: Any = import_module("dp_accounting")
    kind: Any = import_module("dp_accounting.rdp" if rdp else "dp_accounting.pld")
    accountant_of = kind.RdpAccountant if rdp else kind.PLDAccountant

    def event(r: dict[str, Any]) -> Any:
        kinds = {"gaussian": dpa.GaussianDpEvent, "laplace": dpa.LaplaceDpEvent}
        if r["noise"] == "discrete_laplace" and "sampling" not in r:
            return dpa.dp_event.DiscreteLaplaceDpEvent(1.0 / r["scale"], 1)
        if "group_size" in r or r["noise"] not in kinds:
            raise UnsupportedError
        one, scheme = kinds[r["noise"]](r["scale"]), r.get("sampling")
        if scheme == "poisson":
            return dpa.PoissonSampledDpEvent(r["probability"], one)
        if scheme == "truncated":
            sizes = r["records"], r["probability"], r["limit"]
            return dpa.TruncatedSubsampledGaussianDpEvent(*sizes, r["scale"])
        if scheme is not None:
            raise UnsupportedError
        return one

    def prepare(setting: Setting) -> Answers:
        relation = dpa.NeighboringRelation
        near = (
            relation.ADD_OR_REMOVE_ONE
            if setting["relation"] == "add_remove"
            else relation.REPLACE_ONE
        )
        accountant = accountant_of(neighboring_relation=near)
        events = [(event(r), r["count"]) for r in setting["releases"]]
        try:
            for one, count in events:
                accountant.compose(one, count)
        except dpa.privacy_accountant.UnsupportedEventError as error:
            raise UnsupportedError from error
        return Answers(accountant.get_epsilon, accountant.get_delta)

    return prepare


def opacus(kind: str) -> Callable[[Setting], Answers]:
    accountants: Any = import_module("opacus.accountants")

    def prepare(setting: Setting) -> Answers:
        accountant: Any = getattr(accountants, kind)()
        accountant.history = sampled_gaussians(setting)
        return Answers(lambda delta: accountant.get_epsilon(delta=delta), None)

    return prepare


def prv_accountant() -> Callable[[Setting], Answers]:
    prv: Any = import_module("prv_accountant")

    def prepare(setting: Setting) -> Answers:
        parts, counts = [], []
        for r in setting["releases"]:
            if r["noise"] == "laplace" and "sampling" not in r:
                parts.append(prv.LaplaceMechanism(mu=1.0 / r["scale"]))
            else:
                s, q, _ = sampled_gaussians(setting | {"releases": [r]})[0]
                parts.append(
                    prv.PoissonSubsampledGaussianMechanism(
                        noise_multiplier=s, sampling_probability=q
                    )
                )
            counts.append(r["count"])

        def epsilon(delta: float) -> float:
            accountant = prv.PRVAccountant(
                parts, eps_error=0.01, delta_error=delta / 1000, max_self_compositions=counts
            )
            return accountant.compute_epsilon(delta, counts)[2]

        return Answers(epsilon, None)

    return prepare


def riskcal() -> Callable[[Setting], Answers]:
    accountants: Any = import_module("riskcal.accountants")

    def prepare(setting: Setting) -> Answers:
        accountant: Any = accountants.CTDAccountant()
        accountant.history = sampled_gaussians(setting)
        loss = accountant.get_pld()
        return Answers(loss.get_epsilon_for_delta, loss.get_delta_for_epsilon)

    return prepare


def autodp() -> Callable[[Setting], Answers]:
    zoo: Any = import_module("autodp.mechanism_zoo")
    transformers: Any = import_module("autodp.transformer_zoo")

    def prepare(setting: Setting) -> Answers:
        mechanisms = []
        for r in setting["releases"]:
            if r["noise"] == "laplace" and "sampling" not in r:
                mechanisms.append(zoo.LaplaceMechanism(r["scale"]))
                continue
            s, q, _ = sampled_gaussians(setting | {"releases": [r]})[0]
            one = zoo.GaussianMechanism(s)
            if q < 1.0:
                # Without improved_bound_flag the library refuses tight bounds of Poisson samples.
                one.neighboring = "add_remove"
                one = transformers.AmplificationBySampling(PoissonSampling=True)(
                    one, q, improved_bound_flag=True
                )
            mechanisms.append(one)
        total = transformers.Composition()(mechanisms, [r["count"] for r in setting["releases"]])
        return Answers(total.get_approxDP, total.get_approx_delta)

    return prepare


def opake() -> Callable[[Setting], Answers]:
    core: Any = import_module("opake.api.accounting.core").opake_accounting

    config = core.DiscretizationConfig()

    def release(r: dict[str, Any]) -> Any:
        s, q, scheme = r["scale"], r.get("probability"), r.get("sampling")
        if scheme == "poisson":
            return core.poisson_pld(core.gaussian_pld(s, config), q)
        if scheme == "truncated":
            return core.truncated_poisson_gaussian_pld(s, q, r["limit"], r["records"], config)
        if scheme == "random_allocation":
            return core.random_allocation_gaussian_pld(s, r["steps"], 1, config)
        if scheme is not None:
            raise UnsupportedError
        return core.gaussian_pld(s, config)

    def prepare(setting: Setting) -> Answers:
        rs = setting["releases"]
        if setting["relation"] != "add_remove" or any(
            r["noise"] != "gaussian" or "group_size" in r for r in rs
        ):
            raise UnsupportedError
        parts = [release(r).self_compose(r["count"]) for r in rs]
        total = functools.reduce(lambda one, two: one.compose(two), parts)
        return Answers(total.epsilon_at, total.delta_at)

    return prepare


ADAPTERS: dict[str, tuple[str, Callable[[], Callable[[Setting], Answers]]]] = {
    "jaxdp": ("jaxdp-privacy", jaxdp),
    "dp_accounting PLD": ("dp-accounting", lambda: dp_accounting(rdp=False)),
    "dp_accounting RDP": ("dp-accounting", lambda: dp_accounting(rdp=True)),
    "Opacus PRV": ("opacus", lambda: opacus("PRVAccountant")),
    "Opacus RDP": ("opacus", lambda: opacus("RDPAccountant")),
    "prv_accountant": ("prv-accountant", prv_accountant),
    "riskcal": ("riskcal", riskcal),
    "autodp": ("autodp", autodp),
    "opake": ("opake-accounting", opake),
}
