"""Table of all calls of the campaign: noises and what releases them, method by method."""

import functools
from collections.abc import Callable
from typing import Any

from fuzz_rows import Row, dear_rows, design_rows, guarantee_rows, row

import jaxdp as dp

NOISES: dict[str, tuple[Callable[..., dp.own.Noise], str, str]] = {
    "Gaussian": (dp.Gaussian, "scale:scale", "shift"),
    "Laplace": (dp.Laplace, "scale:scale", "shift"),
    "TruncatedLaplace": (dp.TruncatedLaplace, "scale:scale bound:scale", "shift"),
    "Staircase": (dp.Staircase, "epsilon:moderate sensitivity:scale split:share", "shift"),
    "FlippedHuber": (dp.FlippedHuber, "alpha:moderate gamma:wide", "wide"),
    "OffsetGaussian": (dp.OffsetGaussian, "offset:moderate scale:wide", "wide"),
    "Subbotin": (dp.Subbotin, "scale:near power:power", "near"),
    "DiscreteGaussian": (dp.DiscreteGaussian, "scale:moderate", "count"),
    "DiscreteLaplace": (dp.DiscreteLaplace, "scale:moderate", "count"),
    "Histogram": (lambda width: dp.Histogram(width, (1, 2, 5, 2, 1)), "width:scale", "shift"),
}
METHODS = {
    "log_density": "x:real",
    "log_survival": "x:real",
    "quantile": "u:share",
    "absolute_moment": "power:power",
    "variance": "",
    "mean_absolute": "",
    "fisher_information": "",
    "sub_gaussian_proxy": "",
    "log_delta": "shift:{} epsilon:real",
    "delta": "shift:{} epsilon:real",
    "pure_epsilon": "shift:{}",
    "structure": "shift:{}",
    "zcdp": "shift:{}",
    "renyi": "shift:{} order:order",
    "kinks": "",
    "is_consistent": "",
}
# Infinite by design, or not there: what they say is no number. A histogram's score has no variance.
LEFT_OUT = {("Histogram", "fisher_information")}


def noise_rows() -> list[Row]:
    def called(family: Callable[..., dp.own.Noise], size: int, method: str, *values: Any) -> Any:
        return getattr(family(*values[:size]), method)(*values[size:])

    return [
        row(
            f"{name}.{method}",
            functools.partial(called, family, len(parameters.split()), method),
            f"{parameters} {arguments.format(shift)}",
            traced=method in ("log_delta", "delta", "pure_epsilon", "zcdp", "renyi"),
        )
        for name, (family, parameters, shift) in NOISES.items()
        for method, arguments in METHODS.items()
        if (name, method) not in LEFT_OUT
    ]


def _mechanism(method: str, *values: Any) -> Any:
    return getattr(dp.Mechanism(dp.Gaussian(values[0]), values[1]), method)(*values[2:])


def _sampled(method: str, *values: Any) -> Any:
    mechanism = dp.Mechanism(dp.Gaussian(values[0]), values[1], values[2], "add_remove")
    return getattr(mechanism, method)(*values[3:])


def _loss(method: str, *values: Any) -> Any:
    loss = values[2] * dp.privacy_loss(dp.Mechanism(dp.Gaussian(values[0]), values[1]))
    return getattr(loss, method)(*values[3:])


def _guarantee(kind: Any, size: int, method: str, *values: Any) -> Any:
    return getattr(kind(*values[:size]), method)(*values[size:])


GUARANTEES = {
    "PureDP": (dp.PureDP, "epsilon:shift"),
    "ApproxDP": (dp.ApproxDP, "epsilon:shift delta:share"),
    "ZCDP": (dp.ZCDP, "xi:shift rho:shift"),
    "GDP": (dp.GDP, "mu:shift"),
    "RandomisedResponse": (dp.RandomisedResponse, "epsilon:shift categories:categories"),
    "ExponentialMechanism": (dp.ExponentialMechanism, "epsilon:shift"),
}


def release_rows() -> list[Row]:
    rows = []
    for made, call, before in (
        ("Mechanism", _mechanism, "scale:scale sensitivity:shift"),
        ("sampled", _sampled, "scale:scale sensitivity:shift sampling_prob:share"),
        ("PrivacyLoss", _loss, "scale:moderate sensitivity:shift count:count"),
    ):
        for method, after in (("log_delta", "epsilon:real"), ("epsilon", "delta:share")):
            partial = functools.partial(call, method)
            rows.append(row(f"{made}.{method}", partial, f"{before} {after}", traced=True))
    order = functools.partial(_mechanism, "renyi")
    rows.append(row("Mechanism.renyi", order, "scale:scale sensitivity:shift order:order"))
    for name, (kind, parameters) in GUARANTEES.items():
        size = len(parameters.split())
        for method, after in (("log_delta", "epsilon:real"), ("epsilon", "delta:share")):
            if hasattr(kind, method):
                partial = functools.partial(_guarantee, kind, size, method)
                rows.append(row(f"{name}.{method}", partial, f"{parameters} {after}", traced=True))
    return rows


ROWS = (
    *noise_rows(),
    *release_rows(),
    *guarantee_rows(),
    *design_rows(),
    *(r._replace(is_dear=True, has_shapes=False) for r in dear_rows()),
)
# Public names that no row calls, and why.
NOT_CALLED = {
    "verify": "proves a statement; fuzz_proofs calls it",
    "Proof": "what `verify` returns",
    "solvers.ElasticNet": "as the other penalties",
    "enable_cache": "a folder", "own.pytree": "a decorator", "secure_key": "no argument",
    "sweep": "files: tests/unit/test_sweep.py", "tables.release": "records: tests/tables",
    "tables.ReleasedTable": "a result", "tables.TablePlan": "a result",
    "audit.of_outputs": "records: tests/audit",
    "audit.Audit": "a result", "audit.OneRunAudit": "a result",
    "BudgetExceededError": "an error", "Ledger": "a file: tests/release",
    "own.Law": "a record", "own.Smooth": "a record", "own.Kinks": "a record",
    "own.Lattice": "a record", "own.Noise": "abstract", "own.NumericalNoise": "abstract",
    "own.DominatingPair": "abstract", "own.Guarantee": "abstract",
    "own.law_on": "of one's own law", "own.panels": "of one's own law",
    "privacy_loss": "takes what others check",
    "DiscreteHistogram": "weights are part of the program: tests/noise",
    "risk.Rate": "tests/design",
    "solvers.Problem": "what glm makes", "solvers.coordinate_smoothness": "takes a Problem",
    "DPLasso": "tests/estimators", "DPLinearRegression": "tests/estimators",
    "DPLogisticRegression": "tests/estimators",
    "DPNaiveBayes": "tests/estimators", "DPPCA": "tests/estimators",
}  # fmt: skip
