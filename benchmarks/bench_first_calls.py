"""First answers: programs compiled and CPU seconds of one question in a fresh process.

python -m benchmarks.bench_first_calls writes results/first_calls.json. Each question runs in a
process of its own (median of REPEATS), without any cache; `import jax, numpy` is measured apart.
Programs are counted by JAX's monitoring events. dp_accounting answers the first question in the
same run. Questions under `known` must compile nothing.
"""

import json
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks._tools.measure import write

REPEATS = 1
POISSON = "sampling_prob=.01, steps=1000"
SIZES = "dataset_size=60_000, batch_size=600"
KNOWN = {
    "DP-SGD epsilon, Poisson": f"dp.dpsgd.epsilon(1.0, 1e-6, {POISSON})",
    "DP-SGD delta": f"dp.dpsgd.delta(1.0, 1.0, {POISSON})",
    "DP-SGD noise multiplier": f"dp.dpsgd.noise_multiplier(epsilon=1.0, delta=1e-6, {POISSON})",
    "tpr_at_fpr of DP-SGD": "dp.risk.tpr_at_fpr(1000 * dp.privacy_loss(dp.Mechanism("
    "dp.Gaussian(1.0), 1.0, sampling_prob=.01, relation='add_remove')), .01)",
    "truncated": f"dp.dpsgd.epsilon(1.0, 1e-6, {SIZES}, steps=1000, sampling='truncated',"
    " batch_size_limit=650)",
    "without replacement": f"dp.dpsgd.epsilon(1.0, 1e-6, {SIZES}, steps=1000,"
    " sampling='without_replacement')",
    "groups of 2": f"dp.dpsgd.epsilon(1.0, 1e-6, {POISSON}, group_size=2)",
    "replace_one": f"dp.dpsgd.epsilon(1.0, 1e-6, {POISSON}, relation='replace_one')",
    "random allocation, 100 steps, 5 epochs": f"dp.dpsgd.epsilon(1.0, 1e-6, {SIZES}, epochs=5,"
    " sampling='random_allocation')",
    "Laplace, 1,000 releases": "(1000 * dp.privacy_loss(dp.Mechanism(dp.Laplace(200.0), 1.0)))"
    ".epsilon(1e-6)",
    "sampled Laplace": "(100 * dp.privacy_loss(dp.Mechanism(dp.Laplace(2.0), 1.0,"
    " sampling_prob=.01, relation='add_remove'))).epsilon(1e-6)",
    "three kinds": "(100 * dp.privacy_loss(dp.Mechanism(dp.Laplace(20.0), 1.0)) +"
    " dp.privacy_loss(dp.Mechanism(dp.Gaussian(4.0), 1.0)) + dp.PureDP(.1)).epsilon(1e-6)",
    "sampled flipped Huber": "(100 * dp.privacy_loss(dp.Mechanism(dp.FlippedHuber(2.0, 1.0), 1.0,"
    " sampling_prob=.01, relation='add_remove'))).epsilon(1e-6)",
    "discrete Gaussian, 100 releases": "(100 * dp.privacy_loss(dp.Mechanism("
    "dp.DiscreteGaussian(20.0), 1.0))).delta(1.0)",
    "one Gaussian, delta": "dp.Mechanism(dp.Gaussian(2.0), 1.0).delta(1.0)",
    "one Gaussian, epsilon": "dp.Mechanism(dp.Gaussian(2.0), 1.0).epsilon(1e-6)",
    "calibrate a Gaussian": "dp.calibrate(lambda s: dp.Mechanism(dp.Gaussian(s), 1.0),"
    " dp.Budget(1.0, 1e-6))",
    "compare": "dp.compare(dp.Budget(1.0, 1e-6), 1.0)",
    "1,024 random trainings": "dp.dpsgd.epsilon(rng.uniform(.7, 4, 1024), 1e-6,"
    " sampling_prob=10 ** rng.uniform(-3, -1, 1024), steps=10 ** rng.uniform(2, 4, 1024) // 1)",
    "128 noise multipliers": "dp.dpsgd.noise_multiplier(epsilon=rng.uniform(.5, 8, 128),"
    " delta=1e-6, sampling_prob=10 ** rng.uniform(-3, -1, 128), steps=1000)",
    "a grid of 4,000 trainings": "dp.dpsgd.epsilon(np.linspace(.6, 10, 20)[:, None, None], 1e-6,"
    " sampling_prob=np.logspace(-4, -.7, 20)[:, None], steps=np.round(np.logspace(1, 5, 10)))",
}
COMPILED = {
    "own noise, sampled": "(1000 * dp.privacy_loss(dp.Mechanism(Logistic(np.array(2.0)), 1.0,"
    " sampling_prob=.01, relation='add_remove'))).epsilon(1e-5)",
    "eager grad of an epsilon": f"jax.grad(lambda s: dp.dpsgd.epsilon(s, 1e-6, {POISSON}))(1.0)",
    "eager vmap of 16 epsilons": f"jax.vmap(lambda s: dp.dpsgd.epsilon(s, 1e-6, {POISSON}))("
    "np.linspace(.8, 2, 16))",
}
MULTIPLIER = f"lambda e: dp.dpsgd.noise_multiplier(e, 1e-6, {POISSON})"
JITTED = {
    "epsilon": f"lambda s: dp.dpsgd.epsilon(s, 1e-6, {POISSON})",
    "epsilon and gradient": f"jax.value_and_grad(lambda s: dp.dpsgd.epsilon(s, 1e-6, {POISSON}))",
    "noise multiplier": MULTIPLIER,
    "noise multiplier and gradient": f"jax.value_and_grad({MULTIPLIER})",
    "fit of 4 Laplaces": "lambda e: dp.fit_noise('laplace', (e, 1e-6), 1.0, 4)",
    "fit of 4 flipped Hubers": "lambda e: dp.fit_noise('flipped_huber', (e, 1e-6), 1.0, 4)",
    "allocation on the integers": "lambda e: dp.allocate('discrete_gaussian', [1., 4.], (e, 1e-6))",
}
OWN_NOISE = """
import jax.numpy as jnp
@dp.own.pytree
class Logistic(dp.own.NumericalNoise):
    scale: object
    def _log_density(self, x):
        y = jnp.abs(x) / self.scale
        return -y - 2.0 * jnp.log1p(jnp.exp(-y)) - jnp.log(self.scale)
    def _log_survival(self, x):
        return -jnp.logaddexp(0.0, x / self.scale)
    def kinks(self):
        return ()
"""
SCRIPT = """
import json, time
start = time.process_time()
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
count = [0]
def heard(event, duration, **_):
    count[0] += event == "/jax/core/compile/backend_compile_duration"
jax.monitoring.register_event_duration_secs_listener(heard)
imported = time.process_time()
import jaxdp as dp
{extra}
rng = np.random.default_rng(0)
def ask():
    before, begun = count[0], time.process_time()
    jax.block_until_ready({question})
    return count[0] - before, time.process_time() - begun
first_programs, _ = ask()
first = time.process_time() - imported
again_programs, again = ask()
print(json.dumps(dict(programs=first_programs, cpu_s=first, again_programs=again_programs,
    again_cpu_s=again, import_jax_cpu_s=imported - start)))
"""
COMPILING = """
import json, time
import jax
jax.config.update("jax_enable_x64", True)
import jaxdp as dp
jax.jit(lambda x: 2 * x)(1.0)
begun = time.process_time()
program = jax.jit({question}).lower(1.0).compile()
compiled = time.process_time()
jax.block_until_ready(program(1.0))
first = time.process_time()
jax.block_until_ready(program(1.0))
again = time.process_time()
print(json.dumps(dict(compile_cpu_s=compiled - begun, first_run_cpu_s=first - compiled,
    run_cpu_s=again - first)))
"""
PEER = """
import json, time
start = time.process_time()
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant
imported = time.process_time()
accountant = pld_privacy_accountant.PLDAccountant()
event = dp_event.PoissonSampledDpEvent(.01, dp_event.GaussianDpEvent(1.0))
accountant.compose(dp_event.SelfComposedDpEvent(event, 1000))
value = accountant.get_epsilon(1e-6)
print(json.dumps(dict(epsilon=value, cpu_s=time.process_time() - imported,
    import_cpu_s=imported - start)))
"""


