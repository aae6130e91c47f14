"""Numerical functions without privacy: tails, series, roots and quadrature."""
