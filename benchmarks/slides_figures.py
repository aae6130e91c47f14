"""The figures of the flipped Huber slides, a function each; `draw_figures.py` draws them.

What takes minutes is read from the committed results. Where a docstring says "not printed", the
published parameters are unknown.
"""

import json
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import RESULTS
from matplotlib import pyplot

import jaxdp as dp
from jaxdp.families import MEMBERS
from jaxdp.plot.style import COLOURS, DASHES, axes_of

# Published names of the families, in an order that gives each one colour and style throughout.
LABELS = {
    "gaussian": "Gaussian",
    "laplace": "Laplace",
    "flipped_huber": "flipped Huber",
    "offset_gaussian": "OSGT",
    "subbotin": "Subbotin",
    "truncated_laplace": "truncated Laplace",
    "staircase": "staircase",
}
LOOKS = {
    name: {"color": colour, "linestyle": dash, "label": label}
    for (name, label), colour, dash in zip(LABELS.items(), COLOURS, DASHES, strict=True)
}
# What builds a noise again from the parameters in the committed results.
CLASSES: dict[str, Any] = {
    "gaussian": dp.Gaussian,
    "laplace": dp.Laplace,
    "flipped_huber": dp.FlippedHuber,
    "offset_gaussian": dp.OffsetGaussian,
    "subbotin": dp.Subbotin,
}
# Of the slides and, as far as it is printed, of the i.n.i.d. paper.
DELTA = 1e-6
# Budgets of one answer: a single batch, so that each family compiles once; 2 is one of them.
EPSILONS = np.unique(np.append(np.geomspace(0.1, 10.0, 24), 2.0))


@cache
def stored(name: str) -> Any:
    """A committed file of results."""
    return json.loads((RESULTS / f"{name}_reproduced.json").read_text())


@cache
def fitted(family: str, delta: float = DELTA) -> Any:
    """Noises of least variance for one answer of sensitivity 1, a batch over EPSILONS."""
    return dp.fit_noise(family, dp.Budget(EPSILONS, delta), 1.0)


def panels(count: int = 1) -> tuple[Any, list[Any]]:
    """A figure of `count` axes side by side."""
    size = (1.2 + 4.4 * count, 4.2)
    figure, axes = pyplot.subplots(1, count, figsize=size, layout="constrained", squeeze=False)
    return figure, [axes_of(ax) for ax in axes[0]]


def finished(figure: Any, x: str, y: str, columns: int = 4) -> Any:
    """The same names on all axes, and one legend below them, which covers no line."""
    for ax in figure.axes:
        ax.set(xlabel=x, ylabel=y)
        if ax.get_legend() is not None:
            ax.get_legend().remove()
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=columns
    )
    return figure


def densities(noises: dict[str, Any], reach: float) -> Any:
    """Densities of families, each in its own look, on [-reach, reach]."""
    figure, (ax,) = panels()
    x = np.linspace(-reach, reach, 801)
    for name, noise in noises.items():
        ax.plot(x, np.exp(noise.log_density(x)), **LOOKS[name])
    ax.set_ylim(bottom=0.0)
    return finished(figure, "noise $t$", "density $g_T(t)$", 3)


def grafting() -> Any:
    """Slides, "Can grafting Laplace and Gaussian help?": three densities of variance 1.

    The published parameters are not printed; alpha = gamma here.
    """
    names = ("gaussian", "laplace", "flipped_huber")
    return densities({name: MEMBERS[name].build(*jnp.ones(2)) for name in names}, 4.0)


def huber() -> Any:
    """Slides, "Are there other grafted densities?": Huber's and flipped Huber, alpha = 1.

    Huber's is normalised on the grid. The published alpha is not printed.
    """
    figure, (ax,) = panels()
    x = np.linspace(-30.0, 30.0, 60_001)
    weights = np.exp(-np.asarray(optax.huber_loss(jnp.asarray(x), delta=1.0)))
    ax.plot(x, weights / np.trapezoid(weights, x), label="Huber", color="0.4", linestyle=":")
    for name, noise in (("gaussian", dp.Gaussian(1.0)), ("flipped_huber", dp.FlippedHuber(1, 1))):
        ax.plot(x, np.exp(noise.log_density(x)), **LOOKS[name])
    ax.set(xlim=(-5.0, 5.0), ylim=(0.0, None))
    return finished(figure, "$t$", "density $g(t)$", 3)


