"""The settings: sizes that are well known, and random ones over the ranges that users have.

A setting is {id, family, relation, releases, delta}. Sensitivities are 1. A release is {noise, its
parameters, count} and, where records are sampled, `sampling` with its parameters.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

SEED = 56
Setting = dict[str, Any]
# Sizes of data sets: records, delta, then (batch, noise multiplier, epochs) that people use.
WELL_KNOWN = {
    "mnist": (60_000, 1e-5, ((256, 1.1, 15), (64, 0.7, 20), (1024, 1.3, 40), (600, 4.0, 100))),
    "cifar10": (50_000, 1e-5, ((512, 1, 30), (1024, 1.5, 100), (4096, 4, 200), (2000, 2.5, 50))),
    "imagenet": (
        1_281_167,
        8e-7,
        ((1024, 0.6, 10), (16_384, 2.5, 90), (32_768, 1.8, 20), (4096, 0.8, 50)),
    ),
    "adult": (32_561, 1e-5, ((256, 0.8, 10), (128, 2.0, 60), (32, 1.0, 5))),
    "imdb": (25_000, 1e-5, ((512, 0.56, 20), (64, 1.1, 10), (256, 0.8, 5))),
    "sst2 fine-tuning": (67_349, 1e-6, ((1000, 0.65, 3), (2048, 0.8, 10), (500, 0.5, 3))),
    "e2e fine-tuning": (42_061, 8e-6, ((1024, 0.6, 10), (512, 0.7, 5), (2048, 1.0, 20))),
    "language model, 1e8": (10**8, 1e-10, ((500_000, 0.6, 20),)),
    "language model, 1e9": (10**9, 1e-11, ((500_000, 0.6, 1),)),
    "language model, 1e6": (10**6, 1e-7, ((1024, 0.6, 3),)),
    "language model, 1e7": (10**7, 1e-9, ((4096, 0.5, 1),)),
}


def settings() -> list[Setting]:
    """All settings, the same in every call."""
    rng, found = np.random.default_rng(SEED), []
    for make, count in FAMILIES.items():
        family = make.__name__
        for i, made in enumerate(make(rng, count)):
            found.append({"id": f"{family}-{i:03d}", "family": family, **made})
    return found


def digits(x: float) -> float:
    return float(f"{x:.4g}")


def among(rng: Any, low: float, high: float) -> float:
    """Log-uniform, four digits."""
    return digits(math.exp(rng.uniform(math.log(low), math.log(high))))


def setting(releases: list[dict[str, Any]], delta: float, relation: str = "add_remove") -> Setting:
    return {"relation": relation, "releases": releases, "delta": delta}


def gaussian(scale: float, count: float, **sampling: Any) -> dict[str, Any]:
    return {"noise": "gaussian", "scale": scale, "count": int(count), **sampling}


def poisson(scale: float, probability: float, count: float, **more: Any) -> dict[str, Any]:
    return gaussian(scale, count, sampling="poisson", probability=probability, **more)


def training(rng: Any, largest: float = 6.0) -> tuple[float, float, int]:
    """(Noise multiplier, sampling probability, steps) whose central limit is .05- to 6-GDP."""
    while True:
        s, q, n = among(rng, 0.5, 10), among(rng, 1e-4, 0.2), int(among(rng, 10, 1e5))
        if 0.05 < q * math.sqrt(n * math.expm1(s**-2)) < largest:
            return s, q, n


def well_known(rng: Any, count: int) -> Iterator[Setting]:
    del rng, count
    for name, (n, delta, rows) in WELL_KNOWN.items():
        for batch, s, epochs in rows:
            yield {"name": name} | setting([poisson(s, batch / n, epochs * n // batch)], delta)


def dpsgd(rng: Any, count: int, low: float = 1e-9, high: float = 1e-4) -> Iterator[Setting]:
    for _ in range(count):
        yield setting([poisson(*training(rng))], among(rng, low, high))


def language_model(rng: Any, count: int) -> Iterator[Setting]:
    for _ in range(count):
        q, hits = among(rng, 3e-7, 5e-4), among(rng, 0.03, 30)
        yield setting(
            [poisson(digits(rng.uniform(0.4, 1.6)), q, max(hits / q, 1))], among(rng, 1e-12, 1e-6)
        )


def tiny_delta(rng: Any, count: int) -> Iterator[Setting]:
    return dpsgd(rng, count, 1e-30, 1e-12)


def large_delta(rng: Any, count: int) -> Iterator[Setting]:
    return dpsgd(rng, count, 1e-3, 0.1)


def sized(rng: Any) -> tuple[float, int, int, int]:
    """(Noise multiplier, batch, records, steps)."""
    s, q, n = training(rng, 3.0)
    records = int(among(rng, max(1e3, 16 / q), max(1e5, 64 / q)))
    return s, max(int(q * records), 8), records, min(n, 20_000)


def truncated(rng: Any, count: int) -> Iterator[Setting]:
    for _ in range(count):
        s, batch, records, n = sized(rng)
        limit = math.ceil(batch + rng.uniform(3, 8) * math.sqrt(batch))
        scheme = {"sampling": "truncated", "records": records, "probability": batch / records}
        yield setting([gaussian(s, n, limit=limit, **scheme)], among(rng, 1e-9, 1e-4))


def without_replacement(rng: Any, count: int) -> Iterator[Setting]:
    for _ in range(count):
        s, batch, records, n = sized(rng)
        scheme = {"sampling": "without_replacement", "records": records, "batch": batch}
        yield setting([gaussian(max(s, 1.0), n, **scheme)], among(rng, 1e-9, 1e-4))


def groups(rng: Any, count: int) -> Iterator[Setting]:
    for _ in range(count):
        s, q, n = training(rng, 1.5)
        yield setting(
            [poisson(s, q, n, group_size=int(rng.integers(2, 9)))], among(rng, 1e-8, 1e-4)
        )


def replace_one(rng: Any, count: int) -> Iterator[Setting]:
    for _ in range(count):
        yield setting([poisson(*training(rng, 3.0))], among(rng, 1e-9, 1e-4), "replace_one")


def random_allocation(rng: Any, count: int) -> Iterator[Setting]:
    for i in range(count):
        steps, epochs = int(among(rng, 10, 1000)), int(rng.integers(1, 30))
        scheme = {"sampling": "random_allocation", "steps": steps}
        yield setting(
            [gaussian(digits(rng.uniform(0.8, 4)), epochs, **scheme)], (1e-5, 1e-6, 1e-8)[i % 3]
        )


def balls_in_bins(rng: Any, count: int) -> Iterator[Setting]:
    for i in range(count):
        bins = {
            "sampling": "balls_in_bins",
            "steps": int(among(rng, 10, 1000)),
            "epochs": int(rng.integers(1, 16)),
        }
        yield setting([gaussian(digits(rng.uniform(1.0, 4)), 1, **bins)], (1e-5, 1e-6, 1e-8)[i % 3])


def phases(rng: Any, count: int) -> Iterator[Setting]:
    for _ in range(count):
        parts = [poisson(*training(rng, 3.0)) for _ in range(rng.integers(2, 5))]
        yield setting(parts, among(rng, 1e-9, 1e-4))


def gaussians(rng: Any, count: int) -> Iterator[Setting]:
    for _ in range(count):
        parts = [
            gaussian(among(rng, 2, 50), rng.integers(1, 30)) for _ in range(rng.integers(1, 6))
        ]
        yield setting(parts, among(rng, 1e-12, 1e-2))


def noise(rng: Any, kind: str, size: float, delta: float) -> dict[str, Any]:
    """A noise whose loss is about 1 / size."""
    s = digits(size)
    if kind == "truncated_laplace":
        return {"noise": kind, "scale": s, "bound": digits(s * (1.5 * -math.log(delta) + 3.0))}
    if kind == "flipped_huber":
        return {"noise": kind, "alpha": digits(s * rng.uniform(0.2, 2)), "gamma": s}
    if kind == "offset_gaussian":
        return {"noise": kind, "offset": digits(s * rng.uniform(0.1, 2)), "scale": s}
    if kind == "subbotin":
        return {"noise": kind, "scale": s, "power": digits(rng.uniform(1.2, 4))}
    if kind == "staircase":
        return {
            "noise": kind,
            "epsilon": digits(1 / size),
            "sensitivity": 1.0,
            "split": digits(rng.uniform(0.2, 0.6)),
        }
    return {"noise": kind, "scale": s}


REPEATED = (
    *("laplace", "truncated_laplace", "flipped_huber", "offset_gaussian", "subbotin"),
    *("discrete_laplace", "discrete_gaussian"),
)


def repeated(rng: Any, count: int) -> Iterator[Setting]:
    for i in range(count):
        n, delta = int(among(rng, 3, 1000)), among(rng, 1e-9, 1e-3)
        one = noise(rng, REPEATED[i % 7], math.sqrt(n) * rng.uniform(0.7, 6), delta / n)
        yield setting([{**one, "count": n}], delta)


def sampled_noises(rng: Any, count: int) -> Iterator[Setting]:
    for i in range(count):
        _, q, n = training(rng, 2.0)
        one = noise(
            rng,
            ("laplace", "flipped_huber", "discrete_gaussian", "offset_gaussian")[i % 4],
            rng.uniform(1, 5),
            1e-6,
        )
        yield setting(
            [{**one, "count": min(n, 5000), "sampling": "poisson", "probability": q}],
            among(rng, 1e-8, 1e-4),
        )


def mixed(rng: Any, count: int) -> Iterator[Setting]:
    for i in range(count):
        parts = [
            poisson(*training(rng, 2.0)),
            {
                **noise(rng, REPEATED[i % 7], rng.uniform(8, 30), 1e-9),
                "count": int(rng.integers(1, 10)),
            },
        ]
        yield setting(
            [*parts, gaussian(among(rng, 3, 30), rng.integers(1, 5))], among(rng, 1e-8, 1e-3)
        )


def single(rng: Any, count: int) -> Iterator[Setting]:
    kinds = ("gaussian", *REPEATED, "staircase", "poisson")
    for i in range(count):
        delta = among(rng, 1e-9, 1e-2)
        one = {**noise(rng, kinds[i % 10], among(rng, 0.5, 8), delta), "count": 1}
        yield setting(
            [
                poisson(among(rng, 0.6, 4), among(rng, 0.01, 0.3), 1)
                if kinds[i % 10] == "poisson"
                else one
            ],
            delta,
        )


FAMILIES = {
    well_known: 28,
    dpsgd: 100,
    language_model: 56,
    tiny_delta: 20,
    large_delta: 16,
    truncated: 20,
    without_replacement: 20,
    groups: 12,
    replace_one: 12,
    random_allocation: 12,
    balls_in_bins: 8,
    phases: 24,
    gaussians: 12,
    repeated: 28,
    sampled_noises: 12,
    mixed: 14,
    single: 30,
}
