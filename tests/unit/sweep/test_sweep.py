"""Sweeps: in memory and streamed, what they are, and what fails in them."""

import errno
import functools
import time
from pathlib import Path

import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest
import tqdm
from matplotlib import pyplot

import jaxdp as dp
from jaxdp.sweep import provenance

matplotlib.use("Agg")

AXES = {"scale": np.linspace(0.5, 3.0, 7), "epsilon": np.linspace(0.0, 4.0, 11)}


sweep = functools.partial(dp.sweep, progress=False)


def product(scale, epsilon):
    return np.asarray(scale) * np.asarray(epsilon)


def log_delta(scale, epsilon):
    return dp.Mechanism(dp.Gaussian(scale), 1.0).log_delta(epsilon)


def test_in_memory_it_is_the_function():
    found = sweep(log_delta, AXES, chunk=25)
    expected = log_delta(AXES["scale"][:, None], AXES["epsilon"][None, :])
    np.testing.assert_allclose(found["value"], expected, rtol=1e-12)
    assert found["value"].dims == ("scale", "epsilon")
    assert found.attrs["precision"] == "float64"
    assert found.attrs["failures"] == ""


@pytest.mark.parametrize("chunk", [1, 4, 11, 30, 77, 1000])
def test_every_way_to_cut_it_gives_the_same(chunk, tmp_path):
    expected = product(AXES["scale"][:, None], AXES["epsilon"][None, :])
    np.testing.assert_array_equal(sweep(product, AXES, chunk=chunk)["value"], expected)
    stored = sweep(product, AXES, tmp_path / "grid.zarr", chunk=chunk)
    np.testing.assert_array_equal(stored["value"], expected)


def test_functions_of_all_kinds(tmp_path):
    factor = 3.0

    def closure(scale, epsilon):
        return {"a": factor * scale, "b": epsilon}

    found = sweep(closure, AXES, tmp_path / "closure.zarr", chunk=20)
    np.testing.assert_array_equal(found["a"][:, 0], 3.0 * AXES["scale"])
    np.testing.assert_array_equal(found["b"][0], AXES["epsilon"])
    bound = functools.partial(lambda scale, epsilon, extra: scale + extra, extra=1.0)
    np.testing.assert_array_equal(sweep(bound, AXES)["value"][:, 0], AXES["scale"] + 1.0)
    factor = 4.0
    with pytest.raises(ValueError, match="another sweep"):
        sweep(closure, AXES, tmp_path / "closure.zarr", chunk=20)


def test_points_that_fail_are_told(tmp_path):
    def picky(scale, epsilon):
        if jnp.any((scale == 0.5) & (epsilon > 3.9)):
            raise ValueError("too noisy")
        return scale

    for to in (None, tmp_path / "grid.zarr"):
        found = sweep(picky, AXES, to, chunk=11)
        assert int(np.isnan(found["value"]).sum()) == 1
        assert found.attrs["failures"] == "scale=0.5, epsilon=4: ValueError: too noisy"
    with pytest.raises(ValueError, match="never"):
        sweep(_never, AXES)


def _never(scale, epsilon):
    raise ValueError("never")


def test_what_a_function_calls_is_part_of_it(tmp_path):
    """Another body of a helper in the function's own module is another sweep."""
    source = "def helper(x):\n    return x {0} 2\ndef function(scale):\n    return helper(scale)\n"
    made = []
    for operator in "+*":
        module: dict[str, object] = {"__name__": "of_the_test"}
        exec(source.format(operator), module)
        made.append(module["function"])
    sweep(made[0], {"scale": [1.0]}, tmp_path / "grid.zarr")
    with pytest.raises(ValueError, match="another sweep"):
        sweep(made[1], {"scale": [1.0]}, tmp_path / "grid.zarr")


def test_functions_that_fail_everywhere_say_so_at_once():
    calls = []

    def broken(scale):
        calls.append(1)
        raise TypeError("broken")

    with pytest.raises(TypeError, match="broken"):
        sweep(broken, {"scale": np.linspace(1.0, 2.0, 2**14)})
    assert len(calls) < 100


def test_a_first_block_that_fails_is_no_dead_sweep(tmp_path):
    def picky(scale, epsilon):
        if jnp.any(scale < 1.0):
            raise ValueError("too small")
        return scale

    for to in (None, tmp_path / "grid.zarr"):
        found = sweep(picky, AXES, to, chunk=11)
        assert np.isnan(found["value"][0]).all()
        assert not np.isnan(found["value"][2:]).any()


def test_only_the_kernel_is_called_on_blocks(tmp_path):
    """No block is worked out twice to learn the results' names."""
    sizes = []

    def counted(scale, epsilon):
        sizes.append(scale.size)
        return scale

    sweep(counted, AXES, tmp_path / "grid.zarr", chunk=77)
    assert sizes == [1, 77]


def test_memory_is_taken_once_a_variable(monkeypatch):
    """Not once a block, which is quadratic in the size of the grid."""
    made, full = [], np.full
    monkeypatch.setattr(np, "full", lambda *args: made.append(1) or full(*args))
    sweep(product, AXES, chunk=7)
    assert len(made) == 2


def test_results_are_labelled(tmp_path):
    for to in (None, tmp_path / "grid.zarr"):
        found = sweep(lambda epsilon: {"log_delta": -epsilon}, {"epsilon": [1.0, 2.0]}, to)
        assert found["epsilon"].attrs["units"] == "nats"
        assert found["log_delta"].attrs["long_name"] == "logarithm of delta"
        assert found.attrs["commit"]


