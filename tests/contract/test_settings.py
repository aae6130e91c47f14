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
def alone():
    """Of a process that has the flag which this one has not."""
    flag = not jax.config.jax_enable_x64
    code = PROGRAM.format(folder=str(FOLDER), flag=flag)
    return json.loads(run(code, JAX_ENABLE_X64=str(int(flag))))


@pytest.mark.parametrize("question", settings.QUESTIONS)
def test_a_process_and_a_context_have_the_same_bits(question, alone):
    for flag in (True, False):
        with jax.enable_x64(flag):
            found = settings.bits(settings.QUESTIONS[question]())
            assert jax.config.jax_enable_x64 == flag
        assert json.loads(json.dumps(found)) == alone[question]
