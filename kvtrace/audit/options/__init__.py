"""The options on common axes."""
