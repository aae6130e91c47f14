"""Known questions: the same bits, of NumPy's types, whatever JAX is set to; without a program."""

import json
from pathlib import Path

import jax
import pytest
import settings
from compilations import counted
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
CONTEXTS = {
    "doubles": lambda: jax.enable_x64(True),
    "singles": lambda: jax.enable_x64(False),
    "strict": lambda: jax.numpy_dtype_promotion("strict"),
}
# Programs draw; everything else is known.
DRAWING = ("models", "release", "samples")


@pytest.fixture(scope="module")
def alone():
    """Of a process that has the flag which this one has not."""
    flag = not jax.config.jax_enable_x64
    code = PROGRAM.format(folder=str(FOLDER), flag=flag)
    return json.loads(run(code, JAX_ENABLE_X64=str(int(flag))))


@pytest.mark.parametrize("question", settings.QUESTIONS)
def test_a_process_and_contexts_have_the_same_bits(question, alone):
    usual = jax.config.jax_enable_x64
    with counted() as programs:
        for name, context in CONTEXTS.items():
            with context():
                found = settings.bits(settings.QUESTIONS[question]())
                inside = jax.config.jax_enable_x64
            assert json.loads(json.dumps(found)) == alone[question], name
            assert inside == {"doubles": True, "singles": False}.get(name, usual)
    if question not in DRAWING:
        assert not programs


def test_the_counter_counts():
    with counted() as programs:
        jax.jit(lambda x: x + 1.25)(1.0)
    assert programs
