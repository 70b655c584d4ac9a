"""Fits the efficiencies of the cost model to published measurements."""
