"""Writes `reference/engine_proved.json`: proved brackets of delta for rows of `engine.json`.

    python tests/contract/prove_engine.py COMMIT SECONDS MOST

Rows come in a random order, one kind after the other, SECONDS of CPU a statement, until MOST are
spent. A row is kept where the bracket is proved to be narrower than WIDTH; COMMIT is the one of the
program, `jaxdp.proof`, which shares no arithmetic with the accountant.
"""

import collections
import json
import random
import sys
import time
from importlib.metadata import version
from pathlib import Path

from compositions import KINDS

from jaxdp.proof.decision import verify

FOLDER = Path(__file__).parents[1] / "truth" / "reference"
SEED = 65
# (upper - lower) / upper. chosen: less than most of the errors that the accountant states
WIDTH = 1e-10


def in_turn(rows):
    """The rows in a random order, of each kind one, then of each kind the next."""
    mixed, queues = random.Random(SEED), collections.defaultdict(list)
    for row in mixed.sample(rows, len(rows)):
        queues[row["kind"]].append(row)
    return [
        queue[turn] for turn in range(len(rows)) for queue in queues.values() if turn < len(queue)
    ]


def proved(row, seconds):
    """The row's bracket at its middle epsilon, or why there is none."""
    epsilon = row["epsilon"][1]
    try:
        text = KINDS[row["kind"]](**row["parameters"]).to_json()
        proof = verify(text, epsilon, 1.0, seconds=seconds)
    except ValueError:
        return "not covered"
    low, high = float(proof.lower), float(proof.upper)
    if low == 0 or high - low > WIDTH * high:
        return "wide"
    kept = {name: row[name] for name in ("kind", "parameters")}
    return kept | {"epsilon": epsilon, "delta": [proof.lower, proof.upper]}


def main(commit, seconds, most):
    found, start, left = [], time.process_time(), collections.Counter()
    for row in in_turn(json.loads((FOLDER / "engine.json").read_text())):
        if time.process_time() - start > most:
            break
        # A kind that is not covered once is not covered again.
        if left[row["kind"], "not covered"]:
            continue
        one = proved(row, seconds)
        if isinstance(one, str):
            left[row["kind"], one] += 1
        else:
            found.append(one)
    for (kind, why), count in sorted(left.items()):
        print(kind, why, count)
    head = f"jaxdp.proof {version('jaxdp-privacy')}, commit {commit}"
    head += f", python-flint {version('python-flint')}"
    lines = ",\n".join(map(json.dumps, sorted(found, key=lambda row: row["kind"])))
    text = f'{{"proof": {json.dumps(head)}, "rows": [\n{lines}\n]}}\n'
    (FOLDER / "engine_proved.json").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
