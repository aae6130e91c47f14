"""Audits of all that claims a guarantee: lower bounds on epsilon beside what is promised.

python -m benchmarks.bench_audit writes results/audit.json; sections behind it, or rows as
"schemes: Poisson", are made anew, and the rest of the file is left as it is. A refuted claim is an
error, after it is written.
"""

import json
import sys
import time
from typing import Any

import jax

from benchmarks._tools.audited import Cases, figures, row
from benchmarks._tools.audited_estimators import ESTIMATORS
from benchmarks._tools.audited_noises import RELEASES, SAMPLERS, in_floating_point
from benchmarks._tools.audited_solvers import SOLVERS
from benchmarks._tools.audited_trainings import (
    ONE_RUN_FALSE_ALARM,
    SCHEMES,
    TRAININGS,
    one_run,
)
from benchmarks._tools.measure import RESULTS, write

# Sums in floating point, whose last bits tell.
PLANTED: Cases = {"Gaussian in floating point": in_floating_point}
SECTIONS: dict[str, Any] = {
    "samplers": SAMPLERS,
    "releases": RELEASES,
    "solvers": SOLVERS,
    "schemes": SCHEMES,
    "estimators": ESTIMATORS,
    "planted": PLANTED,
    "trainings_in_one_run": TRAININGS,
}
KEY = jax.random.key(20261126)


def training(name: str, key: jax.Array) -> dict[str, Any]:
    """A training in one run."""
    start = time.process_time()
    known = TRAININGS[name]
    found = one_run(key, **known)
    return {
        "claimed": figures(found.claimed),
        "lower": figures(found.epsilon_lower),
        "mu_lower": figures(found.mu_lower),
        "delta": found.delta,
        "correct": found.correct,
        "guesses": found.guesses,
        "canaries": found.canaries,
        "is_refuted": found.is_refuted,
        "false_alarm": ONE_RUN_FALSE_ALARM,
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def audits(section: str, wanted: list[str]) -> dict[str, Any]:
    """A section, or those of its rows that are wanted, name by name."""
    found, key = {}, jax.random.fold_in(KEY, list(SECTIONS).index(section))
    for index, (name, case) in enumerate(SECTIONS[section].items()):
        if not wanted or section in wanted or f"{section}: {name}" in wanted:
            each = jax.random.fold_in(key, index)
            made = training(name, each) if section == "trainings_in_one_run" else row(case, each)
            print(f"{section}: {name}: {made}", file=sys.stderr, flush=True)
            found[name] = made
    return found


def main(wanted: list[str]) -> None:
    """Audit, write, and raise where a claim is refuted."""
    path = RESULTS / "audit.json"
    for section in SECTIONS:
        found = audits(section, wanted)
        if not found:
            continue
        known = json.loads(path.read_text()) if path.exists() else {}
        known.pop("environment", None)
        write("audit", known | {section: known.get(section, {}) | found})
        refuted = [name for name, each in found.items() if each["is_refuted"]]
        if refuted != list(PLANTED if section == "planted" else ()):
            raise SystemExit(f"refuted in {section}: {refuted}")


if __name__ == "__main__":
    main(sys.argv[1:])
