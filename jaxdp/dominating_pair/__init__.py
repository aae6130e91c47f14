"""Dominating pairs: the laws by which an accountant describes one release in one direction."""
