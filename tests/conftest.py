"""Strict: double precision, no silent rank promotion, warnings are errors, types are checked."""

import jax
from hypothesis import settings
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_rank_promotion", "raise")
install_import_hook("jaxdp", "beartype.beartype")

settings.register_profile("jaxdp", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("jaxdp")
