"""Single requests with their timeline and their place in the log."""
