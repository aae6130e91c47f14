"""ResNet-20 on CIFAR-10 under DP-SGD, for an accelerator: global, per-layer and i.n.i.d. clipping.

    python -m benchmarks.train_resnet --data FOLDER [--epochs 100] [--epsilon 8]
    python -m benchmarks.train_resnet --synthetic --steps 20

FOLDER holds the binary version of CIFAR-10 (data_batch_1.bin to data_batch_5.bin and
test_batch.bin: a label and 3,072 bytes of pixels an image). With --synthetic the images are noise
of the same shape: the seconds a step mean something then, the accuracy does not, and the result
says so. Batch normalisation mixes examples, so that no example has a gradient of its own: group
normalisation takes its place. The plan is that of `jaxdp.dpsgd`.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxdp as dp
from benchmarks._tools.measure import write
from jaxdp._core.random_key import secure_key

WIDTHS = (16, 32, 64)
BLOCKS = 3
METHODS = {
    "global": ("all", "iid"),
    "per layer, spr": ("layer", "spr"),
    "per layer, inid": ("layer", "inid"),
}
IMAGE_BYTES = 3073


def layer(key: jax.Array, inputs: int, outputs: int, width: int = 3) -> dict[str, jax.Array]:
    """A convolution and its group normalisation, He's initialisation."""
    deviation = (2.0 / (inputs * width**2)) ** 0.5
    shape = (width, width, inputs, outputs)
    return {
        "kernel": deviation * jax.random.normal(key, shape, dtype=jnp.float32),
        "scale": jnp.ones(outputs, dtype=jnp.float32),
        "shift": jnp.zeros(outputs, dtype=jnp.float32),
    }


def network(key: jax.Array) -> dict[str, Any]:
    """0.27 million parameters: 19 convolutions of 3 x 3 in groups of two, and a linear layer."""
    keys = iter(jax.random.split(key, 2 + 2 * BLOCKS * len(WIDTHS)))
    params: dict[str, Any] = {"stem": layer(next(keys), 3, WIDTHS[0])}
    inputs = WIDTHS[0]
    for stage, width in enumerate(WIDTHS):
        for block in range(BLOCKS):
            params[f"stage{stage}_block{block}_a"] = layer(next(keys), inputs, width)
            params[f"stage{stage}_block{block}_b"] = layer(next(keys), width, width)
            inputs = width
    kernel = 0.1 * jax.random.normal(next(keys), (inputs, 10), dtype=jnp.float32)
    params["linear"] = {"kernel": kernel, "bias": jnp.zeros(10, dtype=jnp.float32)}
    return params


