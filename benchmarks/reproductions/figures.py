"""The published figures that our kernels can compute, drawn again: a PNG each.

`python -m benchmarks.reproductions.figures [NAME ...] [--out FOLDER]`. Those of the flipped Huber
slides are in `figures_of_slides.py`. Left out: pictures without numbers of ours (the slides' two
tails, composition, contours of coordinate descent); tables, which are in benchmarks/results; and
the lecture on private optimisation and the slides on unbiased lower bounds, which have no figures.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from matplotlib import pyplot

import jaxdp as dp
from benchmarks.reproductions import cylinder_bands, proximal_descent
from benchmarks.reproductions import figures_of_slides as slides
from benchmarks.reproductions.figure_parts import (
    COLOURS,
    DASHES,
    DELTA,
    EPSILONS,
    LOOKS,
    finished,
    panels,
    stored,
)
from benchmarks.reproductions.profiles import sensitivity_profile
from jaxdp import demo

# Dimensions of the i.n.i.d. paper's figures, as far as its largest crossing was searched.
COUNTS = np.arange(2, 41)
# The i.n.i.d. paper's profiles; i.i.d. noise has the same error at each as at the uniform one.
PROFILES = ("uniform", "linear", "quadratic", "exponential", "one_hot")
# Simulations of the DRO appendices' figure 3, as published.
SIMULATIONS = 100
ERROR = "standard_error"


def profile_rows(name: str, order: int) -> np.ndarray:
    """Sensitivities of norm 1, a row a dimension of COUNTS.

    A sensitivity of 0 gets no noise, so that one shape serves all dimensions.
    """
    full = np.asarray(sensitivity_profile(name, int(COUNTS[-1])))
    rows = np.where(np.arange(full.size) < COUNTS[:, None], full, 0.0)
    return rows / np.linalg.norm(rows, order, axis=1, keepdims=True)


def squared_errors(family: str, budgets: Any, one: Any) -> Any:
    """Squared error against epsilon at K = 20, and against K at epsilon = 1."""
    figure, axes = panels(2)
    for name in PROFILES:
        label = {"uniform": "uniform, and i.i.d. noise"}.get(name, name.replace("_", "-"))
        rows = profile_rows(name, 2 if family == "gaussian" else 1)
        scales = dp.allocate(family, rows[COUNTS == 20], budgets)
        axes[0].loglog(EPSILONS, dp.allocation_error(family, scales), label=label)
        scales = dp.allocate(family, rows, one)
        axes[1].semilogy(COUNTS, dp.allocation_error(family, scales), label=label)
    finished(figure, r"$\epsilon$ at $K = 20$", "squared error", 5)
    axes[1].set_xlabel(r"$K$ at $\epsilon = 1$")
    return figure


def inid_gaussian() -> Any:
    """The i.n.i.d. paper's figure 1: squared error of the Gaussian, delta = 1e-6 (not printed).

    No difference known: 23.2, 43.0 and 89.2 % below equal scales at K = 20, the printed shares
    being lost; the quadratic profile ahead of the exponential one at K = 2 only.
    """
    return squared_errors("gaussian", dp.Budget(EPSILONS, DELTA), dp.Budget(1.0, DELTA))


def inid_laplace() -> Any:
    """The i.n.i.d. paper's figure 3: squared error of the Laplace, delta = 0.

    No difference known: 11.8, 27.4 and 82.7 % below equal scales at K = 20.
    """
    return squared_errors("laplace", dp.PureDP(EPSILONS), dp.PureDP(1.0))


def gini(sensitivities: Any) -> float:
    """2 sum_i i l_(i) / (K sum l) - (K + 1) / K: 0 for equal ones, 1 - 1/K where one is not 0."""
    ordered = np.sort(np.asarray(sensitivities))
    rank = np.arange(1.0, ordered.size + 1.0)
    return float(
        np.sum((2.0 * rank - ordered.size - 1.0) * ordered) / (ordered.size * ordered.sum())
    )


def inid_gini() -> Any:
    """The i.n.i.d. paper's figure 2: the Gini coefficient of each profile.

    No difference known: the quadratic profile is more dispersed than the exponential at K = 2 only.
    """
    figure, (ax,) = panels()
    at = (2, 3, 4, 6, 8, 12, 16, 24, 40)
    for name in PROFILES:
        values = [gini(sensitivity_profile(name, k)) for k in at]
        ax.plot(at, values, label=name.replace("_", "-"))
    return finished(figure, "$K$", "Gini coefficient", 3)


def inid_comparison() -> Any:
    """The i.n.i.d. paper's figure 4: (0.5, 0)-DP Laplace and (0.5, 1e-6)-DP Gaussian.

    No difference: the Laplace is ahead up to K = 8 (uniform), 9, 10, and always (exponential).
    """
    figure, axes = panels(4, 3.0)
    levels = {"gaussian": dp.Budget(0.5, DELTA), "laplace": dp.PureDP(0.5)}
    for ax, name in zip(axes, PROFILES, strict=False):
        rows = profile_rows(name, 2)
        for family, level in levels.items():
            error = dp.allocation_error(family, dp.allocate(family, rows, level))
            ax.semilogy(COUNTS, error, **LOOKS[family])
        ax.set(title=name, ylim=(10.0, 2e4))
    return finished(figure, "$K$", "squared error", 2)


def descent() -> Any:
    """The i.n.i.d. paper's figures 5 and 6: DP-CD (SPR) and its i.n.i.d. variant, 10 seeds.

    Published: the i.n.i.d. variant ahead. After 50 passes its error is 6 (California) and 2.3
    times (Electricity) that of SPR. Without these data, scikit-learn's own sets are drawn.
    """
    names = {"iid": "i.i.d.", "spr": "DP-CD (SPR)", "inid": "improved DP-CD (i.n.i.d.)"}
    figure, axes = panels(2)
    for ax, job in zip(axes, demo.trainings(), strict=True):
        _, curves = demo.train(job, lambda line: None)
        named = {names[method]: curve for method, curve in curves.items()}
        dp.plot.training(named, f"{job.data.replace('_', ' ')} (not private)", ax=ax)
        for curve, colour in zip(curves.values(), COLOURS, strict=False):
            mean, error = curve.mean(axis=0), curve.std(axis=0, ddof=1) / len(curve) ** 0.5
            passes = np.arange(1, mean.size + 1)
            ax.fill_between(passes, mean - error, mean + error, color=colour, alpha=0.2)
    return finished(figure, "passes", r"relative error $F(\theta) / F^* - 1$", 3)


def histograms(budget: dp.Budget, losses: tuple[str, str], **grid: Any) -> Any:
    """Two optimised densities on the published grid: the first filled, the second a line."""
    figure, (ax,) = panels()
    for loss, label, style in zip(
        losses,
        [{"l1": "$|x|$", "l2": "$x^2$"}.get(n, r"$|x| + 1[x > 0]\,|x|$") for n in losses],
        ({"fill": True, "color": COLOURS[1], "alpha": 0.35}, {"color": COLOURS[0], "lw": 1.8}),
        strict=True,
    ):
        noise = dp.optimal.noise(
            budget, loss, centred=False, max_atom=0.0, symmetric=loss != "asymmetric", **grid
        )
        weights, width = np.array(noise.weights), float(noise.width)
        edges = width * (np.arange(weights.size + 1) - 0.5 * weights.size)
        ax.stairs(weights / (noise.total * width), edges, label=f"$c(x) = $ {label}", **style)
    ax.set_ylim(bottom=0.0)
    return finished(figure, "noise $x$", "density", 2)


def optimised_asymmetric() -> Any:
    """The DRO appendices' figure 1: a symmetric and an asymmetric loss, beta = 0.05.

    No loss is printed there; that of |x| is an independent solver's, 0.5588.
    """
    losses = ("l1", "asymmetric")
    return histograms(dp.Budget(1.0, 0.2), losses, sensitivity=1.0, resolution=20, support=2.0)


def optimised_losses() -> Any:
    """The DRO appendices' figure 2: optima for |x| and x^2, sensitivity 10, beta = 0.5.

    No loss is printed there; that of x^2 is an independent solver's, 28.1756.
    """
    losses = ("l1", "l2")
    return histograms(dp.Budget(1.0, 0.4), losses, sensitivity=10.0, resolution=20, support=12.0)


def queries() -> Any:
    """The DRO appendices' figure 3: true answers in 100 noiseless runs on cylinder-bands.

    Published: more than 80 % within 10. Measured: 79.1 %, standard error 0.4; the largest is 174.
    """
    features, labels = cylinder_bands.records()
    training, rng = int(np.ceil(0.8 * len(features))), np.random.default_rng(0)
    found = []
    for seed in range(SIMULATIONS):
        seen = rng.permutation(len(features))[:training]
        _, sums = proximal_descent.trained(features[seen], labels[seen], None, None, seed)
        found.append(sums)
    answers = np.concatenate(found)
    figure, (ax,) = panels()
    bins = np.arange(-180.0, 181.0, 4.0).tolist()
    ax.hist(answers, bins=bins, log=True, color=COLOURS[0])
    share = 100.0 * np.mean(np.abs(answers) < 10)
    ax.set_title(f"{share:.1f} % within 10")
    ax.set(xlabel=r"true answer $\phi$", ylabel="answers")
    return figure


def greedy_descent() -> Any:
    """The greedy descent paper's figure on its data sets "log1" and "log2", as measured."""
    found = {name: rows for name, rows in stored("greedy").items() if name != "environment"}
    figure, axes = panels(len(found))
    for ax, (name, rows) in zip(axes, found.items(), strict=True):
        looks = zip(rows["methods"].items(), COLOURS, DASHES, strict=False)
        for (method, points), colour, dash in looks:
            x, y, error = ([row[key] for row in points] for key in ("passes", "mean", ERROR))
            ax.errorbar(x, y, error, color=colour, linestyle=dash, label=method)
        ax.set(title=name, xscale="log")
    return finished(figure, "passes", r"$F / F^* - 1$")


# The names of the PNGs, which the command line takes, and who draws them.
FIGURES = {f"slides_{function.__name__}": function for function in slides.FIGURES} | {
    "inid_1_gaussian": inid_gaussian,
    "inid_2_gini": inid_gini,
    "inid_3_laplace": inid_laplace,
    "inid_4_comparison": inid_comparison,
    "inid_5_6_descent": descent,
    "dro_1_asymmetric": optimised_asymmetric,
    "dro_2_losses": optimised_losses,
    "dro_3_queries": queries,
    "greedy_descent": greedy_descent,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw published figures again.")
    parser.add_argument("names", nargs="*", help=f"all, or some of {', '.join(FIGURES)}")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "figures")
    options = parser.parse_args()
    if not FIGURES.keys() >= set(options.names):
        parser.error(f"names must be among {', '.join(FIGURES)}, got {options.names}")
    for name in options.names or FIGURES:
        start = time.perf_counter()
        path = draw(name, options.out)
        print(f"{time.perf_counter() - start:6.1f} s  {path}", flush=True)


def draw(name: str, out: Path) -> Path:
    """Draw one figure of FIGURES into a folder, which is made."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{name}.png"
    figure = FIGURES[name]()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
