"""What importing does, and what happens in single precision."""

import subprocess
import sys


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_importing_runs_nothing_and_sets_nothing():
    code = (
        "import jax, sys; import jaxdp\n"
        "assert not jax.config.jax_enable_x64\n"
        "assert 'sklearn' not in sys.modules and 'matplotlib' not in sys.modules\n"
        "from jax._src import xla_bridge\n"
        "assert not xla_bridge._backends, 'a device was started'\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_single_precision_is_refused_with_the_remedy():
    code = (
        "import jaxdp as dp\n"
        "for call in (lambda: dp.Gaussian(1.0), lambda: dp.Budget(1.0, 0.1),\n"
        "             lambda: dp.GDP(1.0), lambda: dp.glm([[1.0]], [1.0], loss='squared',"
        " penalty=None)):\n"
        "    try:\n"
        "        call()\n"
        "    except ValueError as error:\n"
        "        assert 'jax_enable_x64' in str(error)\n"
        "    else:\n"
        "        raise AssertionError('accepted')\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_precision_turned_off_later_is_refused_too():
    code = (
        "import jax, jaxdp as dp\n"
        "jax.config.update('jax_enable_x64', True)\n"
        "noise = dp.Gaussian(1.0)\n"
        "jax.config.update('jax_enable_x64', False)\n"
        "try:\n"
        "    noise.log_delta(1.0, 1.0)\n"
        "except ValueError as error:\n"
        "    assert 'jax_enable_x64' in str(error)\n"
        "else:\n"
        "    raise AssertionError('accepted')\n"
    )
    done = run(code)
    assert done.returncode == 0, done.stderr


def test_single_precision_arguments_are_promoted():
    import jax.numpy as jnp

    import jaxdp as dp

    value = dp.Gaussian(jnp.float32(0.5)).log_delta(jnp.float32(1.0), jnp.float32(0.25))
    assert value.dtype == jnp.float64
    assert value == dp.Gaussian(0.5).log_delta(1.0, 0.25)
