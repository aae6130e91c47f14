"""The figures of the flipped Huber slides, a function each; `reproductions/figures.py` draws them.

What takes minutes is read from the committed results. What is "not printed" is unknown.
"""

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxdp as dp
from benchmarks.reproductions.figure_parts import (
    DELTA,
    EPSILONS,
    LABELS,
    LOOKS,
    finished,
    panels,
    stored,
)
from benchmarks.reproductions.flipped_huber_conditions import sufficient_zcdp
from jaxdp.design.families import MEMBERS

# What builds a noise again from the parameters in the committed results.
CLASSES: dict[str, Any] = {
    "gaussian": dp.Gaussian,
    "laplace": dp.Laplace,
    "flipped_huber": dp.FlippedHuber,
    "offset_gaussian": dp.OffsetGaussian,
    "subbotin": dp.Subbotin,
}


@cache
def fitted(family: str, delta: float = DELTA) -> Any:
    """Noises of least variance for one answer of sensitivity 1, a batch over EPSILONS."""
    return dp.fit_noise(family, dp.Budget(EPSILONS, delta), 1.0)


def densities(noises: dict[str, Any], near: float, far: float) -> Any:
    """Densities of families, each in its own look: on [-near, near], and their logarithms."""
    figure, axes = panels(2)
    for ax, reach in zip(axes, (near, far), strict=True):
        x = np.linspace(-reach, reach, 1001)
        for name, noise in noises.items():
            ax.plot(x, np.exp(noise.log_density(x)), **LOOKS[name])
    axes[0].set_ylim(bottom=0.0)
    # Chosen: lower down, the Gaussian tails alone would stretch the axis.
    axes[1].set(yscale="log", ylim=(1e-9 * axes[0].get_ylim()[1], None))
    return finished(figure, "noise $t$", "density $g_T(t)$", 5)


def grafting() -> Any:
    """Slides, "Can grafting Laplace and Gaussian help?": three densities of variance 1.

    The published parameters are not printed; alpha = gamma here.
    """
    names = ("gaussian", "laplace", "flipped_huber")
    return densities({name: MEMBERS[name]._member(*jnp.ones(2)) for name in names}, 4.0, 8.0)


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
    bound = sufficient_zcdp(noise, one)
    axes[1].plot(t, noise.log_density(t) - noise.log_density(t + 1.0), label=r"$\zeta_d(t)$")
    axes[1].plot(t, bound.xi + bound.rho * (1.0 + 2.0 * t), label=r"$\zeta_d^{(u)}(t)$")
    axes[0].set(xlabel="$t / \\Delta$", ylabel=r"$\zeta_\Delta(t)$", title=r"$\gamma = \Delta$")
    axes[1].set(xlabel="$t$", ylabel="privacy loss", title=r"$\alpha = 1.5, \gamma = 0.5, d = 1$")
    for ax in axes:
        ax.legend(loc="upper left")
    return figure


def one_dimension() -> Any:
    """Slides, "Performance in single dimension": variances at delta = 1e-6, Delta = 1.

    Published: OSGT far above flipped Huber. Fitted down to its limit, the Laplace, it is at most
    0.1 % above; the right panel shows by how much.
    """
    figure, axes = panels(2)
    for name in ("gaussian", "offset_gaussian", "flipped_huber", "truncated_laplace"):
        variance = np.asarray(fitted(name).variance())
        axes[0].loglog(EPSILONS, variance, **LOOKS[name])
        axes[1].semilogx(EPSILONS, 0.5 * variance * EPSILONS**2, **LOOKS[name])
    finished(figure, r"$\epsilon$", r"variance $\sigma_T^2$")
    axes[1].set(ylabel=r"$\sigma_T^2$ / that of the Laplace, $\delta = 0$", ylim=(0.9985, 1.0002))
    return figure


def ratios() -> Any:
    """Slides, "Ratio of the variance (in dB)": flipped Huber over Laplace, and over staircase.

    Published: "Laplace is clearly superior". Flipped Huber noise has it as a limit and is never
    above it; at epsilon = 0.1 it is 0.97 dB below for delta = 1e-3, 0.005 dB for 1e-6.
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

    All but the Gaussian are the Laplace where they are likely; only their tails differ.
    """
    names = ("gaussian", "laplace", "flipped_huber", "offset_gaussian", "truncated_laplace")
    at = int(np.searchsorted(EPSILONS, 2.0))
    noises = {name: jax.tree.map(lambda leaf: leaf[at], fitted(name)) for name in names}
    return densities(noises, 4.0, 11.0)


def least(row: dict[str, Any], name: str) -> float:
    """The lower variance of two searches; infinite, so not drawn, where neither was made."""
    again = stored("noises")["refined"].get(f"{row['dimension']},{row['epsilon']:g}", {})
    return min(row.get(name, np.inf), again.get(name, np.inf))


def composed(ax: Any, rows: list[dict[str, Any]], x: str, relative: bool = True) -> None:
    """Variances of one of K coordinates, or their ratios to the Gaussian's, and the condition's."""
    at = [row[x] for row in rows]
    unit = np.array([row["gaussian"] if relative else 1.0 for row in rows])
    for name in CLASSES:
        ax.plot(at, [least(row, name) for row in rows] / unit, marker=".", **LOOKS[name])
    certified = [row["flipped_huber_sufficient"] for row in rows] / unit
    style = LOOKS["flipped_huber"] | {"linestyle": ":", "label": "flipped Huber, by the condition"}
    ax.plot(at, certified, marker="x", **style)
    ax.set_xscale("log")


def dimensions_20() -> Any:
    """Slides, "Performance in K = 20 dimensions for delta = 1e-6": variance against epsilon.

    Published: flipped Huber best. Its condition certifies more than the Gaussian's variance;
    composed exactly it gains at most 6.6 %, OSGT and Subbotin noise up to 13.2 and 13.9 %.
    """
    figure, axes = panels(2)
    rows = [row for row in stored("noises")["composed"].values() if row["dimension"] == 20]
    composed(axes[0], rows, "epsilon", relative=False)
    composed(axes[1], rows, "epsilon")
    finished(figure, r"$\epsilon$", "variance / that of the Gaussian", 3)
    axes[0].set(yscale="log", ylabel=r"variance $\sigma_T^2$")
    axes[1].set_ylim(0.84, 1.06)
    return figure


def dimensions() -> Any:
    """Slides, "Performance in K dimensions": variance against K, for two budgets.

    Published: flipped Huber ahead in high dimensions. Over the better of the Gaussian and the
    Laplace it gains at most 0.5 %, from K = 20 on less than 0.1 %.
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
    return densities({n: make(**row[f"{n}_parameters"]) for n, make in CLASSES.items()}, 14.0, 40.0)


def descent_noises() -> Any:
    """Slides, "DP-CD results": relative error after 50 passes, 30 seeds and standard errors.

    Published: curves. Flipped Huber noise (alpha = 0.5) is within 2 standard errors of the
    Gaussian everywhere; the Laplace doubles the error on standardised features.
    """
    figure, axes = panels(3, 3.4)
    for ax, table in zip(axes, stored("solvers")["families"], strict=True):
        for place, row in enumerate(table["rows"].values()):
            ax.errorbar(place, row["mean"], row["standard_error"], marker="o", capsize=4)
        ax.set_xticks(range(3), ["Gaussian", "flipped Huber", "Laplace"])
        ax.set(title=table["problem"], xlabel="noise", xlim=(-0.5, 2.5), ylim=(0.0, None))
        ax.set_ylabel(r"relative error $F(\theta) / F^* - 1$")
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
