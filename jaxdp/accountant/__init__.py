"""From dominating pairs to delta and epsilon of their composition, by engines of arrays."""
