"""Bounds for sampled Gaussians: a batch is inverted at once, lanes along the last axis.

`engine` is the door, `releases` what it makes of pairs. Each of its stages plans
a contour (`plan`, `guess`), sums along it (`law`, `top`, `transform`, `contour`), bounds what the
sum may be off by (`cumulant`, `errors`) and inverts it (`curve`). `derivative` differentiates the
sum.
"""
