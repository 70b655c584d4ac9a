"""A dataset as an anonymised trace that other tools replay."""

from __future__ import annotations

from kvtrace.export.targets import TARGETS
from kvtrace.export.write import Exported, export_trace

__all__ = ["TARGETS", "Exported", "export_trace"]
