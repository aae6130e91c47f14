"""Programs for an H100 and for a TPU that are not there: `pytest -m platform`, with their wheels.

`libtpu`, or `jax-cuda12-plugin`, `jax-cuda12-pjrt` and `nvidia-cuda-nvcc-cu12`, of JAX's version. A
program that aborts a compiler ends its process: every case has one of its own.
"""

import importlib.util
import sys
from pathlib import Path

import pytest
import references
from processes import process

CODE = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding
import jaxdp as dp
from jaxdp import dpsgd
from jaxdp.solvers import coordinate_descent

platform, case, reference = sys.argv[1:]
if platform == "tpu":
    devices = topologies.get_topology_desc("v5e:2x2", "tpu").devices
else:
    config = open(reference + "/h100.txtpb").read()
    topology = topologies.get_topology_desc("h100", "cuda", target_config=config, topology="1x1x1")
    devices = topology.devices
# The draws from a lattice need the bits of float64 that a TPU lacks.
release = "float" if platform == "tpu" else "lattice"
place = SingleDeviceSharding(devices[0])

def shaped(shape, dtype=jnp.float64):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

lanes, key = shaped((8,)), shaped((2,), jnp.uint32)
noises = {
    "gaussian": dp.Gaussian,
    "laplace": dp.Laplace,
    "flipped_huber": lambda s: dp.FlippedHuber(s, s),
    "subbotin": lambda s: dp.Subbotin(s, 1.5 + 0 * s),
    "offset_gaussian": lambda s: dp.OffsetGaussian(s, s),
    "staircase": lambda s: dp.Staircase(s, s, 0.5 + 0 * s),
    "truncated_laplace": lambda s: dp.TruncatedLaplace(s, 5 * s),
    "discrete_laplace": dp.DiscreteLaplace,
}

def step(weights, bias, key):
    params = {"w": jnp.zeros((4, 2)), "b": jnp.zeros(2)}
    clipping, noising = dpsgd.clip_groups(plan), dpsgd.add_noise(plan, key)
    total, _ = clipping.update({"w": weights, "b": bias}, clipping.init(params))
    return noising.update(total, noising.init(params))[0]

if case.startswith("sample."):
    function = lambda s, key: noises[case.split(".")[1]](s).sample(key, (8,))
    shapes = lanes, key
elif case == "dpsgd":
    like = {"w": jnp.zeros((4, 2)), "b": jnp.zeros(2)}
    plan = dpsgd.plan(
        (1.0, 1e-5), like, clip=1.0, sampling_prob=0.1, steps=10, dataset_size=100, release=release
    )
    shapes = shaped((8, 4, 2), jnp.float32), shaped((8, 2), jnp.float32), key
    function = step
elif case == "coordinate_descent":
    penalty = dp.solvers.L1(0.5)
    problem = dp.solvers.glm(np.ones((64, 2)), np.ones(64), loss="squared", penalty=penalty)
    plan = coordinate_descent.plan(
        (1.0, 1e-5), smoothness=[1.0, 4.0], clip=1.0, records=64, passes=2,
        relation="replace_one", order="cyclic", release=release,
    )
    function, shapes = lambda key: coordinate_descent.run(problem, plan, key), (key,)
elif case == "dpsgd_epsilons":
    def function(s, q, steps, delta):
        mechanism = dp.Mechanism(dp.Gaussian(s), 1.0, q, "add_remove")
        return (steps * dp.privacy_loss(mechanism)).epsilon(delta)
    shapes = (shaped((1024,)),) * 4
elif case == "log_delta":
    function = lambda s, epsilon: dp.Gaussian(s).log_delta(1.0, epsilon)
    shapes = lanes, lanes
else:
    function = lambda s: (3 * dp.privacy_loss(dp.Mechanism(dp.Laplace(s), 1.0))).log_delta(1.0)
    shapes = (lanes,)
try:
    program = jax.jit(function).trace(*shapes).lower().compile().as_text()
    if case == "dpsgd_epsilons":
        launched = sum("fusion(" in line or "custom-call(" in line for line in program.splitlines())
        print(launched, "c128[" in program, "all-gather" in program)
    else:
        print("compiles")
except ValueError as error:
    assert "privacy cannot be computed on a TPU" in str(error), error
    print("refused")
"""
NOISES = (
    *("gaussian", "laplace", "flipped_huber", "subbotin", "offset_gaussian"),
    *("staircase", "truncated_laplace", "discrete_laplace"),
)
# Not of the discrete Gaussian: its draws were still being compiled after 60 CPU seconds.
TRAINS = ("dpsgd", "coordinate_descent", *(f"sample.{noise}" for noise in NOISES))
ANSWERS = ("log_delta", "composition")


def verdict(platform: str, case: str) -> str:
    wheel = {"tpu": "libtpu", "cuda": "jax_cuda12_plugin"}[platform]
    if importlib.util.find_spec(wheel) is None:
        pytest.skip(f"{wheel} is not installed")
    tools = Path(sys.prefix).glob("lib/python*/site-packages/nvidia/cuda_nvcc")
    flags = "".join(f"--xla_gpu_cuda_data_dir={path}" for path in tools)
    environment = {
        "PYTHONPATH": ":".join(sys.path),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": flags if platform == "cuda" else "",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-4",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_WORKER_ID": "0",
    }
    done = process("-c", CODE, platform, case, references.FOLDER, **environment)
    return done.stdout.strip() or done.stderr


@pytest.mark.platform
@pytest.mark.parametrize(
    ("platform", "case", "expected"),
    [
        *(("tpu", case, "compiles") for case in TRAINS),
        *(("tpu", case, "refused") for case in ANSWERS),
        *(("cuda", case, "compiles") for case in (*ANSWERS, *TRAINS[:2], "sample.gaussian")),
    ],
)
def test_what_trains_compiles_and_no_answer_does_for_a_tpu(platform, case, expected):
    assert verdict(platform, case) == expected


@pytest.mark.platform
def test_a_batch_of_epsilons_is_few_kernels_for_an_h100():
    """Real ones, whatever the lanes: lanes lie side by side. Measured: 241."""
    launched, has_complex, has_collectives = verdict("cuda", "dpsgd_epsilons").split()
    assert int(launched) <= 400
    assert has_complex == has_collectives == "False"
