"""python -m benchmarks.conformance.truth writes settings.json: each setting with two brackets.

jaxdp gives one, `second` the other, which shares no code with it. The stored bracket is their
intersection, and `independent` says whether both decided and agree. A setting stays where one of
them does not decide. Arguments "i n" do the settings i, i + n, ... into a part; "join" joins parts.
"""

import json
import math
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.conformance.adapters import jaxdp_loss
from benchmarks.conformance.second import Second, UndecidedError
from benchmarks.conformance.settings import SEED, settings

PLACE = Path(__file__).with_name("settings.json")
Bracket = list[float] | None


def of_jaxdp(loss: Any, delta: float) -> Bracket:
    """[lower, upper] of epsilon from its upper bound and the error of log delta."""
    upper = float(loss.epsilon(delta))
    if not 0 < upper < math.inf:
        return [upper, upper]
    for width in 10.0 ** np.arange(-12.0, 0.1, 0.5):
        lower = max(upper * (1.0 - width), 0.0)
        if lower and float(loss.log_delta(lower) - loss.log_delta_error(lower)) > math.log(delta):
            return [lower, upper]
    return [0.0, upper]


def delta_of_jaxdp(loss: Any, epsilon: float) -> Bracket:
    upper = float(loss.log_delta(epsilon))
    return [math.exp(upper - float(loss.log_delta_error(epsilon))), math.exp(upper)]


def joined(one: Bracket, two: Bracket) -> tuple[Bracket, bool]:
    """The intersection, and whether the brackets agree; jaxdp's where they do not."""
    if one is None or two is None:
        return one or two, False
    low, high = max(one[0], two[0]), min(one[1], two[1])
    return ([low, high], True) if low <= high else (one, False)


def with_brackets(setting: dict[str, Any]) -> dict[str, Any]:
    loss, brackets = jaxdp_loss(setting), {}
    mine = of_jaxdp(loss, setting["delta"])
    second = Second(setting)
    try:
        theirs = [float(x) for x in second.epsilon_bracket(setting["delta"])]
    except UndecidedError:
        theirs = None
    bracket, agree = joined(mine, theirs)
    assert bracket is not None
    brackets["epsilon_at_delta"] = {
        "bracket": bracket,
        "independent": agree,
        "jaxdp": mine,
        "second": theirs,
    }
    # Another epsilon, with three digits: where delta is larger.
    share = 0.5 + 0.45 * (sum(map(ord, setting["id"])) % 97) / 97
    epsilon = float(f"{bracket[1] * share:.3g}") if 0 < bracket[1] < math.inf else 1.0
    mine = delta_of_jaxdp(loss, epsilon)
    try:
        theirs = [float(x) for x in second.delta_bracket(epsilon)]
    except UndecidedError:
        theirs = None
    bracket, agree = joined(mine, theirs)
    brackets["delta_at_epsilon"] = {
        "bracket": bracket,
        "independent": agree,
        "jaxdp": mine,
        "second": theirs,
    }
    return setting | {"epsilon": epsilon} | brackets


def main(part: int, parts: int) -> None:
    jax.config.update("jax_enable_x64", True)
    with Path(f"{PLACE}.{part}").open("w") as file:
        for setting in settings()[part::parts]:
            file.write(json.dumps(with_brackets(setting)) + "\n")
            file.flush()


def join() -> None:
    parts = sorted(PLACE.parent.glob("settings.json.*"))
    rows = sorted((row for part in parts for row in part.read_text().splitlines()), key=order)
    about = "epsilon at delta, delta at epsilon: `bracket` contains the truth; see truth.py"
    head = json.dumps({"about": about, "seed": SEED})[:-1]
    PLACE.write_text(head + ', "settings": [\n' + ",\n".join(rows) + "\n]}\n")


def order(row: str) -> tuple[int, str]:
    setting = json.loads(row)
    return [s["id"] for s in settings()].index(setting["id"]), row


if __name__ == "__main__":
    join() if sys.argv[1:] == ["join"] else main(*map(int, sys.argv[1:] or (0, 1)))
