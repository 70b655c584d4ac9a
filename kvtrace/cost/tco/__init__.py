"""Total cost of ownership: what an option needs, times dated unit prices."""
