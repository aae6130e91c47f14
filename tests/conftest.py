"""Strict: double precision, no silent rank promotion, warnings are errors, types are checked."""

import tempfile
from pathlib import Path

import jax
from hypothesis import settings
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
# The suite compiles the same kernels over and over, in every worker.
jax.config.update(
    "jax_compilation_cache_dir", str(Path(tempfile.gettempdir()) / f"jaxdp-tests-{jax.__version__}")
)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
install_import_hook("jaxdp", "beartype.beartype")

settings.register_profile("jaxdp", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("jaxdp")