def flipped_huber() -> Any:
    """Slides, "Flipped Huber distribution": densities for several alpha and gamma.

    The published choices are not printed.
    """
    figure, (ax,) = panels()
    choices = ((0.5, 1.0), (2.0, 1.0), (4.0, 1.0), (2.0, 2.0))
    noises = {rf"$\alpha = {a:g}, \gamma = {g:g}$": dp.FlippedHuber(a, g) for a, g in choices}
    dp.plot.density(noises, np.linspace(-5.0, 5.0, 801), ax=ax)
    return finished(figure, "$t$", r"$g_{\mathcal{FH}}(t; \alpha, \gamma^2)$", 2)


def fisher_information() -> Any:
    """Slides, "Properties of flipped Huber": Fisher information times variance.

    From the Gaussian's 1 to the Laplace's 2, as published; the abscissa is not printed.
    """
    figure, (ax,) = panels()
    ratio = np.geomspace(0.03, 100.0, 200)
    noise = dp.FlippedHuber(ratio, 1.0)
    ax.semilogx(ratio, noise.fisher_information() * noise.variance(), **LOOKS["flipped_huber"])
    for name, level in (("gaussian", 1.0), ("laplace", 2.0)):
        ax.axhline(level, **LOOKS[name])
    return finished(figure, r"$\alpha / \gamma$", r"$\mathcal{I}_T \, \sigma_T^2$", 3)


def privacy_loss() -> Any:
    """Slides, proofs in one and K dimensions: the loss's three forms, and its upper bound.

    The bound is the published zCDP's line. The published parameters are not printed.
    """
    figure, axes = panels(2)
    t = np.linspace(-4.0, 4.0, 801)
    for alpha in (0.3, 0.8, 1.5):
        noise = dp.FlippedHuber(alpha, 1.0)
        loss = noise.log_density(t) - noise.log_density(t + 1.0)
        axes[0].plot(t, loss, label=rf"$\alpha = {alpha}\,\Delta$")
    noise, one = dp.FlippedHuber(1.5, 0.5), dp.JointSensitivity(1, linf=1.0)
    bound = dp.sufficient_zcdp(noise, one)
    axes[1].plot(t, noise.log_density(t) - noise.log_density(t + 1.0), label=r"$\zeta_d(t)$")
    axes[1].plot(t, bound.xi + bound.rho * (1.0 + 2.0 * t), label=r"$\zeta_d^{(u)}(t)$")
    axes[0].set(xlabel="$t / \\Delta$", ylabel=r"$\zeta_\Delta(t)$", title=r"$\gamma = \Delta$")
    axes[1].set(xlabel="$t$", ylabel="privacy loss", title=r"$\alpha = 1.5, \gamma = 0.5, d = 1$")
    for ax in axes:
        ax.legend(loc="upper left")
    return figure


def one_dimension() -> Any:
    r"""Slides, "Performance in single dimension": variances at delta = 1e-6, Delta = 1.

    Published: OSGT far above flipped Huber. Its limit is the Laplace, so that its best member lies
    at most 0.11 % above flipped Huber noise.
    """
    figure, (ax,) = panels()
    for name in ("gaussian", "offset_gaussian", "truncated_laplace", "flipped_huber"):
        ax.loglog(EPSILONS, fitted(name).variance(), **LOOKS[name])
    return finished(figure, r"$\epsilon$", r"variance $\sigma_T^2$", 2)


def ratios() -> Any:
    """Slides, "Ratio of the variance (in dB)": flipped Huber over Laplace, and over staircase.

    Published: "Laplace is clearly superior". It is a limit of flipped Huber noise, which needs
    0.11 % less at epsilon 0.1 and the same from 5 on. The staircase wins from 0.5 on, as published.
    """
    figure, axes = panels(2)
    for ax, name in zip(axes, ("laplace", "staircase"), strict=True):
        for delta in (1e-3, 1e-6, 1e-9):
            pure = dp.fit_noise(name, dp.Budget(EPSILONS, 0.0), 1.0).variance()
            decibel = 10.0 * np.log10(fitted("flipped_huber", delta).variance() / pure)
            ax.semilogx(EPSILONS, decibel, label=rf"$\delta = 10^{{{np.log10(delta):.0f}}}$")
        ax.set_title(f"over {LABELS[name]}, $\\delta = 0$")
    return finished(figure, r"$\epsilon$", "variance ratio (dB)")


