"""Campaign of bad, extreme and good calls over the public names: `make fuzz`.

What must hold: only `ValueError` and `TypeError` are raised, whose message names an argument or its
shape; what is traced and bad is no small number; finite good input gives no NaN; the deltas of a
Gaussian and a Laplace are not below the truth; no call takes 30 s. `JAXDP_FUZZ_CALLS` is the number
of calls, `JAXDP_FUZZ_SEED` the seed. Arguments are not checked by beartype here.
"""

import math
import os
import random
import re
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
from fuzz_table import ROWS, Row
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import jaxdp as dp

LONGEST = 30.0  # seconds
PROOFS = 300  # statements that the second program proves
LAPLACE = 1 / 6  # probability of a Laplace statement. chosen: one of six kinds
MOST_LAPLACES = 200  # of its releases. measured: 200 take .1 s, 600 take seconds
# An epsilon above all finite losses. derived: they are at most 4 count / size, 1,300
ABOVE_ALL = 1e4
# Mappings of a process beyond which compilations are dropped: see conftest. chosen: 3 GB
MANY_MAPPINGS = 12_000
LARGEST = {"delta": 1.0, "log_delta": 0.0}


def log_uniform(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high).map(lambda x: 10.0**x)


extreme = st.one_of(log_uniform(-6, 6), log_uniform(-290, 290))
moderate = log_uniform(-2, 2)
GOOD: dict[str, st.SearchStrategy[Any]] = {
    "scale": extreme,
    "near": log_uniform(-7, 7),
    "wide": log_uniform(-70, 70),
    "shift": st.one_of(extreme, st.just(0.0)),
    "moderate": moderate,
    "real": st.one_of(
        st.floats(-50.0, 50.0), st.tuples(extreme, st.sampled_from([-1.0, 1.0])).map(math.prod)
    ),
    "share": st.one_of(st.floats(0.001, 0.999), log_uniform(-280, -1)),
    "small": log_uniform(-12, -2),
    "power": st.floats(1.0, 20.0),
    "order": st.one_of(st.floats(1.0, 64.0), log_uniform(0, 10)),
    "count": st.integers(1, 1000).map(float),
    "categories": st.integers(2, 50).map(float),
    "size": st.integers(1, 50),
    "vector": st.lists(moderate, min_size=2, max_size=2),
    "inside": st.floats(0.1, 0.9),
    "chance": log_uniform(-12, -1),
    "lower": st.just(0.01),
    "upper": st.just(100.0),
}
OPTIONAL = ("chance", "lower", "upper")  # kinds of arguments that may be None
# Legal for some arguments.
ODD = (
    math.nan, math.inf, -math.inf, -1.0, 0.0, -0.0, 5e-324, 1e-310, 2.2e-308, 1e308, -1e-300, 0.5,
    10**400, True, np.float32(math.nan), np.float16(1.0), np.float32(1e-40), np.int64(-3),
    np.uint8(200), jnp.float32(2.0), jnp.bfloat16(1.5), (), [], [[1.0], [2.0]], [1.0, math.nan],
    np.zeros((0, 2)), np.ones((2, 1, 3)), [[1.0], [1.0, 2.0]], np.longdouble("1e-400"),
    np.longdouble("1e4000"),
)  # fmt: skip
# Legal for none.
BAD = (
    math.nan, "text", None, 1j, object(), {}, np.array(["a"]), [1.0, "a"], [None], b"1",
    np.array([1 + 1j]), np.datetime64("2020-01-01"), float, lambda: 1.0,
)  # fmt: skip
# Forms of one call's good numbers. Each is compiled for.
FORMS = {
    "float": lambda x: x,
    "float32": np.float32,
    "vector": lambda x: np.array([x, x]),
    "empty": lambda x: np.zeros(0),
    "device": jnp.asarray,
}
_BROADCAST = re.compile(r"shape|broadcast|dimension", re.IGNORECASE)


