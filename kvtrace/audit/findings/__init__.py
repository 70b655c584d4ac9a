"""Findings: a registry of checks on what was measured and modelled, one row a check."""
