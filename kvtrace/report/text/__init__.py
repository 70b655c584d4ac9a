"""Plain-text tables of the verbs, for terminals."""
