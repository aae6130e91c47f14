"""A sweep's store that is damaged: right numbers again, or an error that names the file."""

import functools
import itertools
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxdp as dp
from jaxdp._core.files import Format, sealed

AXES = {"scale": np.linspace(0.5, 3.0, 4), "epsilon": np.linspace(0.0, 4.0, 6)}
CHUNKS = [f"{name}/c/{i}/0" for name in ("value", "status") for i in range(4)]
MANIFEST = "scale/.sweep/sweep.json"
FILES = [
    "zarr.json",
    *(f"{name}/zarr.json" for name in ("scale", "epsilon", "value", "status")),
    *(f"{name}/c/0" for name in AXES),
    *CHUNKS,
    MANIFEST,
    *(f"scale/.sweep/{number}.done" for number in range(4)),
]
damages = functools.partial(settings, deadline=None, derandomize=True)
sweep = functools.partial(dp.sweep, progress=False)


def swept(to):
    """A sweep with one point that fails."""
    return sweep(picky, AXES, to, chunk=6)


def picky(scale, epsilon):
    if np.any((np.asarray(scale) == 3.0) & (np.asarray(epsilon) == 4.0)):
        raise ValueError("too much")
    return np.asarray(scale) * np.exp(np.asarray(epsilon))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    to = tmp_path_factory.mktemp("whole") / "grid.zarr"
    swept(to)
    assert sorted(FILES) == sorted(
        str(path.relative_to(to)) for path in to.rglob("*") if path.is_file()
    )
    return to


class Copy:
    """A copy of a store, to damage; what the same call then makes of it."""

    def __init__(self, whole: Path):
        self.whole, self.to = whole, whole.with_name("copy.zarr")
        shutil.rmtree(self.to, ignore_errors=True)
        shutil.copytree(whole, self.to)

    def check(self, damaged: str) -> None:
        if damaged == MANIFEST:
            with pytest.raises(
                ValueError, match=r"is damaged, .* or remove|must be a new folder"
            ) as told:
                swept(self.to)
            assert str(self.to / damaged) in str(told.value)
            return
        found = swept(self.to)
        expected = xarray.open_zarr(self.whole)
        xarray.testing.assert_identical(found.load(), expected.load())
        # What a plain reader sees is right again too.
        xarray.testing.assert_identical(xarray.open_zarr(self.to).load(), expected)


