"""The law of a total loss by a convolution on a grid, in NumPy.

Nodes are deposited by Lagrange's kernel of ORDER points, which keeps the moments of each node below
ORDER. Masses are tilted exponentially, so that small deltas keep their digits, and FFTs raise them
to the number of releases. Gregory's rule sums the payoff from epsilon on. Losses on a lattice stay
there, which makes the sum exact. One release is integrated over {loss > epsilon}.
"""

import math
from typing import Any

import numpy as np
from scipy import special

from benchmarks.conformance.pairs import MOST, TILTS, Law, Pair, pairs_of, panels

# Its types are not declared as they are.
logsumexp: Any = special.logsumexp
ORDER = 10
GREGORY = np.array([1 / 2, -1 / 12, 1 / 24, -19 / 720, 3 / 160, -863 / 60480, 275 / 24192])
# Nats below which a tilted law may wrap around the grid.
WRAPPED = 36.0


class UndecidedError(Exception):
    """No digit stands."""


class Direction:
    """The composition of P against Q, or of Q against P: `added`.

    Rarely sampled records: losses above a cut are hits, A the law of the others. Where A^n alone
    hardly exceeds epsilon, (A + S)^n - A^n takes the place of (A + S)^n, so that the mass without
    a hit, which may be 1e15 times delta, costs no digits.
    """

    def __init__(self, setting: dict[str, Any], added: bool, points: int):
        self.sign = -1.0 if added else 1.0
        self.parts = [
            (r["count"], pairs_of(r, setting["relation"], points)) for r in setting["releases"]
        ]
        pairs = [pair for _, coin in self.parts for _, pair in coin]
        lattices = {pair.lattice for pair in pairs}
        self.lattice = lattices.pop() if len(lattices) == 1 else None
        grains = {pair.grain for pair in pairs} - {None}
        self.grain = grains.pop() if len(grains) == 1 else None
        self.tilts = np.where(TILTS > 0, TILTS / max(pair.size for pair in pairs), TILTS)
        self.coarse = [(n, self.law(coin, None, 1.0)) for n, coin in self.parts]
        self.cumulants: dict[float, Any] = {}
        self.most = sum(n * (self.sign * law.loss).max() for n, law in self.coarse)
        logs = [n * math.log1p(-coin[0][1].infinite()) for n, coin in self.parts if len(coin) == 1]
        self.infinite = 0.0 if added else -math.expm1(sum(logs))

    def power(self, tilt: float) -> float:
        """Of e^loss under Q, for a tilt of this direction's loss under its first law."""
        return -tilt if self.sign < 0 else 1.0 + tilt

    def law(self, coin: list[tuple[float, Pair]], power: float | None, step: float) -> Law:
        laws = [(math.log(w), pair.law(power, step)) for w, pair in coin]
        mass = np.concatenate([w + law.log_mass for w, law in laws])
        return Law(mass, np.concatenate([law.loss for _, law in laws]))

    def moments(self, tilt: float, cut: float) -> Any:
        """log mass, mean and variance of the tilted (A + S)^n - A^n; and log mass of A^n."""
        whole, body, difference = np.zeros(3), np.zeros(3), 0.0
        for n, law in self.coarse:
            tilted, loss = law.log_mass + self.power(tilt) * law.loss, self.sign * law.loss
            for total, part in ((whole, tilted > -np.inf), (body, loss <= cut)):
                if part.any():
                    log_mass = logsumexp(tilted[part])
                    p = np.exp(tilted[part] - log_mass)
                    mean = p @ loss[part]
                    total += n * np.array([log_mass, mean, p @ (loss[part] - mean) ** 2])
            hit = logsumexp(tilted[loss > cut]) if (loss > cut).any() else -np.inf
            rest = logsumexp(tilted[loss <= cut]) if (loss <= cut).any() else -np.inf
            difference += n * np.logaddexp(0.0, hit - rest) if rest > -np.inf else np.inf
        if difference == np.inf:
            return whole[0], whole[1], whole[2], -np.inf
        share, kept = math.exp(-difference), -math.expm1(-difference)
        if not kept:
            return -np.inf, 0.0, 1.0, body[0]
        mean = (whole[1] - share * body[1]) / kept
        square = (whole[2] + whole[1] ** 2 - share * (body[2] + body[1] ** 2)) / kept
        return whole[0] + math.log(kept), mean, max(square - mean**2, 1e-30), body[0]

    def cumulant(self, cut: float) -> Any:
        """The first and last of `moments` at all tilts."""
        if cut not in self.cumulants:
            found = [self.moments(float(tilt), cut) for tilt in self.tilts]
            self.cumulants[cut] = np.array([(m[0], m[3]) for m in found]).T
        return self.cumulants[cut]

    def chernoff(self, cumulant: Any, epsilon: float) -> float:
        exponent = (cumulant - self.tilts * epsilon)[TILTS > 0]
        return float(exponent.min())

    def saddle(self, epsilon: float, cut: float) -> float:
        """The tilt under which the mean of the loss is epsilon: Chernoff's bound is least."""
        exponent = np.where(TILTS > 0, self.cumulant(cut)[0] - self.tilts * epsilon, np.inf)
        best = int(np.argmin(exponent))
        first = int(np.argmax(TILTS > 0))
        low, high = (
            float(self.tilts[min(max(i, first), TILTS.size - 1)]) for i in (best - 1, best + 1)
        )
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if self.moments(middle, cut)[1] < epsilon else (low, middle)
        return high

    def cut(self, epsilon: float) -> float:
        """The largest cut, a power of 2, below which A^n hardly exceeds epsilon."""
        for cut in 2.0 ** (math.floor(math.log2(epsilon)) - np.arange(1.0, 8.0)):
            whole, body = self.cumulant(float(cut))
            if self.chernoff(body, epsilon) < self.chernoff(whole, epsilon) - 32.0:
                return float(cut)
        raise UndecidedError("records are not sampled rarely")

    def bound(self, epsilon: float) -> float:
        """Chernoff's bound on log delta."""
        least = (
            self.chernoff(self.cumulant(-np.inf)[0], epsilon) if self.most > epsilon else -np.inf
        )
        return self.plus_infinite(min(0.0, least))

    def plus_infinite(self, log_delta: float) -> float:
        if not self.infinite:
            return log_delta
        return float(np.logaddexp(log_delta, math.log(self.infinite)))

    def log_delta(self, epsilon: float, run: tuple[float, float, bool]) -> float:
        fine, factor, rare = run
        if self.most <= epsilon:
            return self.plus_infinite(-np.inf)
        if sum(n for n, _ in self.parts) == 1 and self.lattice is None:
            return self.plus_infinite(self.one_release(epsilon, fine))
        cut = self.cut(epsilon) if rare else -np.inf
        theta = factor * self.saddle(epsilon, cut)
        log_total, _, variance, _ = self.moments(theta, cut)
        step = self.lattice or min(math.sqrt(variance), 6.0 / theta) / fine
        if self.grain and not self.lattice:
            step = self.grain / math.ceil(self.grain / step)
        size = self.size(epsilon, theta, step, cut, log_total)
        total, releases = 0.0, 0
        logs, hits = np.zeros(size // 2 + 1, complex), np.zeros(size // 2 + 1, complex)
        for n, coin in self.parts:
            law = self.law(coin, self.power(theta), step)
            tilted, loss = law.log_mass + self.power(theta) * law.loss, self.sign * law.loss
            log_mass = logsumexp(tilted[loss <= cut]) if rare else logsumexp(tilted)
            mass = np.exp(tilted - log_mass)
            place = np.round(loss / step - 0.5) if self.lattice else loss / step
            body = loss <= cut if rare else loss < np.inf
            grid = deposited(place[body], mass[body], size)
            # Losses of rarely sampled records are near 0: less the mass 1 there, small numbers.
            grid[0] = 0.0
            grid[0] = -grid.sum()
            log_body = log_of_1_plus(np.fft.rfft(grid))
            if rare:
                ratio = np.fft.rfft(deposited(place[~body], mass[~body], size)) * np.exp(-log_body)
                hits = hits + n * log_of_1_plus(ratio)
            total, releases, logs = total + n * log_mass, releases + n, logs + n * log_body
        transform = np.exp(logs) * (np.expm1(hits) if rare else 1.0)
        # The lattice of a sum of losses (k + 1/2) step.
        offset = 0.5 * releases if self.lattice else 0.0
        first = math.ceil(epsilon / step - offset)
        masses = np.roll(np.fft.irfft(transform, size), -first)[: size // 2]
        gap = (first + offset + np.arange(size // 2)) * step - epsilon
        payoff = masses * np.exp(-theta * gap) * -np.expm1(-gap)
        value = float(payoff.sum())
        if not self.lattice:
            value += end_weights(gap[0] / step) @ payoff[: len(GREGORY)]
        if not value > 0:
            raise UndecidedError("no digit stands")
        return self.plus_infinite(total - theta * epsilon + math.log(value))

    def size(self, epsilon: float, theta: float, step: float, cut: float, log_total: float) -> int:
        """Points of a grid around which e^-WRAPPED of the tilted law wraps, by Chernoff's bound."""
        with np.errstate(divide="ignore"):
            near = [theta * x for x in (0.6, 0.8, 0.9, 1.01, 1.03, 1.06, 1.1, 1.2, 1.4)]
            tilts = np.concatenate([self.tilts, near])
            more = [self.moments(x, cut)[0] for x in near]
            cumulant = np.concatenate([self.cumulant(cut)[0], more])
            change = (cumulant - log_total + WRAPPED) / (tilts - theta)
        up = min(change[tilts > theta].min(), self.most)
        down = change[tilts < theta].max()
        width = max(up - epsilon, 0.0) + max(epsilon - down, 0.0) + WRAPPED / theta
        size = 2 ** math.ceil(math.log2(width / step + 4 * ORDER))
        if size > 2 * MOST:
            raise UndecidedError(f"a grid of {size} points")
        return size

    def one_release(self, epsilon: float, fine: float) -> float:
        """log of the integral of (p - e^epsilon q)+, over finite losses."""
        logs = []
        for share, pair in self.parts[0][1]:

            def gain(x: Any, pair: Pair = pair) -> tuple[Any, Any]:
                log_q, log_p = pair.densities(x)
                first, second = (log_q, log_p) if self.sign < 0 else (log_p, log_q)
                finite = (first > -np.inf) & (second > -np.inf)
                return first, np.where(finite, first - second, -np.inf) - epsilon

            cuts = [pair.low, *(pair.kinks or ()), pair.high]
            x, _ = panels(cuts, [20_000.0 / len(cuts) + 50] * len(cuts))
            with np.errstate(invalid="ignore"):
                change = np.flatnonzero(np.diff(gain(x)[1] > 0))
                low, high = x[change], x[change + 1]
                at_low = gain(low)[1] > 0
                for _ in range(60):
                    middle = (low + high) / 2
                    same = (gain(middle)[1] > 0) == at_low
                    low, high = np.where(same, middle, low), np.where(same, high, middle)
                ends = sorted({*cuts, *high})
                x, weight = panels(ends, [100 * fine / len(ends) + fine] * len(ends))
                log_first, over = gain(x)
            kept = over > 0
            each = log_first[kept] + np.log(weight[kept] * -np.expm1(-over[kept]))
            logs.append(math.log(share) + logsumexp(each) if kept.any() else -np.inf)
        return float(logsumexp(logs))


def log_of_1_plus(z: Any) -> Any:
    """log(1 + z), with digits where z is small."""
    x, y = z.real, z.imag
    with np.errstate(divide="ignore"):
        size = np.log(np.hypot(1.0 + x, y))
    near = size > -1.0
    size[near] = 0.5 * np.log1p((2 * x + x * x + y * y)[near])
    return np.maximum(size, -1e4) + 1j * np.arctan2(y, 1.0 + x)


def end_weights(fraction: float) -> Any:
    """What Gregory's rule adds to a sum over 0, 1, ... for the integral from -fraction on."""
    count = len(GREGORY)
    k = np.arange(count)
    from_end = np.linalg.solve(
        np.vander(k.astype(float), increasing=True).T, -((-fraction) ** (k + 1.0)) / (k + 1.0)
    )
    differences = np.stack([np.diff(np.eye(count), j, axis=0)[0] for j in range(count)])
    return from_end - GREGORY @ differences


def deposited(place: Any, mass: Any, size: int) -> Any:
    """Masses at real places on the points 0, 1, ... of a circle; moments below ORDER are kept."""
    first = np.floor(place).astype(np.int64)
    u, grid = place - first, np.zeros(size)
    offsets = range(1 - ORDER // 2, 1 + ORDER // 2)
    for j in offsets:
        weight = mass.copy()
        for i in offsets:
            if i != j:
                weight *= (u - i) / (j - i)
        grid += np.bincount((first + j) % size, weight, size)
    return grid
