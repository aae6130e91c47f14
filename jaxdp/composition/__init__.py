"""Privacy losses that compose: the pairs of a release, their sum, and its text."""
