"""Forked processes: charges of a ledger go on in both, and programs of JAX are refused."""

import pytest
from processes import run

LEDGER = """
import os, sys, threading, time, tempfile, pathlib
import jaxdp as dp
ledger = dp.Ledger(pathlib.Path(tempfile.mkdtemp()) / "ledger", dp.PureDP(1000.0))
ends = threading.Event()
def charge():
    while not ends.is_set():
        ledger.charge(dp.PureDP(0.125))
threads = [threading.Thread(target=charge, daemon=True) for _ in range(2)]
[thread.start() for thread in threads]
children = []
for _ in range(8):
    child = os.fork()
    if not child:
        ledger.charge(dp.PureDP(0.25), name="child")
        assert dp.dpsgd.epsilon(1.1, 1e-5, sampling_prob=0.01, steps=1000) > 0
        os._exit(0)
    children.append(child)
before = time.monotonic()
while children and time.monotonic() - before < 60.0:
    ended = [child for child in children if os.waitpid(child, os.WNOHANG)[0]]
    children = [child for child in children if child not in ended]
    time.sleep(0.01)
ends.set()
[os.kill(child, 9) for child in children]
[thread.join(20.0) for thread in threads]
assert not children, "a child waits for a lock"
assert not any(thread.is_alive() for thread in threads), "the parent waits"
assert [step.name for step in ledger.steps].count("child") == 8
"""

AFTER_JAX = """
import os, jaxdp as dp
dp.secure_key()
child = os.fork()
if not child:
    print(dp.dpsgd.epsilon(1.1, 1e-5, sampling_prob=0.01, steps=1000) > 0, flush=True)
    try:
        dp.release(dp.Mechanism(dp.Gaussian(2.0), 1.0), 3.0)
    except RuntimeError as error:
        print("spawn" in str(error), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(dp.secure_key().shape)
"""


def test_a_fork_leaves_no_lock_of_a_ledger_held():
    run(LEDGER)


@pytest.mark.filterwarnings("ignore")
def test_what_needs_jax_is_refused_in_a_process_forked_after_it():
    assert run(AFTER_JAX).split() == ["True", "True", "()"]
