"""Prometheus series of engines, KV layers and machines: what each becomes, and what it gained."""
