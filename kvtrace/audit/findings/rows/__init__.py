"""The rows of the registry, by what they look at."""
