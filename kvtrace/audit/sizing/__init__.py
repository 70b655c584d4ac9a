"""How large a pool should be, what each tier should keep, and where it breaks even."""
