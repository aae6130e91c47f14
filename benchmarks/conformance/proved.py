"""Settings and stored answers under proof: which brackets hold, which answers are refuted.

The results keep the answers below the truth alone. Such an answer is a statement: it is refuted if
jaxdp.proof, which shares no arithmetic with the accountants, finds a larger delta. All other
answers lie at or above the lower end of a bracket; a bracket whose upper end is proved proves what
is above it.
"""

import json
import random
import time
from typing import Any

from benchmarks.conformance.adapters import jaxdp_loss

SEED = 65
# Share by which the ends of a bracket are moved outwards: ends are rounded. chosen
MARGIN = 1e-9
# Of an answer that is stored as a ratio to the truth: more than the rounding of the two. derived
ROUNDING = 1e-15
VERDICTS = {True: "proved", False: "refuted", None: "open"}


def statement(setting: dict[str, Any], question: str, answer: float) -> tuple[float, float]:
    """(epsilon, delta) that an answer claims."""
    return (answer, setting["delta"]) if question == "epsilon" else (setting["epsilon"], answer)


def verdict(setting: dict[str, Any], question: str, answer: float, seconds: float) -> str:
    """ "proved", "refuted", "open", or "not covered" where the program does not know the kind."""
    from jaxdp.proof.decision import verify

    try:
        loss = jaxdp_loss(setting).to_json()
        proof = verify(loss, *statement(setting, question, answer), seconds=seconds)
    except ValueError:
        return "not covered"
    return VERDICTS[proof.proved]


def of_answers(found: dict[str, Any], truths: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The verdicts on the answers of an accountant below the truth."""
    verdicts: dict[str, Any] = {}
    for question, key in (("epsilon", "epsilon_at_delta"), ("delta", "delta_at_epsilon")):
        for below, name in found.get(question, {}).get("worst_below", ()):
            answer = truths[name][key]["bracket"][0] * (1.0 - below) * (1.0 + ROUNDING)
            word = verdict(truths[name], question, answer, seconds)
            verdicts.setdefault(question, {}).setdefault(word, []).append(name)
    return verdicts


def of_brackets(truths: dict[str, Any], seconds: float, most: float) -> dict[str, Any]:
    """How many random settings have a proved bracket of epsilon, in `most` CPU seconds.

    The upper end must be proved, and the lower end, less a share of MARGIN, refuted.
    """
    names, start = sorted(truths), time.process_time()
    random.Random(SEED).shuffle(names)
    ends: dict[str, dict[str, list[str]]] = {"upper": {}, "lower": {}}
    asked = 0
    for name in names:
        if time.process_time() - start > most:
            break
        asked += 1
        low, high = truths[name]["epsilon_at_delta"]["bracket"]
        for end, answer in (("upper", high * (1 + MARGIN)), ("lower", low * (1 - MARGIN))):
            word = verdict(truths[name], "epsilon", answer, seconds)
            ends[end].setdefault(word, []).append(name)
            # Nothing lies below an epsilon of 0.
            if word == "not covered" or low == 0:
                break
    return {"asked": asked, "seconds": seconds, "margin": MARGIN, **ends}


def add(path: Any, settings: list[dict[str, Any]], seconds: float, most: float) -> None:
    """Add the verdicts to the stored results."""
    known, truths = json.loads(path.read_text()), {s["id"]: s for s in settings}
    for found in known["accountants"].values():
        found["proved"] = of_answers(found, truths, seconds)
    known["settings"]["proved"] = of_brackets(truths, seconds, most)
    path.write_text(json.dumps(known, indent=1) + "\n")
