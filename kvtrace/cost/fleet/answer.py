"""What somebody said of the fleet that is no number: with who said it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from kvtrace.cost.evidence import EvidenceKind

T = TypeVar("T", bound=str | bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Generic[T]):
    """A choice with its evidence, as `Constant` is for numbers."""

    id: str
    title: str
    value: T
    kind: EvidenceKind
    """given: somebody stated it; assumed: nobody did."""
    source: str

    def given(self, value: T, *, kind: EvidenceKind, source: str) -> Answer[T]:
        """The same question with another answer."""
        return replace(self, value=value, kind=kind, source=source)