@damages(max_examples=20)
@given(place=st.sampled_from(FILES), at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_flipped_bits(whole, place, at, bit):
    copy = Copy(whole)
    content = bytearray((copy.to / place).read_bytes())
    content[int(at * len(content))] ^= 1 << bit
    (copy.to / place).write_bytes(content)
    copy.check(place)


@pytest.mark.long
@damages(max_examples=25)
@given(place=st.sampled_from(FILES), at=st.floats(0, 1, exclude_max=True))
def test_truncated_files(whole, place, at):
    copy = Copy(whole)
    content = (copy.to / place).read_bytes()
    (copy.to / place).write_bytes(content[: int(at * len(content))])
    copy.check(place)


@pytest.mark.parametrize("place", FILES)
def test_deleted_files(whole, place):
    copy = Copy(whole)
    (copy.to / place).unlink()
    copy.check(place)


@pytest.mark.long
def test_swapped_files(whole):
    """Chunks of one variable, of two, and markers."""
    markers = [f"scale/.sweep/{number}.done" for number in range(2)]
    # Status chunks of blocks without failures are alike.
    pairs = itertools.combinations((*CHUNKS[:4], CHUNKS[7]), 2)
    for first, second in (*pairs, markers):
        copy = Copy(whole)
        contents = [(copy.to / place).read_bytes() for place in (first, second)]
        for place, content in zip((second, first), contents, strict=True):
            (copy.to / place).write_bytes(content)
        copy.check(first)


def test_garbage_in_metadata(whole):
    garbage = (b"", b"[" * 10_000, b"\xff\x00", b"{}", b"0")
    for place, content in (
        *itertools.product((MANIFEST, "scale/.sweep/0.done"), garbage),
        *zip(FILES[:5], garbage, strict=True),
    ):
        copy = Copy(whole)
        (copy.to / place).write_bytes(content)
        copy.check(place)


def test_damaged_blocks_of_other_jobs_are_made_again(whole):
    copy = Copy(whole)
    (copy.to / CHUNKS[1]).unlink()
    found = sweep(picky, AXES, copy.to, chunk=6, stripe=(0, 2))
    xarray.testing.assert_identical(found.load(), xarray.open_zarr(whole).load())


def test_stores_of_other_formats_say_what_to_do(whole):
    copy = Copy(whole)
    manifest = copy.to / MANIFEST
    manifest.write_text(sealed(Format("jaxdp-sweep", 2), {}))
    with pytest.raises(ValueError, match=r"sweep\.json is .*version must be 4, got 2.* remove"):
        swept(copy.to)
    manifest.write_text('{"digest": "of an earlier jaxdp", "variables": ["value"]}')
    with pytest.raises(ValueError, match=r"sweep\.json is damaged, or of another jaxdp"):
        swept(copy.to)


def test_a_plain_reader_sees_no_wrong_number(whole):
    """Zarr's own checksum finds it, without the sweep."""
    copy = Copy(whole)
    chunk = copy.to / CHUNKS[0]
    content = bytearray(chunk.read_bytes())
    content[-7] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        xarray.open_zarr(copy.to).load()


def test_failed_and_not_done_are_told_apart(tmp_path):
    to = tmp_path / "grid.zarr"
    sweep(picky, AXES, to, chunk=6, stripe=(1, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = xarray.open_zarr(to)
    assert found["status"].attrs["flag_values"] == [0, 1, 2]
    assert found["status"].attrs["flag_meanings"] == "not_done done failed"
    assert found.attrs["failures"] == "scale=3, epsilon=4: ValueError: too much"
    expected = np.repeat([[0], [1], [0], [1]], 6, axis=1)
    expected[3, 5] = 2
    np.testing.assert_array_equal(found["status"], expected)
    np.testing.assert_array_equal(np.isnan(found["value"]), expected != 1)


def test_more_failures_than_are_told(tmp_path):
    """Every point that failed has its status; only so many their reason."""

    def often(scale):
        if np.any(np.asarray(scale) > 1.0):
            raise ValueError("too\nmuch")
        return scale

    for to in (None, tmp_path / "grid.zarr"):
        found = sweep(often, {"scale": np.arange(300.0)}, to)
        np.testing.assert_array_equal(found["status"], [1, 1, *[2] * 298])
        assert len(found.attrs["failures"].splitlines()) == 100


def gaussian_log_delta(scale, epsilon, extra, *, relation, **fixed):
    return np.asarray(scale) * epsilon


def test_a_store_says_what_it_is_of(tmp_path):
    fixed = {"delta": 1e-6, "dataset_size": 5 * 10**9, "failures": 3, "flag": True, "nothing": None}
    call = functools.partial(
        gaussian_log_delta, extra=np.float64(2.0), relation="add_remove", **fixed
    )
    memory, to = sweep(call, AXES), tmp_path / "grid.zarr"
    sweep(call, AXES, to)
    stored = xarray.open_zarr(to)
    xarray.testing.assert_identical(stored.load(), memory)
    assert stored.attrs["function"] == "gaussian_log_delta"
    assert (stored.attrs["delta"], stored.attrs["extra"]) == (1e-6, 2.0)
    assert stored.attrs["relation"] == "add_remove"
    assert (stored.attrs["failures"], stored.attrs["argument_failures"]) == ("", 3)
    labels = {
        "name": "gaussian_log_delta",
        "long_name": "logarithm of delta (gaussian log delta)",
        "units": "nats",
    }
    assert stored["value"].attrs == labels
    alone = sweep(lambda scale: scale, {"scale": [1.0]})
    assert alone["value"].attrs == {}


def test_sweeps_are_written_as_netcdf(tmp_path):
    for to in (None, tmp_path / "grid.zarr"):
        found = swept(to)
        found.to_netcdf(tmp_path / "grid.nc", engine="scipy")
        with xarray.open_dataset(tmp_path / "grid.nc", engine="scipy") as again:
            np.testing.assert_array_equal(again["status"], found["status"])
            np.testing.assert_array_equal(again["value"], found["value"])
            assert again.attrs["failures"] == found.attrs["failures"]


def test_status_is_a_name_of_its_own():
    with pytest.raises(ValueError, match="axes must not be named status"):
        sweep(lambda status: status, {"status": [1.0]})
    with pytest.raises(ValueError, match="must not return a result named as an axis or status"):
        sweep(lambda scale: {"status": scale}, {"scale": [1.0]})