def convolved(image: jax.Array, held: dict[str, jax.Array], stride: int = 1) -> jax.Array:
    """One image (h, w, c): convolution, then normalisation in 8 groups of channels."""
    out = jax.lax.conv_general_dilated(
        image[None],
        held["kernel"],
        (stride, stride),
        "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )[0]
    height, width, channels = out.shape
    grouped = out.reshape(height, width, 8, channels // 8)
    mean = grouped.mean(axis=(0, 1, 3), keepdims=True)
    variance = grouped.var(axis=(0, 1, 3), keepdims=True)
    out = ((grouped - mean) * jax.lax.rsqrt(variance + 1e-5)).reshape(out.shape)
    return out * held["scale"] + held["shift"]


def logits(params: dict[str, Any], image: jax.Array) -> jax.Array:
    """Of one image in [-1, 1]. Shortcuts are subsampled and padded with zeros (option A)."""
    out = jax.nn.relu(convolved(image, params["stem"]))
    for stage, width in enumerate(WIDTHS):
        for block in range(BLOCKS):
            stride = 2 if stage and not block else 1
            inner = convolved(out, params[f"stage{stage}_block{block}_a"], stride)
            inner = convolved(jax.nn.relu(inner), params[f"stage{stage}_block{block}_b"])
            short = out[::stride, ::stride]
            short = jnp.pad(short, ((0, 0), (0, 0), (0, width - short.shape[-1])))
            out = jax.nn.relu(inner + short)
    return out.mean(axis=(0, 1)) @ params["linear"]["kernel"] + params["linear"]["bias"]


def loss(params: dict[str, Any], example: tuple[jax.Array, jax.Array]) -> jax.Array:
    image, label = example
    return -jax.nn.log_softmax(logits(params, scaled(image)))[label]


def scaled(image: jax.Array) -> jax.Array:
    return image.astype(jnp.float32) / 127.5 - 1.0


def read(files: list[Path]) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 32, 32, 3) and labels of the binary version."""
    raw = np.concatenate([np.fromfile(file, dtype=np.uint8) for file in files])
    if raw.size == 0 or raw.size % IMAGE_BYTES:
        raise ValueError(f"{files[0].parent} does not hold the binary version of CIFAR-10")
    rows = raw.reshape(-1, IMAGE_BYTES)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0].astype(np.int64)


def synthetic(records: int) -> tuple[np.ndarray, np.ndarray]:
    """Shapes without content."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (records, 32, 32, 3)).astype(np.uint8)
    return images, rng.integers(0, 10, records)


def accuracy(params: dict[str, Any], images: jax.Array, labels: jax.Array) -> float:
    predict = jax.jit(
        lambda part: jnp.argmax(jax.vmap(lambda x: logits(params, scaled(x)))(part), axis=1)
    )
    found = [predict(images[i : i + 1000]) for i in range(0, len(labels), 1000)]
    return float(jnp.mean(jnp.concatenate(found) == labels))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--records", type=int, default=50_000, help="synthetic images")
    parser.add_argument("--epochs", type=float, default=100.0)
    parser.add_argument("--steps", type=int, help="instead of --epochs")
    parser.add_argument("--batch", type=int, default=1024, help="expected size of a sample")
    parser.add_argument("--part", type=int, default=512, help="gradients held at once")
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--rate", type=float, default=1.0)
    options = parser.parse_args()
    if bool(options.data) == options.synthetic:
        parser.error("give either --data FOLDER or --synthetic")
    jax.config.update("jax_enable_x64", True)
    if options.synthetic:
        train, test = synthetic(options.records), synthetic(1000)
    else:
        train = read([options.data / f"data_batch_{i}.bin" for i in range(1, 6)])
        test = read([options.data / "test_batch.bin"])
    data, held = (tuple(map(jnp.asarray, part)) for part in (train, test))
    records = len(train[1])
    sampling_prob = min(options.batch / records, 1.0)
    steps = options.steps or round(options.epochs / sampling_prob)
    start = network(secure_key())
    rows = []
    for name, (groups, allocation) in METHODS.items():
        plan = dp.dpsgd.plan(
            dp.Budget(options.epsilon, options.delta),
            start,
            clip=options.clip,
            sampling_prob=sampling_prob,
            steps=steps,
            dataset_size=records,
            groups=groups,
            allocation=allocation,
        )
        began = time.perf_counter()
        optimizer = optax.sgd(options.rate, momentum=0.9)
        params = dp.dpsgd.train(loss, start, data, plan, optimizer, part=options.part)
        jax.block_until_ready(params)
        row: dict[str, Any] = {
            "method": name,
            "groups": len(plan.sizes),
            "parameters": sum(plan.sizes),
            "noise_multiplier": float(plan.noise_multiplier),
            "total_variance": float(np.sum(np.array(plan.sizes) * plan.scales**2)),
            "seconds_a_step_compilation_included": (time.perf_counter() - began) / steps,
        }
        if not options.synthetic:
            row["test_accuracy"] = accuracy(params, *held)
        rows.append(row)
        print(row, flush=True)
    settings = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()}
    settings |= {"steps": steps, "sampling_prob": sampling_prob}
    name = "resnet_synthetic" if options.synthetic else "resnet"
    warning = "synthetic images: times only, nothing is learnt" if options.synthetic else None
    write(name, {"settings": settings, "warning": warning, "methods": rows})


if __name__ == "__main__":
    main()