@st.composite
def arguments(draw: st.DrawFn, row: Row) -> tuple[str, list[Any]]:
    """What kind of a call it is, and its arguments."""
    values = [draw(GOOD[kind]) for _, kind in row.arguments]
    how = "bad" if row.is_dear else draw(st.sampled_from(["good", "odd", "bad", "traced"]))
    if how == "traced" and not row.traced:
        how = "good"
    if how == "good" and row.has_shapes:
        form = draw(st.sampled_from([*FORMS, "float", "float"]))
        kept = ("count", "categories", "size")
        if form != "float32" or all(
            kind not in kept and _fits(x)
            for (_, kind), x in zip(row.arguments, values, strict=True)
        ):
            values = [FORMS[form](x) for x in values]
    elif how == "traced":
        index = draw(st.integers(0, len(values) - 1))
        values[index] = draw(st.sampled_from([math.nan, math.nan, -1.0, -math.inf]))
    elif how != "good" and values:
        index = draw(st.integers(0, len(values) - 1))
        is_optional = row.arguments[index][1] in OPTIONAL
        bad = [x for x in BAD if x is not None or not is_optional]
        values[index] = draw(st.sampled_from(bad if how == "bad" else ODD))
    return how, values


def _fits(value: Any) -> bool:
    return isinstance(value, float) and (value == 0 or 1e-30 < abs(value) < 1e30)


class Campaign:
    """Calls made, and the failures by what failed."""

    def __init__(self) -> None:
        self.calls = 0
        self.slowest = (0.0, "")
        self.failures: dict[tuple[str, str], str] = {}
        self.count: Counter[tuple[str, str]] = Counter()
        self.compiled: dict[str, Any] = {}

    def fail(self, row: Row, what: str, values: list[Any], told: object) -> None:
        key = row.name, what
        self.count[key] += 1
        self.failures.setdefault(key, f"{values!r:.200} -> {str(told)!r:.300}")

    def call(self, row: Row, how: str, values: list[Any]) -> None:
        """One call, and what must hold of it."""
        self.calls += 1
        begun = time.monotonic()
        try:
            answer = jax.block_until_ready(self.made(row, how)(*values))
        except (ValueError, TypeError) as error:
            self.check_refusal(row, how, values, error)
        except Exception as error:
            self.fail(row, f"raises {type(error).__name__}", values, error)
        else:
            self.check_answer(row, how, values, answer)
        taken = time.monotonic() - begun
        self.slowest = max(self.slowest, (taken, row.name))
        if taken > LONGEST:
            self.fail(row, "slow", values, taken)

    def made(self, row: Row, how: str) -> Any:
        if how != "traced":
            return row.call
        return self.compiled.setdefault(row.name, jax.jit(row.call))

    def check_refusal(self, row: Row, how: str, values: list[Any], error: Exception) -> None:
        text = str(error)
        named = any(re.search(rf"\b{name}\b", text) for name, _ in row.arguments)
        if how in ("good", "traced"):
            self.fail(row, f"refuses a {how} call", values, error)
        elif not named and not _BROADCAST.search(text):
            self.fail(row, f"{type(error).__name__} names no argument", values, error)

    def check_answer(self, row: Row, how: str, values: list[Any], answer: Any) -> None:
        numbers = [np.asarray(leaf) for leaf in jax.tree.leaves(answer) if is_real(leaf)]
        # An atom of another kind has no number.
        has_nan = any(np.isnan(x).any() for x in numbers)
        if how == "good" and has_nan and not row.name.endswith("structure"):
            self.fail(row, "NaN", values, answer)
        if how == "bad" and values:
            self.fail(row, "takes what is bad", values, answer)
        # Of a delta all that is sure is no small number either.
        largest = LARGEST.get(row.name.rpartition(".")[2], np.inf)
        if how == "traced" and is_bad(row, values) and all((x < largest).all() for x in numbers):
            self.fail(row, "traced and bad, and small", values, answer)
        if how == "good" and row.name in TRUTH and all(isinstance(x, float) for x in values):
            truth = TRUTH[row.name](*values)
            if truth is not None and float(answer) < truth:
                self.fail(row, "below the truth", values, (answer, truth))


def is_bad(row: Row, values: list[Any]) -> bool:
    """True if a number is NaN, or negative where it may not be."""
    pairs = zip(row.arguments, values, strict=True)
    return any(math.isnan(value) or (kind != "real" and value < 0) for (_, kind), value in pairs)


def is_real(leaf: Any) -> bool:
    return np.asarray(leaf).dtype.kind == "f"


