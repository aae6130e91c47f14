"""Budgets and records of what is spent while releases are chosen one after the other."""
