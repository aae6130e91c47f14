"""The compilation cache: a second process compiles nothing."""

import stat
import subprocess
import sys

import pytest

import jaxdp as dp

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
        command = [sys.executable, "-c", CODE, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
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
    (tmp_path / "mine").mkdir(mode=0o700)
    monkeypatch.setattr("os.getuid", lambda: -1)
    with pytest.raises(ValueError, match="this user alone"):
        dp.enable_cache(tmp_path / "mine")
