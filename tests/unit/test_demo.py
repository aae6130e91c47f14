"""The main job, as a user runs it."""

import json
import subprocess
import sys

import pytest

from jaxdp import datasets, demo


@pytest.fixture
def bundled(monkeypatch):
    """As on a machine without the downloaded data."""
    monkeypatch.setattr(datasets, "available", lambda name: name in ("diabetes", "breast_cancer"))


def test_it_runs_without_any_download(bundled, tmp_path, monkeypatch):
    """Fewer epsilons than a user gets, over the same range."""
    monkeypatch.setattr(demo, "TRAININGS", 8)
    lines = []
    report = demo.main(tmp_path / "new", lines.append, progress=False)
    assert max(len(line) for line in lines if str(tmp_path) not in line) <= 80
    assert [line[:5] for line in lines if line.startswith("[")] == [f"[{k}/4]" for k in range(1, 5)]
    assert json.loads((tmp_path / "new" / "demo.json").read_text()) == report
    assert (tmp_path / "new" / "demo.png").read_bytes()[:4] == b"\x89PNG"
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"demo.json", "demo.png"}
    assert {job["data"] for job in report["training"]} == {"diabetes", "breast_cancer"}
    for job in report["training"]:
        errors = job["allocations"]
        assert set(errors) == {"iid", "spr", "inid"}
        assert len({round(row["rho"], 12) for row in errors.values()}) == 1
        assert errors["spr"]["relative_error"] < errors["iid"]["relative_error"]
    assert report["sweep"]["log_delta"]["points"] == 10**6
    assert report["sweep"]["log_delta"]["least"] < -43000
    assert 0.09 < report["sweep"]["epsilon"]["least"] < report["sweep"]["epsilon"]["greatest"] < 50
    gains = {(r["profile"], r["family"], r["method"]): r["gain_db"] for r in report["allocation"]}
    # The i.n.i.d. paper's figures at 20 coordinates.
    assert gains["linear", "gaussian", "inid"] == pytest.approx(1.145, abs=1e-3)
    assert gains["quadratic", "laplace", "inid"] == pytest.approx(1.390, abs=1e-3)
    assert gains["exponential", "gaussian", "inid"] == pytest.approx(9.658, abs=1e-3)


def test_the_command():
    command = [sys.executable, "-c", "import sys; from jaxdp.cli import main; main()"]
    done = subprocess.run([*command, "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "demo" in done.stdout
    done = subprocess.run(
        [*command, "demo", "--out", "/dev/null/no"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("jaxdp demo: ")
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_missing_extra_is_named():
    code = "import sys; sys.modules['typer'] = None\nfrom jaxdp.cli import main\nmain()\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "jaxdp-privacy[cli]" in done.stderr
    assert "Traceback" not in done.stderr
