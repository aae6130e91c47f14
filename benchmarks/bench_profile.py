"""How fast is log delta of the Gaussian, at what error, next to SciPy and dp_accounting?

The grid is that of the peers' comparison: scale in [0.3, 30] x epsilon in [0.01, 10].
"""

import jax
import jax.numpy as jnp
import mpmath as mp
import numpy as np
from dp_accounting.pld.privacy_loss_mechanism import GaussianPrivacyLoss
from scipy import special

import jaxdp as dp
from benchmarks._tools.measure import compiled_cost, first_call, medians, write

SHAPES = {10_000: (100, 100), 100_000: (250, 400), 1_000_000: (1000, 1000)}
LOOP_POINTS = 300
CALIBRATIONS = 100_000


def grid(size: int) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = SHAPES[size]
    scale = np.logspace(np.log10(0.3), np.log10(30), rows)[:, None]
    return scale, np.logspace(-2, 1, columns)[None, :]


def scipy_log_delta(scale: np.ndarray, epsilon: np.ndarray) -> np.ndarray:
    """log Phi differences in log space: the usual vectorised form."""
    upper = special.log_ndtr(0.5 / scale - epsilon * scale)
    lower = epsilon + special.log_ndtr(-0.5 / scale - epsilon * scale)
    return upper + np.log1p(-np.exp(np.minimum(lower - upper, 0.0)))


def truth(scale: float, epsilon: float) -> mp.mpf:
    """log delta at 100 digits."""
    with mp.workdps(100):
        s, e = mp.mpf(scale), mp.mpf(epsilon)
        a = e * s - 1 / (2 * s)
        upper = mp.erfc(a / mp.sqrt(2)) / 2
        return mp.log(upper - mp.exp(e) * mp.erfc((a + 1 / s) / mp.sqrt(2)) / 2)


def accuracy() -> dict[str, dict[str, float]]:
    """Worst relative errors of log delta and of delta over the grid's box, and at large scales."""
    rng = np.random.default_rng(0)
    boxes = {"grid": (0.3, 30.0, 0.01, 10.0), "large_scales": (30.0, 1e6, 1e-6, 0.5)}
    result = {}
    for name, (s_low, s_high, e_low, e_high) in boxes.items():
        scale = np.exp(rng.uniform(np.log(s_low), np.log(s_high), 400))
        epsilon = np.exp(rng.uniform(np.log(e_low), np.log(e_high), 400))
        if name == "large_scales":
            epsilon = np.minimum(epsilon, 30.0 / scale)
        exact = [truth(float(s), float(e)) for s, e in zip(scale, epsilon, strict=True)]
        ours = np.asarray(dp.Gaussian(scale).log_delta(1.0, epsilon))
        theirs = scipy_log_delta(scale, epsilon)
        for label, values in (("jaxdp", ours), ("scipy_log_ndtr", theirs)):
            errors = [mp.mpf(float(v)) - t for v, t in zip(values, exact, strict=True)]
            result[f"{label}_{name}"] = {
                "log_delta_relative": float(
                    max(abs(e / t) for e, t in zip(errors, exact, strict=True))
                ),
                "delta_relative": float(max(abs(mp.expm1(e)) for e in errors)),
                "times_below_truth": sum(e < 0 for e in errors),
            }
        own = result[f"jaxdp_{name}"]
        assert own["log_delta_relative"] < 1e-12, own
        assert own["times_below_truth"] == 0, own
    return result


