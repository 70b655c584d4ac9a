"""What `kvtrace replay` says below its table, for people: findings, and thresholds of loads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kvtrace.audit.record import Finding
from kvtrace.report.format import safe_text
from kvtrace.report.text.table import text_table

_MARKS: Final = {"critical": "!!", "warning": "! ", "info": "- "}
_NEVER: Final = "never"


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """Three lines a finding: what, the numbers, what to do."""
    return [
        line
        for one in findings
        for line in (
            f"{_MARKS[one.severity]} {one.severity}: {one.title}  [{one.id}]",
            f"   {safe_text(one.message)}",
            f"   do: {safe_text(one.action)}",
        )
    ]


def threshold_lines(scenarios: Sequence[Mapping[str, object]]) -> list[str]:
    """A table by tier and length, and a line a tier with the settings; nothing without tiers."""
    rows: list[tuple[object, ...]] = []
    settings: list[str] = []
    lengths: list[str] = []
    for scenario in scenarios:
        for tier in _rows(scenario.get("thresholds")):
            name = (scenario["scenario"], tier["tier"])
            (replayed,) = _rows([tier["replayed"]])
            lengths = [f"prompt {one['prompt_tokens']:,}" for one in _rows(tier["break_even"])]
            rows.append(
                (
                    *name,
                    *(_tokens(one["tokens"]) for one in _rows(tier["break_even"])),
                    _tokens(replayed["tokens"]) if replayed["loads"] else "no loads",
                    _tokens(tier["recommended_tokens"]),
                )
            )
            settings.append(safe_text(f"{name[0]}, {name[1]}: {_settings(tier)}"))
    if not rows:
        return []
    header = ("loads pay from (modelled)", "tier", *lengths,
              "in this replay", "recommended")  # fmt: skip
    return ["", text_table(header, rows), "", *settings]


def _settings(tier: Mapping[str, object]) -> str:
    if tier["recommended_tokens"] is None:
        return (
            "no threshold pays; do not load from it, or only what an arbiter prices below prefill"
        )
    return " · ".join(
        f"{one['engine']} {one['setting']} = {one['value']}" for one in _rows(tier["settings"])
    )


def _rows(value: object) -> list[dict[str, object]]:
    return value if isinstance(value, list) else []


def _tokens(tokens: object) -> str:
    return _NEVER if tokens is None else f"{tokens:,}"
