"""Engines that turn releases into bounds on delta: pure functions of arrays."""
