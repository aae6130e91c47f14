"""Noise for a budget: calibrated, fitted, compared, spread over coordinates, bounded below."""
