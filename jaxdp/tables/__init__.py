"""Tables of counts, sums and means under one budget."""

from jaxdp._core.lazy import attach as _attach

__all__ = _attach(__name__, __file__)  # pyright: ignore