def one_dimension_densities() -> Any:
    """Slides, "Noise densities for epsilon = 2, delta = 1e-6".

    OSGT cannot be told from the Laplace: the fitted one is that limit.
    """
    names = ("gaussian", "laplace", "flipped_huber", "offset_gaussian", "truncated_laplace")
    at = int(np.searchsorted(EPSILONS, 2.0))
    return densities({n: jax.tree.map(lambda leaf: leaf[at], fitted(n)) for n in names}, 4.0)


def least(row: dict[str, Any], name: str) -> float:
    """The lower variance of two searches; infinite, so not drawn, where neither was made."""
    again = stored("noises")["refined"].get(f"{row['dimension']},{row['epsilon']:g}", {})
    return min(row.get(name, np.inf), again.get(name, np.inf))


def composed(ax: Any, rows: list[dict[str, Any]], x: str) -> None:
    """Variances of K coordinates over the Gaussian's, exactly composed and by the condition."""
    at = [row[x] for row in rows]
    for name in CLASSES:
        ax.plot(at, [least(row, name) / row["gaussian"] for row in rows], marker=".", **LOOKS[name])
    certified = [row["flipped_huber_sufficient"] / row["gaussian"] for row in rows]
    style = LOOKS["flipped_huber"] | {"linestyle": ":", "label": "flipped Huber, by the condition"}
    ax.plot(at, certified, marker="x", **style)
    ax.set_xscale("log")


def dimensions_20() -> Any:
    """Slides, "Performance in K = 20 dimensions for delta = 1e-6": variance against epsilon.

    Published: flipped Huber best. Its condition certifies at least the Gaussian's variance; exactly
    composed it gains at most 6.6 %, OSGT and Subbotin noise up to 13.2 and 13.9 %.
    """
    figure, (ax,) = panels()
    rows = [row for row in stored("noises")["composed"].values() if row["dimension"] == 20]
    composed(ax, rows, "epsilon")
    return finished(figure, r"$\epsilon$", "variance / that of the Gaussian", 2)


def dimensions() -> Any:
    """Slides, "Performance in K dimensions": variance against K, for two budgets.

    Published: flipped Huber ahead in high dimensions. From K = 20 on it gains less than 0.1 %.
    """
    figure, axes = panels(2)
    rows = sorted(stored("noises")["composed"].values(), key=lambda row: row["dimension"])
    for ax, epsilon in zip(axes, (1.0, 5.0), strict=True):
        composed(ax, [row for row in rows if row["epsilon"] == epsilon], "dimension")
        ax.set_title(rf"$\epsilon = {epsilon:g}, \delta = 10^{{-6}}$")
    return finished(figure, "$K$", "variance / that of the Gaussian", 3)


def dimensions_20_densities() -> Any:
    """Slides, "Noise densities in K = 20 dimensions for epsilon = 5, delta = 1e-6".

    Exactly composed, the best flipped Huber is nearly the Gaussian: 0.08 % less variance.
    """
    row = stored("noises")["composed"]["20,5"]
    return densities({n: make(**row[f"{n}_parameters"]) for n, make in CLASSES.items()}, 14.0)


def descent_noises() -> Any:
    """Slides, "DP-CD results": relative error after 50 passes of each noise, 30 seeds.

    Published: curves, flipped Huber lowest. Within their errors all noises are equal on raw
    features, and the Laplace doubles the error on standardised ones.
    """
    figure, axes = panels(3)
    for ax, table in zip(axes, stored("solvers")["families"], strict=True):
        for place, (name, row) in enumerate(table["rows"].items()):
            ax.errorbar(place, row["mean"], row["standard_error"], marker="o", capsize=4, ls="")
            ax.annotate(name, (place, row["mean"]), (8, 0), textcoords="offset points", va="center")
        ax.set(title=table["problem"], xlabel="noise", ylabel="relative error", xlim=(-0.4, 3.2))
        ax.set(xticks=[], ylim=(0.0, None))
    return figure


# In the order of the slides.
FIGURES = (
    grafting,
    huber,
    flipped_huber,
    fisher_information,
    privacy_loss,
    one_dimension,
    ratios,
    one_dimension_densities,
    dimensions_20,
    dimensions_20_densities,
    dimensions,
    descent_noises,
)
