"""A user's hardware file: a built-in GPU in its host, and what differs."""
