"""The verb `explain`: what a name in a report, a message or a table means, and what to do."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvtrace.api.explain_names import names_to_explain
from kvtrace.api.query_results import to_json
from kvtrace.audit.record import AuditRecord
from kvtrace.errors import UsageError
from kvtrace.query.catalog import load_catalog
from kvtrace.report.explain.codes import CODE, explain_code
from kvtrace.report.explain.explanation import Explanation, Fact
from kvtrace.report.explain.options import explain_option

_FAMILY: Final = re.compile(r"KVT-[A-Z]")


@dataclass(frozen=True, slots=True)
class Explained:
    """What a name means; one that names several things has several explanations."""

    explanations: tuple[Explanation, ...]

    def to_json(self) -> str:
        """All of them with their facts."""
        return to_json([one.document() for one in self.explanations])

    def lines(self, width: int = 100) -> list[str]:
        """For people, a blank line between two."""
        lines: list[str] = []
        for one in self.explanations:
            lines += [*([""] if lines else []), *one.lines(width)]
        return lines


def explain(name: str, *, audit: Path | str | None = None) -> Explained:
    """What a finding, error code, query, option, outcome, metric, column or word means.

    With `audit`, also what that audit says of it: evidence, figures, values of assumptions.

    Raises:
        UsageError: KVT-U086, nothing has this name; close ones are named.
        InputError, OutputError: the audit cannot be read.
    """
    record = None if audit is None else _record(audit)
    asked = name.strip()
    found = list(_explanations(asked, record))
    if not found:
        raise _unknown(asked, record)
    if record is not None:
        found = [_completed(one, record) for one in found]
    return Explained(tuple(found))


def _record(audit: Path | str) -> AuditRecord:
    from kvtrace.api.reporting import load_audit

    return load_audit(audit).record


def _explanations(name: str, record: AuditRecord | None) -> Iterator[Explanation]:
    """By kind; what is only a number of the given audit comes last."""
    code = name.upper()
    if CODE.fullmatch(code):
        found = explain_code(code)
        if found is not None:
            yield found
        return
    if "/" in name:
        yield from _query(name)
        return
    yield from _words(name)
    if record is not None:
        from kvtrace.report.explain.in_audit import note_in, number_in

        yield from (one for make in (number_in, note_in) if (one := make(record, name)) is not None)


def _words(name: str) -> Iterator[Explanation]:
    from kvtrace.report.explain.findings import explain_finding, explain_threshold
    from kvtrace.report.explain.terms import explain_money, explain_outcome, explain_terms

    makers = (explain_finding, explain_threshold, explain_option, explain_outcome, explain_money)
    yield from (found for make in makers if (found := make(name)) is not None)
    yield from explain_terms(name)


def _query(name: str) -> Iterator[Explanation]:
    catalog = load_catalog()
    if name not in catalog.names():
        return
    info = catalog.describe(name)
    facts = [
        Fact("grain", info.grain),
        Fact("reads", ", ".join(info.reads)),
        *(Fact("note", note) for note in info.notes),
        *(Fact("column", f"{one.name}, {one.unit}: {one.meaning}") for one in info.columns),
        Fact("run it", f"kvtrace query DATASET {name}"),
    ]
    yield Explanation(name, "query", info.question, tuple(facts))


def _completed(one: Explanation, record: AuditRecord) -> Explanation:
    """With what the audit says; codes, settings and words have nothing there."""
    from kvtrace.report.explain.in_audit import facts_in

    silent = {"error code", "term", "metric", "column", "number", "note", "threshold"}
    return one if one.kind in silent else one.with_audit(facts_in(record, one))


def _unknown(name: str, record: AuditRecord | None) -> UsageError:
    known = names_to_explain()
    if record is not None:
        from kvtrace.report.explain.in_audit import names_in

        known += names_in(record)
    if (family := _FAMILY.match(name.upper())) is not None:
        known = [one for one in known if one.startswith(family.group())]
    lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)
    shown = " or ".join(f"`{lower[one]}`" for one in close)
    return UsageError(
        "KVT-U086",
        f"nothing is named `{name}`",
        hint=f"did you mean {shown}"
        if close
        else "an id of a report, a code such as KVT-I004, a query, an option or a column",
    )
