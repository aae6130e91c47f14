"""Public functions with the kinds of their arguments: what `fuzz` calls."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

import jaxdp as dp
from jaxdp.solvers.problems import Smoothness

KEY = jax.random.key(0)
COUNT = {"statistic": "count"}


class Row(NamedTuple):
    """Callable, and (name, kind) of each argument; see `fuzz.GOOD` for the kinds.

    traced: it may be compiled with all arguments traced. is_dear: good calls take seconds, so that
    only surely bad ones are made. has_shapes: arrays are legal.
    """

    name: str
    call: Callable[..., Any]
    arguments: tuple[tuple[str, str], ...]
    traced: bool = False
    is_dear: bool = False
    has_shapes: bool = True


def row(name: str, call: Callable[..., Any], arguments: str, **flags: bool) -> Row:
    """A row from "name:kind other:kind"."""
    pairs = (text.split(":") for text in arguments.split())
    return Row(name, call, tuple((name, kind) for name, kind in pairs), **flags)


def _with(kind: Callable[..., Any], function: Callable[..., Any], *values: Any) -> Any:
    return function(kind(values[0]), *values[1:])


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
LEFT_OUT = {("Histogram", "fisher_information"), ("RandomisedResponse", "epsilon")}


RELEASES: dict[str, tuple[Callable[..., Any], str]] = {
    "Mechanism": (lambda s, m: dp.Mechanism(dp.Gaussian(s), m), "scale:scale sensitivity:shift"),
    "sampled": (
        lambda s, m, q: dp.Mechanism(dp.Gaussian(s), m, q, "add_remove"),
        "scale:scale sensitivity:shift sampling_prob:share",
    ),
    "PrivacyLoss": (
        lambda s, m, n: n * dp.privacy_loss(dp.Mechanism(dp.Gaussian(s), m)),
        "scale:moderate sensitivity:shift count:count",
    ),
    "PureDP": (dp.PureDP, "epsilon:shift"),
    "ApproxDP": (dp.ApproxDP, "epsilon:shift delta:share"),
    "ZCDP": (dp.ZCDP, "xi:shift rho:shift"),
    "GDP": (dp.GDP, "mu:shift"),
    "RandomisedResponse": (dp.RandomisedResponse, "epsilon:shift categories:categories"),
    "ExponentialMechanism": (dp.ExponentialMechanism, "epsilon:shift"),
}


def method_row(
    name: str, build: Callable[..., Any], parameters: str, method: str, arguments: str, traced: bool
) -> Row:
    """A row of a method of what `build` makes of the first arguments."""
    size = len(parameters.split())

    def call(*values: Any) -> Any:
        return getattr(build(*values[:size]), method)(*values[size:])

    return row(f"{name}.{method}", call, f"{parameters} {arguments}", traced=traced)


def noise_rows() -> list[Row]:
    traced = ("log_delta", "delta", "pure_epsilon", "zcdp", "renyi")
    return [
        method_row(name, family, parameters, method, arguments.format(shift), method in traced)
        for name, (family, parameters, shift) in NOISES.items()
        for method, arguments in METHODS.items()
        if (name, method) not in LEFT_OUT
    ]


def release_rows() -> list[Row]:
    rows = [
        method_row(name, build, parameters, method, argument, True)
        for name, (build, parameters) in RELEASES.items()
        for method, argument in (("log_delta", "epsilon:real"), ("epsilon", "delta:share"))
        if (name, method) not in LEFT_OUT
    ]
    return [*rows, method_row("Mechanism", *RELEASES["Mechanism"], "renyi", "order:order", False)]


def guarantee_rows() -> list[Row]:
    part = functools.partial
    of_gdp, of_pure = part(_with, dp.GDP), part(_with, dp.PureDP)
    return [
        row("Budget", dp.Budget, "epsilon:shift delta:share"),
        row("largest_gdp", lambda e, d: dp.largest_gdp((e, d)), "epsilon:shift delta:share"),
        row("largest_zcdp", lambda e, d: dp.largest_zcdp((e, d)), "epsilon:shift delta:share"),
        row("to_gdp", part(of_pure, dp.to_gdp), "epsilon:shift"),
        row("to_pure", part(of_pure, dp.to_pure), "epsilon:shift"),
        row("to_zcdp", part(of_pure, dp.to_zcdp), "epsilon:shift"),
        row("to_rdp", part(of_pure, dp.to_rdp), "epsilon:shift order:order",
            has_shapes=False),
        row("RDP", lambda o, v, e: dp.RDP(o, v).delta(e), "order:order value:shift epsilon:real",
            has_shapes=False),
        row("risk.advantage", part(of_gdp, dp.risk.advantage), "mu:shift"),
        row("gdp_with_regret", part(of_gdp, lambda g: dp.gdp_with_regret(g)[0]), "mu:shift"),
        row("risk.bayes_risk", part(of_gdp, dp.risk.bayes_risk), "mu:shift prior:share"),
        row("risk.tpr_at_fpr", part(of_gdp, dp.risk.tpr_at_fpr), "mu:shift fpr:share"),
        row("GDP.tradeoff", lambda m, f: dp.GDP(m).tradeoff(f), "mu:shift fpr:share"),
        row("risk.tradeoff_of_profile", lambda f: dp.risk.tradeoff_of_profile(
            dp.GDP(1.0).log_delta, f), "fpr:share"),
        row("above_threshold", lambda s, t, q: dp.above_threshold(
            s, threshold_scale=t, query_scale=q),
            "sensitivity:shift threshold_scale:scale query_scale:scale"),
        row("repeat_and_select", lambda m: dp.repeat_and_select(
            dp.RDP([2.0, 8.0], [0.1, 0.4]), mean=m).value, "mean:moderate", has_shapes=False),
        row("Filter", lambda m: dp.Filter(dp.GDP(1e3)).spend(dp.GDP(m)), "mu:moderate",
            has_shapes=False),
    ]  # fmt: skip


def design_rows() -> list[Row]:
    return [
        row("optimal.lower_bound", lambda e, d, s: dp.optimal.lower_bound(dp.ApproxDP(e, d), s),
            "epsilon:moderate delta:share sensitivity:shift"),
        row("expected_error", lambda s, level: dp.expected_error(dp.Laplace(s), level),
            "scale:scale level:share"),
        row("optimal.staircase_split", dp.optimal.staircase_split, "epsilon:moderate"),
        row("allocation_error", lambda s: dp.allocation_error("laplace", s), "scales:vector",
            has_shapes=False),
        row("allocate", lambda s, e, d: dp.allocate("gaussian", s, (e, d)),
            "sensitivities:vector epsilon:moderate delta:small", has_shapes=False),
        row("JointSensitivity", lambda n, l1, l2, linf: dp.JointSensitivity(
            n, l1=l1, l2=l2, linf=linf).tightened().l2,
            "dimension:size l1:scale l2:scale linf:scale"),
        row("PrivacyLoss.from_pmf", lambda x: dp.PrivacyLoss.from_pmf(
            [x, -1.0], [0.5, 0.5], [0.5, 0.5]).delta(0.1), "losses:moderate", has_shapes=False,
            is_dear=True),
        row("Released.log_delta", lambda s, m, v, e: dp.release(
            dp.Mechanism(dp.Gaussian(s), m), v, KEY).log_delta(e),
            "scale:moderate sensitivity:shift value:real epsilon:real", has_shapes=False),
        row("release", lambda s, m, v: dp.release(
            dp.Mechanism(dp.DiscreteLaplace(s), m), v, KEY).value,
            "scale:moderate sensitivity:count value:size", has_shapes=False),
        row("tables.plan", lambda e, d, w: dp.tables.plan(
            {"epsilon": e, "delta": d, "release": [COUNT | {"weight": w}]}),
            "epsilon:moderate delta:small weight:moderate", has_shapes=False, is_dear=True),
    ]  # fmt: skip


def dear_rows() -> list[Row]:
    """Good calls search, sum or solve for seconds: bad ones must not."""
    return [
        row("calibrate", lambda e, d, a, b: dp.calibrate(
            lambda s: dp.Mechanism(dp.Gaussian(s), 1.0), (e, d), lower=a, upper=b),
            "epsilon:moderate delta:small lower:lower upper:upper"),
        row("fit_noise", lambda e, d, s, n: dp.fit_noise("gaussian", (e, d), s, n),
            "epsilon:moderate delta:small sensitivity:scale count:size"),
        row("compare", lambda e, d, s, n: dp.compare((e, d), s, n, ["gaussian"]),
            "epsilon:moderate delta:small sensitivity:scale count:size"),
        row("allocate_exact", lambda v, e, d: dp.allocate_exact(dp.Laplace(1.0), v, (e, d)),
            "sensitivities:vector epsilon:moderate delta:small"),
        row("optimal.noise", lambda e, d, s: dp.optimal.noise((e, d), sensitivity=s),
            "epsilon:moderate delta:small sensitivity:scale"),
        row("optimal.integer_noise", lambda e, d, s: dp.optimal.integer_noise((e, d), s),
            "epsilon:moderate delta:small sensitivity:size"),
        row("optimal.mechanism", lambda e, d, s: dp.optimal.mechanism((e, d), s, (0.0, 1.0)),
            "epsilon:moderate delta:small sensitivity:scale"),
        row("GaussianMixture", lambda v, s: dp.GaussianMixture(v, [0.5, 0.5], s),
            "sensitivities:vector scale:scale"),
        row("dpsgd.epsilon", lambda s, d, q, n: dp.dpsgd.epsilon(s, d, sampling_prob=q, steps=n),
            "noise_multiplier:scale delta:small sampling_prob:share steps:size"),
        row("dpsgd.delta", lambda s, e, q, n: dp.dpsgd.delta(s, e, sampling_prob=q, steps=n),
            "noise_multiplier:scale epsilon:moderate sampling_prob:share steps:size"),
        row("dpsgd.noise_multiplier", lambda e, d, q, n: dp.dpsgd.noise_multiplier(
            epsilon=e, delta=d, sampling_prob=q, steps=n),
            "epsilon:moderate delta:small sampling_prob:share steps:size"),
        row("audit.run", lambda n, d, c: dp.audit.run(dp.Mechanism(dp.Gaussian(1.0), 1.0), (0, 1),
            n, delta=d, confidence=c, key=KEY, progress=False),
            "trials:size delta:chance confidence:share"),
        row("audit.one_run", lambda n, d, c: dp.audit.one_run(lambda taken, key: taken + 0.0, n,
            delta=d, claim=dp.GDP(1.0), confidence=c, key=KEY),
            "canaries:size delta:chance confidence:share"),
        row("solvers.glm", lambda x, y: dp.solvers.glm(
            x, y, loss="squared", penalty=dp.solvers.L1(0.1)), "features:vector targets:vector"),
        row("solvers.L1", dp.solvers.L1, "strength:scale"),
        row("solvers.L2", dp.solvers.L2, "strength:scale"),
        row("solvers.bounded_smoothness", lambda b: dp.solvers.bounded_smoothness("squared", b),
            "feature_bounds:vector"),
        row("Smoothness", lambda v: Smoothness(v, "public"), "smoothness:vector"),
    ]  # fmt: skip


ROWS = (
    *noise_rows(),
    *release_rows(),
    *guarantee_rows(),
    *design_rows(),
    *(r._replace(is_dear=True, has_shapes=False) for r in dear_rows()),
)
# Public names that no row calls, and why.
NOT_CALLED = {
    "verify": "proves a statement; fuzz calls it",
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
    "risk.Rate": "tests/design", "optimal.ErrorMeasure": "a record",
    "solvers.Problem": "what glm makes", "solvers.coordinate_smoothness": "takes a Problem",
    "DPLasso": "tests/estimators", "DPLinearRegression": "tests/estimators",
    "DPLogisticRegression": "tests/estimators",
    "DPNaiveBayes": "tests/estimators", "DPPCA": "tests/estimators",
}  # fmt: skip
