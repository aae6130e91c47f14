"""Records of stored losses, valid ones and changed ones, and what both programs say of them."""

import math

import jaxdp as dp
from jaxdp._core.files import Format, sealed
from jaxdp.proof.kinds import KINDS, PAIRS, Records

FORM = Format("jaxdp-privacy-loss")
HALF = math.log(0.5)


def array(*values):
    return {"shape": [len(values)], "values": [float(x).hex() for x in values]}


def valid(field):
    """A value of a field: its number closest to 1, or a record of its first kind."""
    if isinstance(field, Records):
        return [record(field.kinds[0])] if field.many else record(field.kinds[0])
    x = min(max(1.0, field.low), field.high)
    value = float(x).hex() if field.static else array(x)
    return [value] if field.many else value


# Fields that are no law or no direction if each has a number of its own.
LAWS = {
    "Finite": {"losses": [(0.0).hex()], "masses": [(1.0).hex()]}
    | dict.fromkeys(("infinite", "hidden"), (0.0).hex()),
    "SampledGroup": {"log_probabilities": [array(HALF)] * 2, "added": array(0.0)},
    "GaussianMixture": {
        "sensitivities": [array(0.0), array(1.0)],
        "log_probabilities": [array(HALF)] * 2,
        "other_sensitivities": [array(0.0)] * 2,
        "other_log_probabilities": [array(0.0), array(-math.inf)],
    },
    "PublicCoin": {"log_shares": [array(0.0)]},
    "Poisson": {"added": array(0.0)},
    "Allocation": {"added": array(0.0)},
}


def record(kind):
    fields = {key: valid(field) for key, field in KINDS[kind].items()}
    return {"kind": kind, **fields, **LAWS.get(kind, {})}


def body(pair, relation="add_remove", count=None):
    return {"relation": relation, "terms": [{"pair": pair, "count": count or array(1.0)}]}


def pair_of(kind, changed=None):
    """A pair that is or holds a record of this kind, with some fields of the record changed."""
    inner = record(kind) | (changed or {})
    return inner if kind in PAIRS else record("Additive") | {"noise": inner}


def read_by_both(content):
    """What each program says: None, or its `ValueError`."""
    text, found = sealed(FORM, content), []
    for read in (dp.PrivacyLoss.from_json, lambda x: dp.verify(x, 1.0, 0.5, seconds=0.2)):
        try:
            read(text)
            found.append(None)
        except ValueError as error:
            found.append(str(error))
    return found


def assert_refused(content):
    assert None not in read_by_both(content), content


def texts(values):
    return [float(x).hex() for x in values]


def finite(losses, masses, infinite=0.0, hidden=0.0):
    lists = {"losses": texts(losses), "masses": texts(masses)}
    ends = {"infinite": float(infinite).hex(), "hidden": float(hidden).hex()}
    return record("Finite") | lists | ends | {"backward": array(0.0)}
