"""The verdict: what it weighs, its rules in order, and its words."""
