"""Intervals of the carrying numbers."""
