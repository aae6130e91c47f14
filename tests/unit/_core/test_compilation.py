"""What is compiled, when, and what of it the cache keeps for a second process."""

import stat

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from processes import process

import jaxdp as dp
from jaxdp._core import float64

pytestmark = pytest.mark.float64


def test_known_losses_are_computed_outside_a_trace():
    """An array that a transformed function closes over is not traced into it."""
    loss = 20 * dp.privacy_loss(dp.Mechanism(dp.Gaussian(3.0), 1.0, relation="add_remove"))
    at, delta = jnp.array([0.5, 1.0]), jnp.array([1e-3, 1e-6])
    for function, known in ((loss.log_delta, at), (loss.epsilon, delta)):

        def shifted(x, function=function, known=known):
            return function(known) + x

        np.testing.assert_allclose(jax.jit(shifted)(1.0), function(known) + 1.0, rtol=1e-15)


def test_traced_and_known_values_agree():
    square = float64.jitted(lambda x, power: x**power, 1)
    x = jnp.arange(3.0)
    np.testing.assert_array_equal(square(x, 2), [0.0, 1.0, 4.0])
    np.testing.assert_array_equal(jax.jit(lambda x: square(x, 2))(x), [0.0, 1.0, 4.0])
    np.testing.assert_array_equal(jax.vmap(lambda x: square(x, 2))(x), [0.0, 1.0, 4.0])
    np.testing.assert_array_equal(jax.grad(lambda x: square(x, 2))(3.0), 6.0)


CODE = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
import jaxdp as dp
hits = []
jax.monitoring.register_event_listener(
    lambda name, **_: hits.append(name) if name.endswith("/cache_hits") else None
)
dp.enable_cache(sys.argv[1])
float(jax.jit(lambda s: dp.Gaussian(s).log_delta(1.0, 1.0))(1.0))
print(len(hits))
"""


def test_a_second_process_finds_it(tmp_path):
    folder = tmp_path / "cache"
    found = []
    for _ in range(2):
        done = process("-c", CODE, folder)
        assert done.stderr == ""
        found.append(int(done.stdout))
    assert found[0] == 0 < found[1]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_bad_folders_are_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        dp.enable_cache(tmp_path / "file")
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    with pytest.raises(ValueError, match="mode 0755"):
        dp.enable_cache(shared)
    assert stat.S_IMODE(shared.stat().st_mode) == 0o755
    everyones, link = tmp_path / "everyones", tmp_path / "link"
    (everyones / "inner" / "cache").mkdir(mode=0o700, parents=True)
    everyones.chmod(0o777)
    link.symlink_to(everyones / "inner")
    for below in (everyones / "cache", everyones / "inner" / "cache", link / "cache"):
        with pytest.raises(ValueError, match="others cannot replace it, got mode 0777"):
            dp.enable_cache(below)
    (tmp_path / "mine").mkdir(mode=0o700)
    monkeypatch.setattr("os.getuid", lambda: -1)
    with pytest.raises(ValueError, match="this user alone"):
        dp.enable_cache(tmp_path / "mine")
