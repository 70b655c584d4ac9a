"""Whether a log holds all requests or a sample of them."""
