"""Dominating pairs: what an accountant must know of one release in one adjacency direction."""
