"""How many instances each option needs, what binds it, and what is left when its pool is not."""
