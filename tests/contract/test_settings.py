"""Known questions have the same bits, of NumPy's types, whatever `jax_enable_x64` is."""

import json
from pathlib import Path

import jax
import pytest
import settings
from processes import run

FOLDER = Path(__file__).parent
PROGRAM = """
import json, sys
sys.path.insert(0, {folder!r})
import jax
import settings
found = settings.answers()
assert jax.config.jax_enable_x64 == {flag}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def unset():
    return json.loads(run(PROGRAM.format(folder=str(FOLDER), flag=False), JAX_ENABLE_X64="0"))


def test_a_process_with_the_flag_has_the_same_bits(unset):
    found = json.loads(run(PROGRAM.format(folder=str(FOLDER), flag=True), JAX_ENABLE_X64="1"))
    assert found == unset


@pytest.mark.parametrize("question", settings.QUESTIONS)
def test_a_context_has_the_same_bits(question, unset):
    for flag in (True, False):
        with jax.enable_x64(flag):
            found = settings.bits(settings.QUESTIONS[question]())
            assert jax.config.jax_enable_x64 == flag
        assert json.loads(json.dumps(found)) == unset[question]
