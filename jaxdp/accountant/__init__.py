"""From dominating pairs to delta: engines that are pure functions of arrays."""
