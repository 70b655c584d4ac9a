"""Findings as lines that open, and their actions, each said once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from kvtrace.audit.record import AuditRecord, Finding
from kvtrace.report.texts import Texts
from kvtrace.report.view import QuantityView, quantity_view, slug

SEVERITIES: Final = ("critical", "warning", "info")
"""The gravest first."""
_ACTIONS: Final = ("move_less", "faster", "nearer", "measure", "other")
_SENTENCE: Final = re.compile(r"(?<=[^\s.])[.;] |\. |。")
_CLAUSE: Final = re.compile(r"[,;:(]")
_ALIKE: Final = 0.75
"""How much of their first clauses two actions share to be one."""
_MOST: Final = 190
"""Longest first sentence of a finding, in characters."""


@dataclass(frozen=True, slots=True)
class FindingView:
    """One finding as shown: a line, and what opens behind it."""

    finding: Finding
    short: str
    """The sentence of its line: the first one of its message."""
    common: str
    """What all of its evidence has in common: said once."""
    evidence: tuple[tuple[QuantityView, str], ...]
    """Each number with what is its own."""
    threshold: QuantityView
    table_anchor: str | None


@dataclass(frozen=True, slots=True)
class Action:
    """One action and the findings that ask for it."""

    text: str
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class ActionGroup:
    """The actions of one kind."""

    kind: str
    members: tuple[Action, ...]


def finding_views(record: AuditRecord, texts: Texts) -> tuple[FindingView, ...]:
    """The findings, the gravest first."""
    ordered = sorted(record.findings, key=lambda finding: SEVERITIES.index(finding.severity))
    return tuple(_view(finding, record, texts) for finding in ordered)


def _view(finding: Finding, record: AuditRecord, texts: Texts) -> FindingView:
    evidence = [quantity_view(one, texts) for one in finding.evidence]
    qualifiers = [_qualifiers(one) for one in evidence]
    shared = [
        word for word in (qualifiers[0] if qualifiers else ()) if all(word in q for q in qualifiers)
    ]
    join = texts("finding.evidence_join")
    own = [join.join(word for word in words if word not in shared) for words in qualifiers]
    return FindingView(
        finding,
        first_sentence(finding.message),
        join.join(shared),
        tuple(zip(evidence, own, strict=True)),
        quantity_view(finding.threshold, texts),
        f"table-{slug(finding.table)}" if finding.table in record.tables else None,
    )


def _qualifiers(one: QuantityView) -> tuple[str, ...]:
    """What stands behind a number: its interval or why it has none, its kind, its source."""
    return tuple(
        word for word in (one.interval or one.interval_reason, one.kind, one.source) if word
    )


def first_sentence(message: str) -> str:
    """The first sentence of a message, cut at a word where it is long."""
    head = message
    for end in _SENTENCE.finditer(message):
        if message.count("(", 0, end.start()) == message.count(")", 0, end.start()):
            head = message[: end.start()]
            break
    if len(head) <= _MOST:
        return head
    cut = head[:_MOST].rsplit(" ", 1)[0].rstrip(",;:")
    return f"{cut}…"


def _alike(action: str, told: Iterable[str]) -> str:
    """The action of the list that asks for the same thing, else the action itself."""
    mine = _CLAUSE.split(action, maxsplit=1)[0]
    for other in told:
        theirs = _CLAUSE.split(other, maxsplit=1)[0]
        if SequenceMatcher(a=mine, b=theirs, autojunk=False).ratio() >= _ALIKE:
            return other
    return action


def action_groups(findings: Sequence[Finding]) -> tuple[ActionGroup, ...]:
    """The actions by kind; those that begin with nearly the same words stand once."""
    groups = []
    for kind in _ACTIONS:
        actions: dict[str, list[Finding]] = {}
        for finding in findings:
            if finding.action_kind == kind:
                actions.setdefault(_alike(finding.action, actions), []).append(finding)
        members = tuple(Action(text, tuple(asked)) for text, asked in actions.items())
        if members:
            groups.append(ActionGroup(kind, members))
    return tuple(groups)
