"""kvtrace: replay LLM-serving logs and learn whether pooled KV-cache storage would pay off."""

__version__ = "0.1.0"
