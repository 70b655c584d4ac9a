"""The verb `compare`: two audits side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from kvtrace.api.query_results import to_json
from kvtrace.api.reporting import load_audit
from kvtrace.audit.compare.audits import compare_audits
from kvtrace.audit.compare.comparison import Comparison
from kvtrace.report.text.compare import comparison_lines


@dataclass(frozen=True, slots=True)
class Compared:
    """Audit B against audit A."""

    comparison: Comparison

    def to_json(self) -> str:
        """Everything that was set side by side, equal figures of options too."""
        return to_json(msgspec.to_builtins(self.comparison))

    def summary(self, width: int = 100) -> list[str]:
        """What is not equal, for people."""
        return comparison_lines(self.comparison, width)


def compare(a: Path | str, b: Path | str) -> Compared:
    """Verdict, numbers, options, findings, assumptions and data of two audits.

    Each is an audit.json or the folder that holds one, of this version of kvtrace or an older one.

    Raises:
        InputError: one cannot be read.
        OutputError: one is no audit record, or a newer kvtrace wrote it.
    """
    ours, theirs = load_audit(a), load_audit(b)
    return Compared(compare_audits(ours.record, theirs.record, names=(str(a), str(b))))
