"""What a comparison of two audits holds: versioned, as the audit record is.

JSON Schema: `comparison.schema.json` beside this module, generated from these types.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from kvtrace.audit.record import Cell, Severity

COMPARISON_SCHEMA_VERSION: Final = 1
COMPARISON_SCHEMA_TITLE: Final = "kvtrace comparison of two audits"
Standing = Literal[
    "equal", "no_difference_shown", "differs", "differs_without_interval", "unknown", "other_unit"
]
"""equal: the same value. no_difference_shown: another value, and the intervals overlap, or two
replays differ by less than the SLO check takes for equal. differs: they do not overlap, or both
values are exact. differs_without_interval: of two modelled values without an interval. unknown: one
of them is null. other_unit: they cannot be set side by side."""


class Caution(msgspec.Struct, kw_only=True):
    """Why figures of the two audits do not answer the same question."""

    code: str
    message: str


class Row(msgspec.Struct, kw_only=True):
    """One figure of both audits."""

    id: str
    title: str
    unit: str
    a_unit: str
    """Another one only where the two cannot be set side by side."""
    a: Cell
    b: Cell
    a_low: float | None = None
    a_high: float | None = None
    b_low: float | None = None
    b_high: float | None = None
    difference: float | None = None
    """b less a; null where one is unknown or no number."""
    standing: Standing
    a_source: str = ""
    b_source: str = ""


class VerdictChange(msgspec.Struct, kw_only=True):
    """The verdicts, and whether the outcome is another one."""

    is_changed: bool
    rows: list[Row]
    """Outcome, confidence, the pooled option that is weighed, its rival."""
    a_headline: str
    b_headline: str


class OptionChange(msgspec.Struct, kw_only=True):
    """One option that both audits replayed."""

    id: str
    title: str
    rows: list[Row]


class FindingChange(msgspec.Struct, kw_only=True):
    """A finding of one audit, or of both with another severity."""

    id: str
    title: str
    change: Literal["gained", "lost", "severity"]
    a_severity: Severity | None
    b_severity: Severity | None
    message: str
    """As the audit says that has it; of both, as B says."""


class Comparison(msgspec.Struct, kw_only=True):
    """Audit B against audit A."""

    schema_version: int
    a: str
    """Where audit A was read."""
    b: str
    is_like_for_like: bool
    """No caution: a difference is one of what was changed, as far as the audits say."""
    cautions: list[Caution]
    verdict: VerdictChange
    numbers: list[Row]
    """That carry the verdict."""
    options: list[OptionChange]
    options_gained: list[str]
    options_lost: list[str]
    findings: list[FindingChange]
    findings_kept: list[str]
    assumptions: list[Row]
    """Those that differ in value, interval or confirmation."""
    data: list[Row]
    """Totals and identity of the data that differ."""
