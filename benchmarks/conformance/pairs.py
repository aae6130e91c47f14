"""Dominating pairs of the settings, over one coordinate, in NumPy and SciPy.

A pair is x -> (log density of Q, log density of P); loss = log dP/dQ. Its nodes are those of the
trapezoidal rule where all is smooth, of Gauss-Legendre between kinks, and the integers.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import special
from scipy.interpolate import make_interp_spline
from scipy.stats import binom, hypergeom

# Their types are not declared as they are.
erfc: Any = special.erfc
gammaln: Any = special.gammaln
logsumexp: Any = special.logsumexp
spline_of: Any = make_interp_spline
linspace: Any = np.linspace
# Nats of a tilted law that are kept; most nodes and points of a grid.
DEPTH, MOST = 100.0, 2**22
# Tilts looked at: negative ones, and positive ones in units of 1 / (size of the largest loss).
TILTS = np.concatenate([-np.geomspace(0.9, 1e-5, 10), np.geomspace(1e-4, 200.0, 110)])
ALLOCATED = ("random_allocation", "balls_in_bins")


class Law(NamedTuple):
    """Log masses under Q, and losses."""

    log_mass: Any
    loss: Any


class Pair(NamedTuple):
    """x -> (log density under Q, log density under P), on [low, high]."""

    densities: Callable[[Any], tuple[Any, Any]]
    low: float
    high: float
    size: float
    # None: smooth, the trapezoidal rule; else where it is not.
    kinks: list[float] | None = None
    # Distance of losses on a lattice; of noise on the integers, 0 where losses have no lattice.
    lattice: float | None = None
    # Loss of which the grid is a part, so that atoms are points of it.
    grain: float | None = None

    def nodes(self, low: float, high: float, count: float) -> tuple[Any, Any]:
        """Points and weights."""
        if self.lattice is not None:
            x = np.arange(math.floor(low), math.ceil(high) + 1.0)
            return x, np.ones_like(x)
        if self.kinks is None:
            x, dx = linspace(low, high, int(min(count, MOST)) + 2, retstep=True)
            return x, np.full_like(x, dx)
        cuts = np.array([low, *(k for k in self.kinks if low < k < high), high])
        near = 1e-9 * np.diff(cuts)
        with np.errstate(invalid="ignore"):
            ends = [np.subtract(*self.densities(x)) for x in (cuts[:-1] + near, cuts[1:] - near)]
            change = np.abs(ends[1] - ends[0])
        change[~np.isfinite(change)] = 0.0
        share = change / max(change.sum(), 1e-300) + 150.0 / count
        return panels(cuts, count * share)

    def law(self, power: float | None, step: float) -> Law:
        """Nodes a step of loss apart where Q e^(power loss) lives; of every power without one."""
        low, high, count = self.low, self.high, 9_000.0
        for last in (power is None, True):
            x, weight = self.nodes(low, high, count)
            with np.errstate(divide="ignore", invalid="ignore"):
                log_q, log_p = self.densities(x)
                kept = (log_q > -np.inf) & (log_p > -np.inf)
                law = Law((log_q + np.log(weight))[kept], (log_p - log_q)[kept])
            if last:
                return law
            assert power is not None
            tilted = law.log_mass + power * law.loss
            kept_tilted = tilted > tilted.max() - DEPTH
            x = x[kept][kept_tilted]
            wider = 2.0 * (high - low) / count
            low, high = max(low, x[0] - wider), min(high, x[-1] + wider)
            span = (
                law.loss[kept_tilted].max() - law.loss[kept_tilted].min()
                if self.kinks
                else (high - low) * self.size
            )
            count = max(10_000.0, 2.0 * span / step)
            count = min(count, MOST / 4)
        raise AssertionError

    def infinite(self) -> float:
        """The mass of P where Q has none."""
        x, weight = self.nodes(self.low, self.high, 20_000.0)
        log_q, log_p = self.densities(x)
        return float((weight * np.exp(log_p))[log_q == -np.inf].sum())


def panels(cuts: Any, counts: Any) -> tuple[Any, Any]:
    """Gauss-Legendre nodes and weights between cuts, `counts` in each interval or more."""
    node, weight = np.polynomial.legendre.leggauss(12)
    places, weights = [], []
    for a, b, count in zip(cuts, cuts[1:], counts, strict=False):
        number = math.ceil(count / 12)
        half = (b - a) / number / 2
        middle = a + half * (2 * np.arange(number) + 1)
        places.append((middle[:, None] + half * node).ravel())
        weights.append(np.tile(half * weight, number))
    return np.concatenate(places), np.concatenate(weights)


def log_density(noise: dict[str, Any], x: Any) -> Any:
    """The log density of a noise at x, on the integers up to its normalisation."""
    t, kind = np.abs(x), noise["noise"]
    if kind in ("gaussian", "discrete_gaussian"):
        return -0.5 * (t / noise["scale"]) ** 2 - math.log(noise["scale"] * math.sqrt(2 * math.pi))
    if kind in ("laplace", "discrete_laplace"):
        return -t / noise["scale"] - math.log(2 * noise["scale"])
    if kind == "truncated_laplace":
        s, a = noise["scale"], noise["bound"]
        return np.where(t <= a, -t / s - math.log(-2 * s * math.expm1(-a / s)), -np.inf)
    if kind == "flipped_huber":
        g, a = noise["gamma"], noise["alpha"] / noise["gamma"]
        tail = math.sqrt(2 * math.pi) * math.exp(-a * a / 2) * math.erfc(a / math.sqrt(2))
        total = g * (-2 * math.expm1(-a * a) / a + tail)
        return -np.where(t <= a * g, a * t / g, ((t / g) ** 2 + a * a) / 2) - math.log(total)
    if kind == "offset_gaussian":
        s, h = noise["scale"], noise["offset"] / noise["scale"]
        total = s * math.sqrt(2 * math.pi) * erfc(h / math.sqrt(2))
        return -0.5 * (t / s + h) ** 2 - math.log(total)
    if kind == "subbotin":
        s, p = noise["scale"], noise["power"]
        return -((t / s) ** p) / p - math.log(2 * s) - gammaln(1 / p) - (1 / p - 1) * math.log(p)
    assert kind == "staircase", kind
    e, d, v = noise["epsilon"], noise["sensitivity"], noise["split"]
    b = math.exp(-e)
    return math.log((1 - b) / (2 * d * (v + b * (1 - v)))) - e * (np.floor(t / d - v) + 1)


def additive(release: dict[str, Any]) -> Pair:
    """Noise moved by 1 against noise, sampled or not."""
    q, whole = release.get("probability"), release["noise"].startswith("discrete")

    def densities(x: Any) -> tuple[Any, Any]:
        log_q, log_p = log_density(release, x) - total, log_density(release, x - 1.0) - total
        if q is not None:
            log_p = np.logaddexp(math.log1p(-q) + log_q, math.log(q) + log_p)
        return log_q, log_p

    total = 0.0
    size = abs(float(np.diff(log_density(release, np.array([0.0, 0.9])))[0])) + 1e-3
    x = np.geomspace(1e-3, 1e9, 4000)
    with np.errstate(over="ignore"):
        below = log_density(release, x) < log_density(release, np.array(0.0)) - DEPTH
    reach = float(x[np.argmax(below)])
    kinks = {
        0.0,
        *(s * release[name] for name in ("alpha", "bound") if name in release for s in (1, -1)),
    }
    if release["noise"] == "staircase":
        steps = release["sensitivity"] * (
            np.arange(reach // release["sensitivity"]) + release["split"]
        )
        kinks |= {*steps, *-steps}
    elif release["noise"] not in ("laplace", "truncated_laplace", "discrete_laplace"):
        reach = reach + 40.0 / size
    if whole:
        k = np.arange(-math.ceil(reach), math.ceil(reach) + 1)
        total = float(logsumexp(log_density(release, k)))
        lattice = {
            "discrete_laplace": 2.0 / release["scale"],
            "discrete_gaussian": release["scale"] ** -2.0,
        }
        spacing = 0.0 if q is not None else lattice[release["noise"]]
        return Pair(densities, -math.ceil(reach), math.ceil(reach), size, None, spacing)
    if release["noise"] == "subbotin":
        # Its density is no power series at 0: panels become shorter towards it.
        kinks |= {s * 2.0**-k for k in range(2, 40) for s in (1, -1)}
    places = sorted(k + shift for k in kinks for shift in (0.0, 1.0))
    ends = min(-reach, places[0]), max(reach + 1.0, places[-1])
    grain = None
    if release["noise"] == "flipped_huber" and q is None:
        grain = release["alpha"] / release["gamma"] ** 2
    elif release["noise"].endswith("laplace") and q is None:
        grain = 1.0 / release["scale"]
    return Pair(densities, *ends, size, places, None, grain)


def mixture(
    ahead: list[tuple[float, float]], behind: list[tuple[float, float]], scale: float
) -> Pair:
    """Gaussians of (share, shift) under P and under Q."""
    far = max(abs(m) for _, m in (*ahead, *behind)) / scale

    def mixed(x: Any, parts: list[tuple[float, float]]) -> Any:
        each = [math.log(w) + m / scale * x - 0.5 * (m / scale) ** 2 for w, m in parts if w > 0]
        return functools.reduce(np.logaddexp, each)

    def densities(x: Any) -> tuple[Any, Any]:
        base = -0.5 * x * x - 0.5 * math.log(2 * math.pi)
        return base + mixed(x, behind), base + mixed(x, ahead)

    reach = TILTS[-1] + far + 10.0
    return Pair(densities, -reach, reach, far)


@functools.cache
def allocated(scale: float, steps: int, points: int) -> Any:
    """Spline of the log density, under Q, of log sum of `steps` terms exp(c x - c^2 / 2), x normal.

    log(e^a + e^b) = v leaves one coordinate d = b - a, with Jacobian 1: sums of doubled length.
    """
    c, depth = 1.0 / scale, 400.0

    def spline(log_f: Callable[[Any], Any], terms: int) -> Any:
        low = math.log(terms) - c * c / 2 - c * math.sqrt(2 * depth / terms)
        v = linspace(low, math.log(terms) + c * math.sqrt(2 * depth), points)
        return spline_of(v, log_f(v), 7)

    def added(one: Any, two: Any) -> Callable[[Any], Any]:
        def log_f(v: Any) -> Any:
            reach = two.t[0] - one.t[-1], two.t[-1] - one.t[0]
            d, dd = linspace(*reach, points + 400, retstep=True)
            out = []
            for part in np.array_split(v, 16):
                places = part[:, None] - np.logaddexp(0, d), part[:, None] - np.logaddexp(0, -d)
                inside = np.ones(places[0].shape, bool)
                for f, x in zip((one, two), places, strict=True):
                    inside &= (x >= f.t[0]) & (x <= f.t[-1])
                total = np.full(inside.shape, -1e4)
                total[inside] = one(places[0][inside]) + two(places[1][inside])
                out.append(logsumexp(total, axis=1) + math.log(dd))
            return np.concatenate(out)

        return log_f

    noise = {"noise": "gaussian", "scale": c}
    power = spline(lambda v: log_density(noise, v + c * c / 2), 1)
    total, terms = None, 0
    for bit in range(steps.bit_length()):
        if bit:
            power = spline(added(power, power), 2**bit)
        if steps >> bit & 1:
            terms = terms + 2**bit
            total = power if total is None else spline(added(total, power), terms)
    return total


def pairs_of(release: dict[str, Any], relation: str, points: int) -> list[tuple[float, Pair]]:
    """(Probability of a public coin, pair) of one release."""
    scheme, q = release.get("sampling"), release.get("probability", 1.0)
    if scheme in ALLOCATED:
        # The same bins in every epoch: one epoch of less noise.
        scale, log_steps = (
            release["scale"] / math.sqrt(release.get("epochs", 1)),
            math.log(release["steps"]),
        )
        spline = allocated(scale, release["steps"], points)

        def densities(v: Any) -> tuple[Any, Any]:
            return spline(v), spline(v) + v - log_steps

        return [(1.0, Pair(densities, spline.t[0], spline.t[-1], 1.0))]
    if release["noise"] != "gaussian" or (scheme is None and "probability" not in release):
        return [(1.0, additive(release))]
    s, none = release["scale"], [(1.0, 0.0)]
    if relation == "replace_one":
        return [(1.0, mixture([(1 - q, 0.0), (q, 1.0)], [(1 - q, 0.0), (q, -1.0)], s))]
    group, n, b = release.get("group_size", 1), release.get("records", 0), release.get("batch", 0)
    taken = np.arange(group + 1)
    if scheme == "poisson":
        shares, shift = binom.pmf(taken, group, q), 1.0
    elif scheme == "without_replacement":
        shares, shift = hypergeom.pmf(taken, n, group, b), 2.0
    else:
        limit = release["limit"]
        full = float(binom.sf(limit - 1, n - 1, q))
        rate = limit / n * float(binom.sf(limit, n, q)) / full if full > 0 else 0.0
        parts = (1 - full, q, 1.0), (full, rate, 2.0)
        return [(w, mixture([(1 - r, 0.0), (r, m)], none, s)) for w, r, m in parts if w > 0]
    ahead = [(float(w), shift * j) for j, w in zip(taken, shares, strict=True)]
    return [(1.0, mixture(ahead, none, s))]
