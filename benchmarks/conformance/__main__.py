"""python -m benchmarks.conformance [--every N] [NAME ...] asks accountants.

Results of all accountants stay in results/conformance.json. Those other than jaxdp are asked in the
interpreter of $JAXDP_PEER_PYTHON, if it is set. With --every 4, each fourth setting is asked.
--proved SECONDS MOST asks none: it adds verdicts by proof to the stored results, SECONDS of CPU a
statement, and of random settings until MOST are spent; see proved.py.
"""

import json
import math
import os
import select
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks._tools.measure import RESULTS, environment, write
from benchmarks.conformance import proved
from benchmarks.conformance.adapters import ADAPTERS

PLACE = Path(__file__).with_name("settings.json")
PEER = os.environ.get("JAXDP_PEER_PYTHON", sys.executable)
# Seconds without a line after which a worker is ended: native code does not hear a signal.
HANGS = 60
QUESTIONS = {"epsilon": "epsilon_at_delta", "delta": "delta_at_epsilon"}


def judged(rows: list[dict[str, Any]], question: str, truths: dict[str, Any]) -> dict[str, Any]:
    """How many answers there are, how many lie below the truth, what the others waste."""
    asked = {row["id"]: row[question] for row in rows}
    answers = {i: a["answer"] for i, a in asked.items() if "answer" in a}
    brackets = {i: truths[i][QUESTIONS[question]]["bracket"] for i in answers}
    finite = {i: x for i, x in answers.items() if math.isfinite(x)}
    below = {i: 1.0 - x / brackets[i][0] for i, x in finite.items() if 0 <= x < brackets[i][0]}
    above = [
        x / brackets[i][1] - 1.0 for i, x in finite.items() if i not in below and brackets[i][1]
    ]
    refused = [a["refused"] for a in asked.values() if "refused" in a]
    times = sorted(asked[i]["ms"] for i in answers)
    found: dict[str, Any] = {
        "asked": len(rows),
        "answered": len(finite),
        "infinite_or_nan": len(answers) - len(finite),
        "unsupported": refused.count("UnsupportedError"),
        "timed_out": refused.count("TimeoutError"),
        "failed": len(refused) - refused.count("UnsupportedError") - refused.count("TimeoutError"),
        "failures": sorted({r for r in refused if r not in ("UnsupportedError", "TimeoutError")})[
            :4
        ],
        "below": len(below),
        "below_by_more_than_1e-6": sum(by > 1e-6 for by in below.values()),
        "worst_below": sorted(((by, i) for i, by in below.items()), reverse=True)[:5],
    }
    if above:
        excess = [max(x, 0.0) for x in above]
        found |= {"excess_median": statistics.median(excess), "excess_worst": max(excess)}
    if times:
        found |= {"ms_median": statistics.median(times), "ms_90": times[int(0.9 * len(times))]}
    return found


def answers_of(name: str, settings: list[dict[str, Any]]) -> list[dict[str, Any]] | str:
    """The worker's lines, or why there are none; it is started again after a call that hangs."""
    python, rows = sys.executable if name == "jaxdp" else PEER, []
    head: dict[str, Any] = {}
    path = str(Path(tempfile.mkdtemp()) / "settings.json")
    Path(path).write_text(json.dumps({"settings": settings}))
    while len(rows) < len(settings):
        command = [python, "-W", "ignore", "-m", "benchmarks.conformance.worker", name, path]
        worker = subprocess.Popen(
            [*command, str(len(rows))], stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )
        assert worker.stdout is not None
        while select.select([worker.stdout], [], [], HANGS)[0] and (
            line := worker.stdout.readline()
        ):
            row = json.loads(line)
            head = head or row
            rows += [row] if "id" in row else []
        worker.kill()
        error = worker.communicate()[1].decode().strip().splitlines()
        if not head:
            return error[-1] if error else "no answer"
        if len(rows) < len(settings):
            late = {"refused": "TimeoutError", "ms": 1e3 * HANGS}
            rows.append({"id": settings[len(rows)]["id"], "epsilon": late, "delta": late})
    return [head, *rows]


def report(name: str, rows: list[dict[str, Any]] | str, truths: dict[str, Any]) -> dict[str, Any]:
    if isinstance(rows, str):
        return {"not_asked": rows}
    head, *rows = rows
    first = head["import_ms"] + rows[0]["epsilon"]["ms"]
    both = {question: judged(rows, question, truths) for question in QUESTIONS}
    return {"version": version(name), "first_answer_ms": first, **both}


def version(name: str) -> str:
    """As the interpreter that was asked has it."""
    python = sys.executable if name == "jaxdp" else PEER
    code = f"from importlib.metadata import version; print(version({ADAPTERS[name][0]!r}))"
    done = subprocess.run([python, "-c", code], capture_output=True, check=False, text=True)
    return done.stdout.strip()


def main(arguments: list[str]) -> None:
    every, names, path = 1, arguments, RESULTS / "conformance.json"
    if arguments[:1] == ["--proved"]:
        settings = json.loads(PLACE.read_text())["settings"]
        return proved.add(path, settings, *map(float, arguments[1:]))
    if arguments[:1] == ["--every"]:
        every, names = int(arguments[1]), arguments[2:]
    settings = json.loads(PLACE.read_text())["settings"]
    truths = {s["id"]: s for s in settings}
    for name in names or list(ADAPTERS):
        found = report(name, answers_of(name, settings[::every]), truths) | {
            "commit": environment()["commit"]
        }
        known = json.loads(path.read_text()) if path.exists() else {}
        known.pop("environment", None)
        accountants = known.get("accountants", {}) | {name: found}
        ordered = {n: accountants[n] for n in ADAPTERS if n in accountants}
        kept = {k: x for k, x in known.get("settings", {}).items() if k == "proved"}
        write("conformance", {"settings": summary(settings) | kept, "accountants": ordered})


def summary(settings: list[dict[str, Any]]) -> dict[str, Any]:
    """What the brackets hold."""
    found: dict[str, Any] = {"count": len(settings)}
    for key in QUESTIONS.values():
        rows = [s[key] for s in settings]
        narrow = [b["bracket"] for b in rows]
        found[key] = {
            "independent": sum(b["independent"] for b in rows),
            "second_undecided": sum(b["second"] is None for b in rows),
            "narrower_than_1e-8": sum(low > 0 and high / low - 1 <= 1e-8 for low, high in narrow),
        }
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