def test_plain_numbers_have_no_unit(tmp_path):
    """On a picture, only what has a unit has brackets."""
    units = {"epsilon": "nats", "log_delta": "nats", "scale": "units of the query"}
    units |= {"sensitivity": "units of the query"}
    axes = {name: [1.0] for name in provenance._LABELS if name != "log_delta"}
    for to in (None, tmp_path / "grid.zarr"):
        found = sweep(lambda epsilon, **_: {"log_delta": -epsilon}, axes, to)
        for name, array in (*found.coords.items(), ("log_delta", found["log_delta"])):
            assert array.attrs.get("units") == units.get(name), name
            assert array.attrs["long_name"]
    line = sweep(lambda steps: 2 * steps, {"steps": [1.0, 2.0]})["value"].plot()[0]
    assert line.axes.get_xlabel() == "number of steps"
    pyplot.close("all")


def test_the_bar_does_not_count_compilation(monkeypatch):
    """Rate and time left are those of the chunks after the first."""
    bars = []

    class Bar(tqdm.tqdm):
        def close(self):
            bars.append(self.format_dict)
            super().close()

    def slow_at_first(scale):
        time.sleep(1.0 if scale[0] == 0 else 0.01)
        return scale

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    start = time.perf_counter()
    dp.sweep(slow_at_first, {"scale": np.arange(20.0)}, chunk=1)
    assert (bars[0]["n"], bars[0]["total"], bars[0]["initial"]) == (20, 20, 1)
    assert 0.19 <= bars[0]["elapsed"] <= time.perf_counter() - start - 1.0


def test_a_full_disk_keeps_what_is_done(tmp_path, monkeypatch):
    to, moved = tmp_path / "grid.zarr", Path.replace

    def full(path, target):
        if target.parent.parent.name == "c" and target.parent.name == "3":
            raise OSError(errno.ENOSPC, "No space left on device")
        return moved(path, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="disk is full; 3 of 7 chunks are done") as found:
        sweep(product, AXES, to, chunk=11)
    assert found.value.errno == errno.ENOSPC
    monkeypatch.undo()
    resumed = sweep(product, AXES, to, chunk=11)
    np.testing.assert_array_equal(resumed["value"], sweep(product, AXES)["value"])


@pytest.mark.parametrize(
    ("axes", "named", "message"),
    [
        ({}, {}, "at least one axis"),
        ({"not a name": [1.0]}, {}, "named as arguments"),
        ({"scale": []}, {}, "not empty"),
        ({"scale": [1.0, np.nan]}, {}, "finite"),
        ({"scale": [1.0]}, {"chunk": 0}, "chunk"),
        ({"scale": [1.0]}, {"stripe": (2, 2)}, "stripe"),
        ({"scale": [1.0]}, {"devices": []}, "devices"),
        ({"scale": [1.0]}, {"stripe": (0, 2)}, "to must name a store"),
    ],
)
def test_bad_input(axes, named, message):
    with pytest.raises(ValueError, match=message):
        sweep(lambda scale: scale, axes, **named)


def test_shapes_that_do_not_fit_and_other_folders(tmp_path):
    with pytest.raises(ValueError, match="arguments' shape"):
        sweep(lambda scale, epsilon: 1.0, AXES)
    with pytest.raises(ValueError, match="named as an axis"):
        sweep(lambda scale, epsilon: {"scale": scale}, AXES)
    (tmp_path / "mine.zarr").mkdir()
    with pytest.raises(ValueError, match="new folder"):
        sweep(product, AXES, tmp_path / "mine.zarr")
    sweep(product, AXES, tmp_path / "grid.zarr")
    with pytest.raises(ValueError, match="another sweep"):
        sweep(product, {**AXES, "scale": [1.0]}, tmp_path / "grid.zarr")


@pytest.mark.parametrize(
    "values",
    [("5", "10"), ("'a'", "'bb'"), ("[1, (2.0,)]", "[1, (3.0,)]"), ("NEW({1})", "NEW({2})")],
)
@pytest.mark.parametrize(
    "where",
    [
        "def function(scale):\n    return scale + 0 * len(str(GIVEN))",
        "def function(scale):\n    return inner(scale)\ndef inner(x):\n    return x, str(GIVEN)",
    ],
)
def test_a_plain_global_is_part_of_the_function(where, values):
    """Also of a function that it calls; objects and names that the code has not are no part."""
    digests = []
    for value in (*values, values[0]):
        module: dict[str, object] = {
            "__name__": "of_the_test",
            "NEW": lambda x: np.array(sorted(x)),
        }
        exec(f"GIVEN = {value}\nUNUSED = {len(digests)}\n{where}", module)
        digests.append(provenance.digest_of(module["function"], "grid"))
    assert digests[0] != digests[1]
    assert digests[0] == digests[2]


FACTOR = 1.0


def times_factor(scale):
    return FACTOR * scale


def test_a_store_sees_a_changed_global(tmp_path, monkeypatch):
    monkeypatch.setitem(times_factor.__globals__, "FACTOR", 5.0)
    sweep(times_factor, {"scale": [1.0, 2.0]}, tmp_path / "grid.zarr")
    monkeypatch.setitem(times_factor.__globals__, "FACTOR", 1.0)
    with pytest.raises(ValueError, match="another sweep"):
        sweep(times_factor, {"scale": [1.0, 2.0]}, tmp_path / "grid.zarr")
