"""Strict: no silent rank promotion, warnings are errors, types are checked, noise is known."""

import contextlib
import hashlib
import importlib
import itertools
import types
import zlib
from collections.abc import Iterator
from pathlib import Path

import first_calls
import jax
import numpy as np
import pytest
from hypothesis import settings

jax.config.update("jax_numpy_rank_promotion", "raise")
first_calls.install("jaxdp")
# What one worker, or the last run, has compiled; a home that cannot be written to costs time only.
with contextlib.suppress(OSError, ValueError):
    importlib.import_module("jaxdp").enable_cache()

settings.register_profile("jaxdp", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("jaxdp")

# A module whose tests all run with arrays of doubles.
_MARKED = "pytestmark = pytest.mark.float64"
# Linux gives a process 65,530 mappings; every compilation keeps some, and without more XLA crashes.
_MANY_MAPPINGS = 25_000

# Parts of the long suite. A digest of its name places a test, so that new ones move no other.
_TENTHS = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tenth", type=int, help="of the long tests, run those of this tenth only")
    parser.addoption("--draws", default="0", help="a word; tests draw other noise for another one")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tenth = config.getoption("tenth")
    if tenth is None:
        return

    def is_kept(item: pytest.Item) -> bool:
        is_of_tenth = zlib.crc32(item.nodeid.encode()) % _TENTHS == tenth % _TENTHS
        return item.get_closest_marker("long") is None or is_of_tenth

    config.hook.pytest_deselected(items=[item for item in items if not is_kept(item)])
    items[:] = [item for item in items if is_kept(item)]


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Constants of modules with the marker `float64` are doubles, too."""
    marked = isinstance(collector, pytest.Module) and _MARKED in collector.path.read_text()
    with jax.enable_x64(True) if marked else contextlib.nullcontext():
        return (yield)


@pytest.fixture(autouse=True)
def traced_numbers_are_doubles(request: pytest.FixtureRequest) -> Iterator[None]:
    """With the marker `float64`, whatever the setting of the process is."""
    is_marked = request.node.get_closest_marker("float64") is not None
    with jax.enable_x64(True) if is_marked else contextlib.nullcontext():
        yield


def _name(request: pytest.FixtureRequest) -> str:
    return f"{request.config.getoption('draws')} {request.node.nodeid}"


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> np.random.Generator:
    """The same numbers in every run, and others with another `--draws`."""
    return np.random.default_rng(zlib.crc32(_name(request).encode()))


@pytest.fixture(autouse=True)
def noise_is_known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys "of the operating system" are digests of the test's name: no test fails by chance.

    In other processes, and in fixtures of a module, they are the operating system's.
    """
    name, calls = _name(request), itertools.count()

    def urandom(size: int) -> bytes:
        return hashlib.shake_256(f"{name} {next(calls)}".encode()).digest(size)

    random_key = importlib.import_module("jaxdp._core.random_key")
    monkeypatch.setattr(random_key, "os", types.SimpleNamespace(urandom=urandom))
    # What scikit-learn draws from without a `random_state`.
    np.random.seed(zlib.crc32(name.encode()))  # noqa: NPY002


@pytest.fixture(autouse=True)
def types_are_checked_once(request: pytest.FixtureRequest) -> None:
    if first_calls.test is not request.function:
        first_calls.CALLED.clear()
        first_calls.test = request.function


@pytest.fixture(autouse=True, scope="module")
def few_compilations_are_kept() -> Iterator[None]:
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > _MANY_MAPPINGS:
        jax.clear_caches()
