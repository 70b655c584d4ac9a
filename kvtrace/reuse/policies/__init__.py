"""Caches of one size under one policy over a trace, prefix by prefix, and the bounds of them all.

docs/policies.md states each policy, its source, what is proved of it and what equals other tools.
"""
