"""jaxdp: a numerical privacy accountant in JAX. Importing it runs nothing and sets nothing.

The stub `__init__.pyi` lists the public names, which are imported on first use.
"""

from jaxdp._core.lazy import attach as _attach

__version__ = "0.1.0"
# scikit-learn and python-flint are extras: without them these names do not exist.
_EXTRA = (
    *("estimators", "DPLasso", "DPLinearRegression", "DPLogisticRegression"),
    *("DPNaiveBayes", "DPPCA"),
    *("verify", "Proof"),
)
__all__ = [name for name in _attach(__name__, __file__, _EXTRA) if name not in _EXTRA]  # pyright: ignore
