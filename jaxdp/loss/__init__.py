"""The privacy loss of a composition: its cumulant, and delta from it."""
