"""Budgets and running costs for releases that are chosen one after the other."""
