"""Bounds for sampled Gaussians: a whole batch is inverted at once, lanes along the last axis.

`engine` is the interface, and `releases` turns pairs into arrays. Each stage plans a contour
(`plan`, `guess`), sums along it (`law`, `cutoff`, `transform`, `contour`), bounds the sum's errors
(`cumulant`, `errors`) and inverts it (`curve`). `derivative` differentiates the sum.
"""
