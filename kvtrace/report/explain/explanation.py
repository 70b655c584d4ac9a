"""An explanation: a name, what kind of thing it is, and labelled facts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

from kvtrace.report.format import safe_text

Kind = Literal[
    "finding",
    "threshold",
    "error code",
    "query",
    "option",
    "verdict",
    "term",
    "metric",
    "column",
    "setting",
    "number",
    "note",
]
_LABEL: Final = 11


@dataclass(frozen=True, slots=True)
class Fact:
    """One labelled statement."""

    label: str
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one name means."""

    name: str
    kind: Kind
    title: str
    facts: tuple[Fact, ...] = ()
    in_audit: tuple[Fact, ...] = ()
    """What the audit that was given says of it; empty where none was given."""

    def with_audit(self, facts: tuple[Fact, ...]) -> Explanation:
        """The same, with what an audit says."""
        return replace(self, in_audit=facts)

    def document(self) -> dict[str, object]:
        """For scripts."""
        return {
            "name": self.name,
            "kind": self.kind,
            "title": self.title,
            "facts": [{"label": one.label, "text": one.text} for one in self.facts],
            "in_audit": [{"label": one.label, "text": one.text} for one in self.in_audit],
        }

    def lines(self, width: int) -> Iterator[str]:
        """For people: the head, then each fact beside its label."""
        yield from textwrap.wrap(f"{self.name} ({self.kind}): {self.title}", width)
        for fact in self.facts:
            yield from _fact(fact, width)
        if self.in_audit:
            yield "in this audit"
            for fact in self.in_audit:
                yield from _fact(fact, width)


def _fact(fact: Fact, width: int) -> Iterator[str]:
    label, indent = f"  {fact.label}", " " * (_LABEL + 2)
    text = safe_text(fact.text, limit=max(len(fact.text), 1))
    yield from textwrap.wrap(
        text,
        width,
        initial_indent=f"{label:<{_LABEL + 1}} ",
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
