"""CPU time and memory of a step of a transformer block: `dp.dpsgd.train`, or written by hand.

python -m benchmarks._tools.transformer_block train prints milliseconds a step and the growth of the
process in MB; `by_hand` those of a step of `vmap(grad)` in float32 with floating-point noise. The
block has 879,872 parameters, two thirds of them in an embedding that is also the last layer. 64 of
4,000 records of 33 words are expected in a batch.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import jaxdp as dp

WORDS, WIDTH, LENGTH, HEADS = 5300, 128, 32, 4
RECORDS, BATCH, STEPS, REPEATS = 4000, 64, 6, 5
# Examples of a step by hand, of which the batch is the first part. chosen: two deviations more
PADDED = 80


def problem() -> tuple[Any, np.ndarray]:
    """Parameters and records."""
    rng = np.random.default_rng(0)
    shapes = {
        "table": (WORDS, WIDTH),
        "place": (LENGTH, WIDTH),
        "heads": (WIDTH, 3 * WIDTH),
        "out": (WIDTH, WIDTH),
        "up": (WIDTH, 4 * WIDTH),
        "down": (4 * WIDTH, WIDTH),
    }
    params = {
        name: jnp.asarray(rng.normal(size=shape) / min(shape) ** 0.5, jnp.float32)
        for name, shape in shapes.items()
    }
    scales = {"first": jnp.ones(WIDTH, jnp.float32), "second": jnp.ones(WIDTH, jnp.float32)}
    params |= scales | {"bias": jnp.zeros(4 * WIDTH, jnp.float32)}
    return params, rng.integers(0, WORDS, (RECORDS, LENGTH + 1))


def normed(x: jax.Array, scale: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale


def loss(params: Any, words: jax.Array) -> jax.Array:
    """Mean cross-entropy of the next word."""
    x = params["table"][words[:-1]] + params["place"]
    heads = (normed(x, params["first"]) @ params["heads"]).reshape(LENGTH, 3, HEADS, -1)
    attended = jax.nn.dot_product_attention(*(heads[:, i] for i in range(3)), is_causal=True)
    x = x + attended.reshape(LENGTH, WIDTH) @ params["out"]
    hidden = jax.nn.gelu(normed(x, params["second"]) @ params["up"] + params["bias"])
    scores = (x + hidden @ params["down"]) @ params["table"].T
    return optax.softmax_cross_entropy_with_integer_labels(scores, words[1:]).mean()


def train() -> Callable[[], Any]:
    """A training of `STEPS` steps."""
    params, data = problem()
    known = {"groups": "all", "dataset_size": RECORDS, "batch_size": BATCH, "steps": STEPS}
    plan = dp.dpsgd.plan((2.0, 1e-5), params, clip=1.0, **known)
    key = jax.random.key(0)
    return lambda: dp.dpsgd.train(loss, params, data, plan, optax.sgd(0.1), key, progress=False)


@jax.jit
def step(params: Any, examples: Any, mask: jax.Array, key: jax.Array) -> Any:
    """A step as one writes it: a gradient an example, its norm, the clipped sum, noise."""
    gradients = jax.vmap(jax.grad(loss), (None, 0))(params, examples)
    squares = sum(jnp.sum(g**2, tuple(range(1, g.ndim))) for g in jax.tree.leaves(gradients))
    weights = jnp.where(mask, jnp.minimum(1.0, 1.0 / jnp.sqrt(squares)), 0.0)
    sums, tree = jax.tree.flatten(jax.tree.map(lambda g: jnp.tensordot(weights, g, 1), gradients))
    keys = jax.random.split(key, len(sums))
    noisy = [s + jax.random.normal(k, s.shape, s.dtype) for k, s in zip(keys, sums, strict=True)]
    return jax.tree.map(lambda p, s: p - 0.1 / BATCH * s, params, tree.unflatten(noisy))


def by_hand() -> Callable[[], Any]:
    """The same steps by hand."""
    first, data = problem()
    rng = np.random.default_rng(0)

    def run() -> Any:
        params = first
        for index in range(STEPS):
            drawn = np.flatnonzero(rng.random(RECORDS) < BATCH / RECORDS)[:PADDED]
            rows = np.pad(drawn, (0, PADDED - drawn.size))
            mask = np.arange(PADDED) < drawn.size
            params = step(params, data[rows], mask, jax.random.key(index))
        return params

    return run


def megabytes() -> float:
    """Peak memory of this process; that of `getrusage` begins at the peak of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main(name: str) -> None:
    """Measure and print."""
    run = {"train": train, "by_hand": by_hand}[name]()
    before, seconds = megabytes(), []
    for _ in range(1 + REPEATS):
        start = time.process_time()
        jax.block_until_ready(run())
        seconds.append(time.process_time() - start)
    found = {
        "first_cpu_s": round(seconds[0], 1),
        "cpu_milliseconds": round(1e3 * statistics.median(seconds[1:]) / STEPS),
        "megabytes": round(megabytes() - before),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
