"""python -m benchmarks.conformance.worker NAME FILE FIRST prints answers, a line each.

It runs in an interpreter that has the accountant; neither jaxdp nor JAX is needed for the others.
"""

import json
import resource
import signal
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

# CPU seconds after which an answer does not count.
LONGEST = 10
# Bytes of address space after which a call fails.
MEMORY = 12 * 2**30


def asked(question: Callable[[], Any]) -> dict[str, Any]:
    """The answer, or why there is none, and its CPU milliseconds."""
    start = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, LONGEST)
    try:
        found: dict[str, Any] = {"answer": float(question())}
    except Exception as error:
        kind = type(error).__name__
        found = {
            "refused": kind
            if kind in ("UnsupportedError", "TimeoutError")
            else f"{kind}: {error}"[:120]
        }
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return found | {"ms": 1e3 * (time.process_time() - start)}


def main(name: str, path: str, first: str) -> None:
    from benchmarks.conformance.adapters import ADAPTERS, UnsupportedError

    def late(*_: Any) -> None:
        raise TimeoutError

    def ask(prepared: list[Any], setting: dict[str, Any], question: str) -> Any:
        """The first question composes, the second one finds it done."""
        if not prepared:
            prepared.append(prepare(setting))
        call = getattr(prepared[0], question)
        if call is None:
            raise UnsupportedError
        return call(setting["delta" if question == "epsilon" else "epsilon"])

    warnings.simplefilter("ignore")
    signal.signal(signal.SIGPROF, late)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with open(path) as file:
        settings = json.load(file)["settings"]
    prepare = ADAPTERS[name][1]()
    print(json.dumps({"import_ms": 1e3 * time.process_time()}), flush=True)
    for s in settings[int(first) :]:
        prepared: list[Any] = []
        answers = {
            q: asked(lambda q=q, p=prepared, s=s: ask(p, s, q)) for q in ("epsilon", "delta")
        }
        print(json.dumps({"id": s["id"], **answers}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
