"""Raw values of logs: numbers, texts, instants, JSON fields, Python literals."""
