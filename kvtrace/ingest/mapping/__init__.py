"""Logs that no format knows, read by a mapping file that names their fields, units and clock."""

from __future__ import annotations

from kvtrace.ingest.mapping.offer import offer_mapping
from kvtrace.ingest.mapping.parse import load_mapping
from kvtrace.ingest.mapping.reader import recognise_mapped, unused_mapping
from kvtrace.ingest.mapping.spec import FORMAT_NAME, Mapping

__all__ = [
    "FORMAT_NAME",
    "Mapping",
    "load_mapping",
    "offer_mapping",
    "recognise_mapped",
    "unused_mapping",
]
