"""Records of what is spent, shared by threads: a look, a decision and an entry are one."""

import copy
import pickle
import sys
import threading
import time

import numpy as np
import pytest

import jaxdp as dp

# So many that adding up a step lasts longer than a thread's turn.
ORDERS = np.linspace(1.5, 100.0, 300)
STEP = dp.RDP(ORDERS, np.full(300, 0.05))
THREADS, EACH = 6, 8


@pytest.fixture
def short_turns():
    """Threads take turns after a microsecond instead of five thousand."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def side_by_side(act):
    """`act` by all threads at once, `EACH` times in each; how many went through."""
    start, taken = threading.Barrier(THREADS), []

    def work():
        start.wait()
        for _ in range(EACH):
            try:
                act()
            except dp.BudgetExceededError:
                continue
            taken.append(1)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(taken)


def test_a_filter_never_grants_more_than_its_budget(short_turns):
    """Of .05 20 fit in a budget of 1: 36 were granted without a lock."""
    record = dp.Filter(dp.RDP(ORDERS, np.ones(300)))
    assert side_by_side(lambda: record.spend(STEP)) == 20
    assert len(record.steps) == 20
    again = dp.Filter.from_json(record.to_json())
    np.testing.assert_array_equal(again.remaining().value, record.remaining().value)


def test_ledgers_of_one_file_never_grant_more_than_its_budget(short_turns, tmp_path):
    """`test_ledger` has two processes of one file."""
    ledger = dp.Ledger(tmp_path / "budget", dp.PureDP(4.0))
    assert side_by_side(lambda: dp.Ledger(tmp_path / "budget").charge(dp.PureDP(0.125))) == 32
    assert len(ledger.steps) == 32
    assert ledger.spent().epsilon_bound == 4.0


class SlowHistory(list):
    """Gives the turn away between a look and an entry."""

    def __getitem__(self, index):
        value = super().__getitem__(index)
        time.sleep(1e-4)
        return value


def test_accountants_of_other_libraries_lose_no_step(short_turns):
    accountant = dp.dpsgd.Accountant()
    accountant.history = SlowHistory()
    side_by_side(lambda: [accountant.step(noise_multiplier=1.0, sample_rate=0.1)])
    assert accountant.history == [(1.0, 0.1, THREADS * EACH)]
    events = pytest.importorskip("dp_accounting")
    theirs = dp.interop.dp_accounting.Accountant()
    side_by_side(lambda: theirs.compose(events.GaussianDpEvent(4.0)))
    alone = dp.interop.dp_accounting.Accountant()
    alone.compose(events.GaussianDpEvent(4.0), THREADS * EACH)
    assert theirs.get_epsilon(1e-6) == alone.get_epsilon(1e-6)


@pytest.mark.parametrize(
    "again",
    [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))],
    ids=["", "deep", "pickle"],
)
def test_a_copy_is_a_record_of_its_own(again):
    record = dp.Filter(dp.GDP(2.0))
    record.spend(dp.GDP(1.0))
    copied = again(record)
    assert copied.to_json() == record.to_json()
    copied.spend(dp.GDP(1.0))
    assert (len(copied.steps), len(record.steps)) == (2, 1)
