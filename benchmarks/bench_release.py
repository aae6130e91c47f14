"""Costs of releases and audits of them: nanoseconds a draw, and lower bounds against claims.

python -m benchmarks.bench_release writes results/release.json; `solvers` behind it measures what
solvers pay for the lattice alone, and leaves the rest of the file as it is.
"""

import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxdp as dp
from jaxdp.solvers import L1, coordinate_descent, glm

jax.config.update("jax_enable_x64", True)

DRAWS = 1_000_000
RESULTS = Path(__file__).parent / "results" / "release.json"
NOISES = {
    "gaussian": dp.Gaussian(1.0),
    "laplace": dp.Laplace(1.0),
    "discrete_gaussian": dp.DiscreteGaussian(50.0),
    "discrete_laplace": dp.DiscreteLaplace(50.0),
}


def nanoseconds(call, *arguments):
    """The best of five runs, after one that compiles."""
    jax.block_until_ready(call(*arguments))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        jax.block_until_ready(call(*arguments))
        times.append(time.perf_counter() - start)
    return round(min(times) / DRAWS * 1e9, 1)


def bits():
    """Gigabits a second of both generators, by the width of a word."""
    rates = {}
    for name, key in (("chacha20", dp.secure_key()), ("threefry", jax.random.key(0))):
        for kind in (jnp.uint32, jnp.uint64):
            draw = jax.jit(lambda k, kind=kind: jax.random.bits(k, (4 * DRAWS,), dtype=kind))
            width = jnp.dtype(kind).itemsize * 8
            rates[f"{name}_{width}"] = round(4 * width / nanoseconds(draw, key), 2)
    return rates


def solvers():
    """Milliseconds of a run of 400 updates, nanoseconds a parameter of a step: the least of many.

    Both kinds take turns, so that whatever else the machine does slows them alike.
    """
    rng = np.random.default_rng(0)
    features = rng.uniform(-1, 1, size=(20_640, 8))
    targets = features.sum(axis=1) + rng.normal(size=20_640)
    problem = glm(features, targets, loss="squared", penalty=L1(0.1), dtype=jnp.float32)
    params = jnp.zeros((1000, 500), jnp.float32)
    calls = {"coordinate_descent_ms": {}, "dpsgd_ns_a_parameter": {}}
    for release in ("float", "lattice"):
        plan = coordinate_descent.plan(
            (1.0, 1e-9),
            smoothness=np.ones(8),
            clip=3.0,
            records=20_640,
            passes=50,
            relation="replace_one",
            order="cyclic",
            release=release,
        )
        run = lambda p=plan: coordinate_descent.run(problem, p, jax.random.key(1))  # noqa: E731
        calls["coordinate_descent_ms"][release] = 1e3, 150, run
        plan = dp.dpsgd.plan(
            (1.0, 1e-5),
            params,
            clip=1.0,
            sampling_prob=0.1,
            steps=10,
            dataset_size=1000,
            release=release,
        )
        noising = dp.dpsgd.add_noise(plan, jax.random.key(0))
        step = jax.jit(lambda state, n=noising: n.update(params, state)[0])
        state = noising.init(params)
        call = lambda s=step, state=state: s(state)  # noqa: E731
        calls["dpsgd_ns_a_parameter"][release] = 1e9 / params.size, 20, call
    return {name: least_in_turns(kinds) for name, kinds in calls.items()}


def least_in_turns(kinds):
    """The least of each, in its unit."""
    times = {name: [] for name in kinds}
    for _ in range(next(iter(kinds.values()))[1]):
        for name, (_, _, call) in kinds.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            times[name].append(time.perf_counter() - start)
    return {name: round(kinds[name][0] * min(each), 2) for name, each in times.items()}


def main():
    """Measure and write."""
    if sys.argv[1:] == ["solvers"]:
        written = json.loads(RESULTS.read_text()) | {"solvers": solvers()}
        RESULTS.write_text(json.dumps(written, indent=1) + "\n")
        return
    report = {"gigabits_a_second": bits(), "nanoseconds_a_draw": {}, "audits": {}}
    for name, noise in NOISES.items():
        whole = noise.on_integers
        mechanism = dp.Mechanism(noise, 1.0)
        value = np.zeros(DRAWS, dtype=int if whole else float)
        key = dp.secure_key()
        # A scalar discrete Gaussian covers no vector: its sampler is timed itself.
        if name == "discrete_gaussian":
            release = lambda noise=noise, key=key: noise.sample(key, (DRAWS,))  # noqa: E731
        else:
            release = lambda m=mechanism, v=value, key=key: m.release(v, key).value  # noqa: E731
        sample = lambda noise=noise: noise.sample(jax.random.key(0), (DRAWS,))  # noqa: E731
        times = {"release_chacha20": nanoseconds(release), "sample_threefry": nanoseconds(sample)}
        report["nanoseconds_a_draw"][name] = times
    for name, noise in NOISES.items():
        pair = (0, 50) if noise.on_integers else (0.0, 1.0)
        mechanism = dp.Mechanism(noise, float(pair[1]))
        delta = 1e-2 if "gaussian" in name else 0.0
        found = dp.audit.run(mechanism, pair, 100_000, delta=delta, progress=False)
        assert not found.is_refuted, (name, found)
        report["audits"][name] = {
            "lower": round(found.epsilon_lower, 3),
            "claimed": round(found.claimed, 3),
        }
    report["solvers"] = solvers()
    RESULTS.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
