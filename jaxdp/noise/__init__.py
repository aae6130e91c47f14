"""Scalar noise distributions, one a file."""
