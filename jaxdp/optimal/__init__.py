"""Noise and mechanisms designed by linear programming, with certificates."""
