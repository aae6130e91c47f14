"""Writes `reference/engine_proved.json`: proved brackets of delta for rows of `engine.json`.

    python tests/contract/prove_engine.py COMMIT SECONDS MOST

The rows of a kind come in a random order, of each kind one, then of each kind the next, SECONDS of
CPU a statement, until MOST are spent. A row is kept where the bracket is proved to be narrower than
WIDTH; COMMIT is the one of the program, `jaxdp.proof`, which shares no arithmetic with the
accountant.
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


def proved(row, seconds):
    """The row with a bracket of delta at its middle epsilon; None without a narrow one."""
    epsilon = row["epsilon"][1]
    text = KINDS[row["kind"]](**row["parameters"]).to_json()
    proof = verify(text, epsilon, 1.0, seconds=seconds)
    low, high = float(proof.lower), float(proof.upper)
    if low == 0 or high - low > WIDTH * high:
        return None
    kept = {name: row[name] for name in ("kind", "parameters")}
    return kept | {"epsilon": epsilon, "delta": [proof.lower, proof.upper]}


def main(commit, seconds, most):
    rows = json.loads((FOLDER / "engine.json").read_text())
    random.Random(SEED).shuffle(rows)
    turns = collections.Counter()
    queue = []
    for row in rows:
        turns[row["kind"]] += 1
        queue.append((turns[row["kind"]], row))
    start, found, refused = time.process_time(), [], set()
    for _, row in sorted(queue, key=lambda x: x[0]):
        if time.process_time() - start > most:
            break
        if row["kind"] in refused:
            continue
        try:
            found.append(proved(row, seconds))
        except ValueError as error:  # the program covers no such kind
            refused.add(row["kind"])
            print(row["kind"], error)
    head = f"jaxdp.proof {version('jaxdp-privacy')}, commit {commit}"
    head += f", python-flint {version('python-flint')}"
    narrow = sorted(filter(None, found), key=lambda row: row["kind"])
    lines = ",\n".join(map(json.dumps, narrow))
    text = f'{{"proof": {json.dumps(head)}, "rows": [\n{lines}\n]}}\n'
    (FOLDER / "engine_proved.json").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1], *map(float, sys.argv[2:]))
