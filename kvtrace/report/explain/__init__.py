"""What a name in a report, a message or a table means, and what to do about it."""