def throughput() -> list[dict[str, float]]:
    rows = []
    for size in SHAPES:
        scale, epsilon = grid(size)
        noise, device_epsilon = dp.Gaussian(scale), jnp.asarray(epsilon)

        def ours(noise=noise, epsilon=device_epsilon):
            return noise.log_delta(1.0, epsilon)

        compile_seconds = first_call(ours)
        seconds = medians(
            {"jaxdp": ours, "scipy": lambda s=scale, e=epsilon: scipy_log_delta(s, e)},
            repeats=15 if size == 1_000_000 else 40,
        )
        cost = compiled_cost(
            lambda s, e: dp.Gaussian(s).log_delta(1.0, e), noise.scale, device_epsilon
        )
        rows.append(
            {
                "points": size,
                "jaxdp_seconds": seconds["jaxdp"],
                "scipy_seconds": seconds["scipy"],
                "jaxdp_points_per_second": size / seconds["jaxdp"],
                "scipy_points_per_second": size / seconds["scipy"],
                "ratio_to_scipy": seconds["scipy"] / seconds["jaxdp"],
                "first_call_seconds": compile_seconds,
                "arrays_of_its_size_held": cost["bytes_held"] / (8 * size),
                "flops_per_second": cost["flops"] / seconds["jaxdp"],
                "bytes_per_second": cost["bytes_accessed"] / seconds["jaxdp"],
            }
        )
    return rows


def full_arrays() -> dict[str, float]:
    """A million points whose scale and epsilon are arrays of their own: what is held."""
    points = jnp.linspace(0.3, 30.0, 1_000_000)
    cost = compiled_cost(lambda s, e: dp.Gaussian(s).log_delta(1.0, e), points, points)
    held = cost["bytes_held"] / points.nbytes
    assert held <= 3.01, held
    return {"arrays_of_its_size_held": held}


def dp_accounting_loop(ours_per_point: float) -> dict[str, float]:
    """The peer takes one point a call: time a sample of them."""
    rng = np.random.default_rng(1)
    scale = np.exp(rng.uniform(np.log(0.3), np.log(30), LOOP_POINTS))
    epsilon = np.exp(rng.uniform(np.log(0.01), np.log(10), LOOP_POINTS))

    def loop():
        return [
            GaussianPrivacyLoss(float(s)).get_delta_for_epsilon(float(e))
            for s, e in zip(scale, epsilon, strict=True)
        ]

    exact = [
        float(str(mp.exp(truth(float(s), float(e)))))
        for s, e in zip(scale[:50], epsilon[:50], strict=True)
    ]
    np.testing.assert_allclose(np.asarray(loop()[:50], dtype=float), exact, rtol=1e-6, atol=1e-14)
    per_point = medians({"loop": loop}, repeats=5)["loop"] / LOOP_POINTS
    return {"seconds_per_point": per_point, "ratio_of_throughput": per_point / ours_per_point}


def calibration() -> dict[str, float]:
    """A hundred thousand scales; each checked against its target at 60 digits on a sample."""
    rng = np.random.default_rng(2)
    epsilon = jnp.asarray(np.exp(rng.uniform(np.log(0.01), np.log(10), CALIBRATIONS)))
    delta = jnp.asarray(10 ** rng.uniform(-12, -2, CALIBRATIONS))

    @jax.jit
    def scales(epsilon, delta):
        def build(scale):
            return dp.Mechanism(dp.Gaussian(scale), 1.0)

        return dp.calibrate(build, dp.Budget(epsilon, delta), lower=1e-3, upper=1e6)

    compile_seconds = first_call(lambda: scales(epsilon, delta))
    found = np.asarray(scales(epsilon, delta))
    unsafe = int(np.sum(np.asarray(dp.Gaussian(found).delta(1.0, epsilon)) > np.asarray(delta)))
    excess = [
        float(truth(float(found[i]), float(epsilon[i])) - mp.log(mp.mpf(float(delta[i]))))
        for i in range(0, CALIBRATIONS, 500)
    ]
    assert unsafe == 0
    assert max(excess) <= 0
    seconds = medians({"calibrate": lambda: scales(epsilon, delta)}, repeats=9)["calibrate"]
    return {
        "scales": CALIBRATIONS,
        "seconds": seconds,
        "first_call_seconds": compile_seconds,
        "unsafe": unsafe,
        "greatest_log_delta_minus_target": max(excess),
        "least_log_delta_minus_target": min(excess),
    }


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    results = {"accuracy": accuracy(), "full_arrays": full_arrays(), "throughput": throughput()}
    per_point = 1 / results["throughput"][-1]["jaxdp_points_per_second"]
    results["dp_accounting"] = dp_accounting_loop(per_point)
    results["calibration"] = calibration()
    write("profile", results)


if __name__ == "__main__":
    main()
