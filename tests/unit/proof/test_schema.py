"""Records that are no privacy loss: `from_json` and `verify` refuse the same ones."""

import copy
import math
from typing import Any

import numpy as np
import pytest
from stored_records import (
    FORM,
    HALF,
    LAWS,
    array,
    assert_refused,
    body,
    finite,
    pair_of,
    read_by_both,
    record,
    valid,
)

import jaxdp as dp
from jaxdp._core import neighbours
from jaxdp._core.files import sealed, unsealed
from jaxdp.composition import stored
from jaxdp.dominating_pair.base import is_symmetric
from jaxdp.proof import kinds, schema
from jaxdp.proof.kinds import KINDS, PAIRS, Numbers, Records

ROWS = [(kind, key, field) for kind, fields in KINDS.items() for key, field in fields.items()]
NUMBERS = [row for row in ROWS if isinstance(row[2], Numbers)]


def test_the_schema_has_every_kind():
    own = {kind: cls for kind, cls in stored.kinds().items() if ":" not in kind}
    found = {kind: set(stored._names(cls)) for kind, cls in own.items()}
    assert found == {kind: set(fields) for kind, fields in KINDS.items()}
    assert set(kinds.RELATIONS) == set(neighbours.RELATIONS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_valid_record_is_read(kind):
    found = read_by_both(body(pair_of(kind)))
    assert found[0] is None
    assert found[1] is None or "cannot" in found[1]


def number(field, value):
    """The value in the place of a field's first number."""
    changed = copy.deepcopy(valid(field))
    place: Any = changed[0] if field.many else changed
    if field.static:
        return [value] if field.many else value
    place["values"][0] = value
    return changed


def outside(field):
    """Texts that are no number of a field."""
    yield from ("nan", "1.5", "x", "", 1.0, None, True, ["0x1p+0"])
    ends = (field.low, -math.inf), (field.high, math.inf)
    yield from (math.nextafter(end, beyond).hex() for end, beyond in ends if math.isfinite(end))
    yield from (x.hex() for x in (-math.inf, math.inf) if not field.holds(x))
    if field.whole:
        yield (field.low + 0.5).hex()


def bad_values(kind, field):
    """Values of another type, of another shape, and numbers that are none of a field."""
    yield from (None, {}, [], 7, {"kind": kind}, {"kind": "os"}, [[valid(field)]])
    if isinstance(field, Records) or not field.static:
        yield "0x1p+0"
    if isinstance(field, Records):
        return
    yield from (number(field, text) for text in outside(field))
    if field.static:
        return
    arrays = [{"shape": shape, "values": [(1.0).hex()]} for shape in WRONG_SHAPES]
    arrays.append(array(1.0) | {"more": 1})
    yield from ([bad] if field.many else bad for bad in arrays)
    if not field.many:
        yield {"shape": [0], "values": []}


# Shapes that one value does not have.
WRONG_SHAPES = ([-3], [2], [1, 2], [True], "1", [1.0])


@pytest.mark.parametrize(("kind", "key", "field"), ROWS)
def test_bad_values_are_refused(kind, key, field):
    for bad in bad_values(kind, field):
        if bad != valid(field):
            assert_refused(body(pair_of(kind, {key: bad})))


@pytest.mark.parametrize(("kind", "key", "field"), NUMBERS)
def test_ends_of_a_range_are_read(kind, key, field):
    """The constructors accept what the schema accepts; a proof ends in a verdict or a sentence."""
    if key in LAWS.get(kind, {}) and key != "added":
        return
    for end in (field.low, field.high):
        changed = {key: number(field, end.hex())}
        relation = "add" if key == "added" and end else "add_remove"
        found = read_by_both(body(pair_of(kind, changed), relation))
        assert found[0] is None, (end, found)
        assert found[1] is None or any(
            x in found[1] for x in ("for a proof", "cannot", "shifts of P", "noise must be")
        ), found


@pytest.mark.parametrize("kind", KINDS)
def test_keys_are_exact(kind):
    for key in KINDS[kind]:
        short = record(kind)
        del short[key]
        pair = short if kind in PAIRS else record("Additive") | {"noise": short}
        assert_refused(body(pair))
    more = {"rate": array(0.0), "sampling_prob": array(0.0), "base": record("Additive")}
    more |= {"shift": array(0.0), "backward": array(1.0), "added": array(1.0), "pairs": []}
    for key, value in more.items():
        if key not in KINDS[kind]:
            assert_refused(body(pair_of(kind, {key: value})))


@pytest.mark.parametrize(("kind", "key", "field"), [r for r in ROWS if isinstance(r[2], Records)])
def test_parts_are_of_kinds_that_fit(kind, key, field):
    for other in KINDS:
        part = [record(other)] if field.many else record(other)
        found = read_by_both(body(pair_of(kind, {key: part})))
        assert (found[0] is None) == (other in field.kinds), other


def group(*probabilities):
    with np.errstate(divide="ignore"):
        logs = [array(x) for x in np.log(probabilities)]
    return record("SampledGroup") | {"log_probabilities": logs}


P, Q = np.array([0.25, 0.75]), np.array([0.75, 0.25])
LOSSES = np.log(P / Q)
NO_LAWS = [
    finite([3.0, -3.0], [0.0, 0.0]),
    finite([3.0, -3.0], [-1.0, 2.0]),
    finite([-3.0, 3.0], [0.0, 0.0], -1.0),
    finite([-3.0, 3.0], [0.0, 0.0], 1.0),
    finite(LOSSES, P * (1 - 1e-6)),
    finite(LOSSES, P * (1 - 1e-14)),
    finite(LOSSES, P, 1e-6),
    finite(LOSSES + 1e-6, P),
    finite(LOSSES + 1e-12, P),
    finite(LOSSES, P, 0.0, 0.1),
    finite(LOSSES[::-1], P[::-1]),
    finite([-1000.0, 0.0], [0.5, 0.5]),
    finite([-1e308, 0.0], [0.5, 0.5]),
    group(0.5, 1e-4, 0.4999),
    group(0.5, 0.3, 0.1),
    group(0.5, 0.0, 0.5),
    record("GaussianMixture") | {"log_probabilities": [array(HALF), array(-1.0)]},
    record("GaussianMixture") | {"other_log_probabilities": [array(-math.inf)] * 2},
    record("GaussianMixture") | {"sensitivities": [array(1.0)]},
    record("PublicCoin") | {"log_shares": [array(-1.0)]},
    record("PublicCoin") | {"log_shares": [array(HALF)] * 2},
    record("Additive") | {"noise": record("DiscreteLaplace"), "shift": array(0.5)},
    record("Poisson") | {"base": record("Poisson")},
]


@pytest.mark.parametrize("pair", NO_LAWS)
def test_what_is_no_law_is_refused(pair):
    assert_refused(body(pair))


def test_laws_are_read():
    for pair in (finite(LOSSES, P), finite(LOSSES, P * 0.5, 0.5, 0.5)):
        assert read_by_both(body(pair)) == [None, None]


@pytest.mark.parametrize("relation", ["ADD_REMOVE", "foo", "", 7, True, ["add_remove"], {}])
def test_relations_have_a_name(relation):
    for kind in ("Additive", "Poisson"):
        assert_refused(body(record(kind), relation))


def test_two_directions_that_differ_need_a_relation():
    for kind in ("Poisson", "SampledGroup", "GaussianMixture", "Allocation"):
        assert_refused(body(record(kind), None))
    assert_refused(body(finite(np.log([0.1 / 0.7, 0.9 / 0.3]), [0.1, 0.9]), None))
    for kind in ("Additive", "Replaced", "FixedBatch", "Response", "RandomisedResponse"):
        assert read_by_both(body(record(kind), None)) == [None, None]
    assert read_by_both(body(finite(LOSSES, P), None)) == [None, None]


@pytest.mark.parametrize("relation", ["add_remove", "remove", "add", "zero_out", "replace_one"])
def test_the_direction_is_that_of_the_relation(relation):
    """A release that is added beside one that is removed has no neighbours."""
    for kind in ("Poisson", "SampledGroup", "Allocation"):
        wrong = record(kind) | {"added": array(float(relation != "add"))}
        assert_refused(body(wrong, relation))
        assert_refused(body(record("PublicCoin") | {"pairs": [wrong]}, relation))


@pytest.mark.parametrize("relation", ["add_remove", "zero_out", "replace_one"])
def test_the_worse_direction_is_proved(relation):
    """delta(.6): the pair says .9 - .3 e^.6, its exchange .7 - .1 e^.6, which is more."""
    pair = finite(np.log([0.1 / 0.7, 0.9 / 0.3]), [0.1, 0.9], 0.0, 0.0)
    proof = dp.verify(sealed(FORM, body(pair, relation)), 0.6, 0.6)
    truth = 0.7 - 0.1 * math.exp(0.6)
    assert float(proof.lower) <= truth * (1 + 1e-12)
    assert float(proof.upper) >= truth * (1 - 1e-12)


SAMPLING = {
    "none": {},
    "poisson": {"sampling": dp.sampling.Poisson(0.1)},
    "group": {"sampling": dp.sampling.Poisson(0.1), "group_size": 3},
    "truncated": {"sampling": dp.sampling.TruncatedPoisson(0.02, 25, 1000)},
    "fixed": {"sampling": dp.sampling.WithoutReplacement(20, 1000)},
}


@pytest.mark.parametrize("relation", kinds.RELATIONS)
@pytest.mark.parametrize("scheme", SAMPLING)
def test_both_programs_agree_on_directions(scheme, relation):
    """What one takes for its own exchange is so for the other; every loss of a scheme is read."""
    mechanism = dp.Mechanism(dp.Gaussian(2.0), 1.0, relation=relation, **SAMPLING[scheme])
    loss = dp.privacy_loss(mechanism)
    content = unsealed(FORM, loss.to_json())
    assert read_by_both(content) == [None, None]
    for row, term in zip(content["terms"], loss.terms, strict=True):
        assert schema.is_symmetric(row["pair"]) == is_symmetric(term.pair)


def test_terms():
    for terms in ([], {}, None, [[]], [{}], "", [None]):
        assert_refused({"relation": None, "terms": terms})
    for shape, count in (([0], 0), ([-3], 1), ([1], 2), ([], 1), ([1, 0], 0), ([2], 3)):
        counts = {"shape": shape, "values": [(1.0).hex()] * count}
        pair = record("Additive")
        if shape == []:
            pair = pair | {"shift": counts, "noise": {"kind": "Gaussian", "scale": counts}}
        assert_refused(body(pair, None, counts))
    for bad in (-1.0, 0.5, math.nan, -math.inf):
        assert_refused(body(record("Additive"), None, array(bad)))
    two = body(record("Additive"), None, array(1.0, 2.0))
    two["terms"].append({"pair": record("Response"), "count": array(1.0, 1.0, 1.0)})
    assert read_by_both(two) == [None, None]
    two["terms"][1]["pair"]["bound"] = array(1.0, 2.0)
    assert_refused(two)


def test_keys_of_the_file():
    good = body(record("Additive"))
    assert_refused(good | {"more": 1})
    assert_refused({"terms": good["terms"]})
    text = sealed(FORM, good)
    twice = text.replace('"relation":', '"relation": "remove", "relation":', 1)
    for bad in (twice, text.replace('"version": 1', '"version": true')):
        assert bad != text
        for read in (dp.PrivacyLoss.from_json, lambda x: dp.verify(x, 1.0, 0.5)):
            with pytest.raises(ValueError, match=r"keys must differ|version|digest"):
                read(bad)


def test_deep_records_are_refused():
    pair = record("Additive")
    for _ in range(400):
        pair = record("PublicCoin") | {"pairs": [pair]}
    assert_refused(body(pair))


def test_an_own_kind_cannot_be_proved():
    with pytest.raises(ValueError, match="kind of pair must be one of"):
        dp.verify(sealed(FORM, body({"kind": "mine:Pair", "x": array(1.0)})), 1.0, 0.5)
