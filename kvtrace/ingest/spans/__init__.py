"""Spans of model calls: what their attributes say, and which of them are one call."""
