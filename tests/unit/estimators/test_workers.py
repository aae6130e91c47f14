"""Fits and releases in worker processes, which inherit no setting of JAX."""

import sys
from pathlib import Path

import pytest
from processes import process

MODULE = '''
import multiprocessing, warnings
import numpy as np
import jax, jaxdp as dp

def release(_):
    assert not jax.config.jax_enable_x64
    mechanism = dp.Mechanism(dp.Gaussian(1.0), 1.0)
    return float(dp.release(mechanism, 0.0).value), float(mechanism.epsilon(1e-6))

def check(found):
    """Each has noise of its own, of more bits than float32 has, and the same epsilon.

    One of 64 values has no more bits, so that eight of them fail once in 3e14 runs.
    """
    values, epsilons = zip(*found)
    assert len(set(values)) == len(values), values
    assert any(float(np.float32(x)) != x for x in values), values
    assert set(epsilons) == {float(dp.Mechanism(dp.Gaussian(1.0), 1.0).epsilon(1e-6))}
    print("done")
'''
SEARCHES = """
from sklearn.model_selection import GridSearchCV
from workers import *

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, (60, 2)), np.arange(60) % 2
    known = {"epsilon": 1.0, "delta": 1e-5, "feature_bounds": (-1, 1), "classes": [0, 1]}
    model = dp.DPNaiveBayes(**known)
    search = GridSearchCV(model, {"epsilon": [0.1, 10.0]}, cv=2, n_jobs=2, error_score="raise")
    assert np.isfinite(search.fit(X, y).cv_results_["mean_test_score"]).all()
    import joblib
    check(joblib.Parallel(n_jobs=2, backend="loky")(joblib.delayed(release)(i) for i in range(8)))
"""
SPAWNED = """
from workers import *

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        check(pool.map(release, range(8)))
"""
DASK = """
from workers import *

if __name__ == "__main__":
    from distributed import Client, LocalCluster
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            check(client.gather(client.map(release, range(8), pure=False)))
"""


@pytest.mark.parametrize(
    "main",
    [*(pytest.param(x, marks=pytest.mark.long) for x in (SEARCHES, DASK)), SPAWNED],
    ids=["joblib", "dask", "spawn"],
)
def test_workers_need_no_setting_and_share_no_noise(main, tmp_path):
    (tmp_path / "workers.py").write_text(MODULE)
    (tmp_path / "main.py").write_text(main)
    path = ":".join([str(tmp_path), str(Path(__file__).parents[3]), *filter(None, sys.path)])
    done = process(tmp_path / "main.py", PYTHONPATH=path, JAX_ENABLE_X64="0")
    assert done.stdout.split()[-1:] == ["done"], done.stderr[-3000:]