def _gaussian(scale: float, shift: float, epsilon: float) -> Any:
    ratio = shift / scale
    if not 1e-6 < ratio < 1e3 or abs(epsilon / ratio) > 1e3:
        return None  # mpmath's erfc leaves its range
    m = oracle.mp.mpf(shift) / oracle.mp.mpf(scale)
    return oracle.gaussian_log_delta(m, epsilon)


TRUTH = {
    "Gaussian.log_delta": _gaussian,
    "Laplace.log_delta": lambda s, m, e: (
        oracle.laplace_log_delta(s, m, e) if 1e-9 < m / s < 1e9 and abs(e) < 1e9 else None
    ),
}


def statement(draw: random.Random) -> tuple[str, dp.PrivacyLoss]:
    """A composition of 1 to 1e4 releases, whose epsilon is of the order of 1."""
    laplace = draw.random() < LAPLACE
    count = round(10 ** draw.uniform(0, math.log10(MOST_LAPLACES) if laplace else 4))
    size = math.sqrt(count) * 10 ** draw.uniform(-0.5, 1)
    shift = draw.randint(1, 4)
    if laplace:
        loss = count * dp.privacy_loss(dp.Mechanism(dp.Laplace(size), 1.0))
        return f"{count} x Laplace at {size}", loss
    kind, release = draw.choice(
        [
            ("pure", lambda: dp.PureDP(1 / size)),
            ("approximate", lambda: dp.ApproxDP(1 / size, 10 ** draw.uniform(-20, -10))),
            ("responses", lambda: dp.RandomisedResponse(1 / size, draw.randint(2, 9))),
            ("discrete Laplace", lambda: dp.Mechanism(dp.DiscreteLaplace(size), shift)),
            ("staircase", lambda: dp.Mechanism(dp.Staircase(1 / size, 1.0, draw.random()), 1.5)),
        ]
    )
    return f"{count} x {kind} at {size}, {shift}", count * dp.privacy_loss(release())


def refuted(count: int, number: int) -> list[str]:
    """The statements of `count` that the second program does not prove.

    Where no epsilon has so small a delta, it must refute one above all finite losses.
    """
    draw, found = random.Random(number), []
    for _ in range(count):
        name, loss = statement(draw)
        delta = 10 ** draw.uniform(-20, -2)
        epsilon = float(loss.epsilon(delta))
        proof = dp.verify(loss, min(epsilon, ABOVE_ALL), delta)
        if proof.proved is not (epsilon < math.inf):
            found.append(f"{name}: epsilon {epsilon!r} at delta {delta!r}")
    return found


def make_calls(campaign: Campaign, row: Row, calls: int, number: int) -> None:
    """So many calls of one row, or fewer where there are no more."""

    @seed(number)
    @settings(
        max_examples=calls,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(arguments(row))
    def run(drawn: tuple[str, list[Any]]) -> None:
        campaign.call(row, *drawn)

    run()


def main(calls: int, number: int, names: str) -> int:
    """Make so many calls of the rows that `names` matches; 1 if some failed."""
    rows = [row for row in ROWS if re.search(names, row.name)]
    random.Random(number).shuffle(rows)
    campaign, begun = Campaign(), time.monotonic()
    for row in rows:
        make_calls(campaign, row, max(1, round(calls / len(rows))), number)
        mappings = Path("/proc/self/maps")
        if mappings.exists() and mappings.read_bytes().count(b"\n") > MANY_MAPPINGS:
            campaign.compiled.clear()
            jax.clear_caches()
        if campaign.calls >= calls:
            break
    seconds = time.monotonic() - begun
    slowest, name = campaign.slowest
    print(f"{campaign.calls} calls in {seconds:.0f} s; the slowest took {slowest:.1f} s, {name}")
    for key, told in sorted(campaign.failures.items()):
        print(f"{key[0]}: {key[1]}, {campaign.count[key]} times: {told}")
    unproved = refuted(PROOFS, number)
    print(f"{PROOFS - len(unproved)} of {PROOFS} random statements are proved")
    print(*unproved, sep="\n")
    return 1 if campaign.failures or unproved else 0


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    dp.enable_cache()
    told = {"CALLS": "1e6", "SEED": "0", "NAMES": ""}
    told = {name: os.environ.get(f"JAXDP_FUZZ_{name}", value) for name, value in told.items()}
    sys.exit(main(int(float(told["CALLS"])), int(told["SEED"]), told["NAMES"]))
