"""Gates of `--fail-on`: a condition that must not hold, read from text and judged on a record."""
