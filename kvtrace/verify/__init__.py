"""The headline numbers again, by a way that shares no code with the first, and what they meet."""
