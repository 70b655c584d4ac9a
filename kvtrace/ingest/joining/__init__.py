"""Which rows of which sources are the same request."""
