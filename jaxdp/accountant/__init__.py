"""Accounting engines: pure functions of arrays, from dominating pairs to delta."""
