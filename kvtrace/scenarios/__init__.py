"""Scenarios as TOML: what a file states, checked strictly, as scenarios that can be replayed."""
