"""Building blocks that model architectures share: torch modules, each with a function that lists its operators."""
