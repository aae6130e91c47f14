"""Tests of docstrings on the site: sections, powers, links, no accidental markup."""

import inspect
import re
import runpy
from functools import reduce
from pathlib import Path

import pytest

import jaxdp as dp


@pytest.fixture(scope="module", name="site")
def _site():
    return runpy.run_path(str(Path(__file__).parents[2] / "docs" / "conf.py"))


DOCSTRING = """E|T|^p and e^(-(x + 1) / 2), see `Noise.sample`; *as* `scale` x_1 is.

Args:
    power, x: of `shift`,
        two lines.

Returns:
    (n,), as `calibrate` does.

* one
  point;
* another.

>>> 2 * `x`
4"""


def test_a_docstring_is_converted(site):
    expected = r"""E\|T\|\ :sup:`p`\  and e\ :sup:`-(x + 1) / 2`\ , see \ :py:obj:`Noise.sample <jaxdp.own.Noise.sample>`\ ; \*as\* \ ``scale``\  x\_1 is.

:Arguments:
   * **power**, **x**: of \ ``shift``\ , two lines.

:Returns:
   \(n,), as \ :py:obj:`calibrate <jaxdp.calibrate>`\  does.

* one point;

* another.

>>> 2 * `x`
4
"""  # noqa: E501
    assert site["converted"](DOCSTRING, "jaxdp.Laplace.log_delta", dp.Laplace.log_delta) == expected


@pytest.mark.parametrize("start", ["-x", "(a) b", "1. x", "a. x", "| x", "= x", ".. x"])
def test_no_formula_begins_a_list(site, start):
    assert site["prose"](start, "jaxdp.Laplace", None).startswith("\\")


def test_every_entry_can_be_linked(site):
    names = site["DOCUMENTED"]
    assert {"jaxdp.own.Noise.log_delta", "jaxdp.dpsgd.epsilon", "jaxdp.Phase"} - names == {
        "jaxdp.Phase"
    }
    for name in names:
        thing = reduce(getattr, name.split(".")[1:], dp)
        text = site["converted"](inspect.getdoc(thing) or "", name, thing)
        for target in re.findall(r":py:obj:`[^`]*<([^`]*)>`", text):
            assert target in names