def in_fresh_process(script: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def asked(question: str, extra: str = "") -> dict[str, Any]:
    """Medians of a few processes."""
    script = SCRIPT.format(question=question, extra=extra)
    runs = [in_fresh_process(script) for _ in range(REPEATS)]
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def command_line() -> float:
    """CPU seconds of `jaxdp epsilon` as a whole, without its cache."""
    import resource

    command = [sys.executable, "-m", "jaxdp", "epsilon", "--noise-multiplier", "1.0"]
    command += ["--delta", "1e-6", "--sampling-prob", ".01", "--steps", "1000"]
    seconds = []
    for _ in range(REPEATS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, check=True, env=ENVIRONMENT)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(seconds)


def main() -> None:
    known = {name: asked(question) for name, question in KNOWN.items()}
    for name, row in known.items():
        assert row["programs"] == row["again_programs"] == 0, (name, row)
    peers = [in_fresh_process(PEER) for _ in range(REPEATS)]
    write(
        "first_calls",
        {
            "known": known,
            "compiled": {name: asked(text, OWN_NOISE) for name, text in COMPILED.items()},
            "jitted": {
                name: in_fresh_process(COMPILING.format(question=text))
                for name, text in JITTED.items()
            },
            "command_line_cpu_s": command_line(),
            "dp_accounting": {
                name: statistics.median(run[name] for run in peers) for name in peers[0]
            },
            "seconds_of_this_benchmark": time.process_time(),
        },
    )


if __name__ == "__main__":
    import os
    import tempfile

    ENVIRONMENT = {**os.environ, "XDG_CACHE_HOME": tempfile.mkdtemp()}
    main()
