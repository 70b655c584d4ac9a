"""`verify`: the headline numbers recomputed by another way, and compared."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from kvtrace.api.opened import AUDIT_FILE, is_dataset, open_dataset, read_earlier
from kvtrace.api.query_results import to_json
from kvtrace.errors import InputError, UsageError
from kvtrace.report.text.table import fitted_table
from kvtrace.store.dataset import Dataset
from kvtrace.verify.check import Check, Verdict, compared, has_failed
from kvtrace.verify.counters import DEFAULT_TOLERANCE
from kvtrace.verify.run import verify_dataset

_WORDS: Final[dict[Verdict, str]] = {
    "pass": "pass",
    "fail": "FAIL",
    "cannot_compare": "cannot compare",
}


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of all checks."""

    checks: tuple[Check, ...]
    dataset_digest: str | None
    """Null where the dataset cannot be read."""

    @property
    def has_passed(self) -> bool:
        """Whether no check failed."""
        return not has_failed(self.checks)

    def to_json(self) -> str:
        """Every check with both values, tolerance, verdict and reason."""
        return to_json(
            {
                "schema_version": 1,
                "dataset_digest": self.dataset_digest,
                "has_passed": self.has_passed,
                "checks": msgspec.to_builtins(self.checks),
            }
        )

    def summary(self, width: int | None = None) -> list[str]:
        """A table of what was compared, the reasons where something was not or failed, a count."""
        header = ("verdict", "check", "independent", "kvtrace", "tolerance", "unit")
        rows = [
            (
                _WORDS[one.verdict],
                one.id,
                _exact(one.independent),
                _exact(one.kvtrace),
                f"± {_exact(one.tolerance)}" if one.tolerance else "equal",
                one.unit,
            )
            for one in self.checks
            if one.verdict != "cannot_compare"
        ]
        lines = [fitted_table(header, rows, width)] if rows else []
        for verdict, title in (("cannot_compare", "cannot compare"), ("fail", "FAIL")):
            found = [one for one in self.checks if one.verdict == verdict]
            if found:
                lines += ["", title, *(f"  {one.id}: {one.why}" for one in found)]
        counts = Counter(one.verdict for one in self.checks)
        said = " · ".join(f"{counts[verdict]} {word}" for verdict, word in _WORDS.items())
        return [*lines, "", said]


def _exact(value: float | int | None) -> str:
    if value is None:
        return "unknown"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.12g}"


def verify(dataset: Path | str, *, tolerance: float = DEFAULT_TOLERANCE) -> Verification:
    """Headline numbers from the rows in plain Python, against queries, audit.json and engines.

    Only what an engine counted has a `tolerance`: a share of its total. A dataset whose bytes are
    not those that were written is one failed check.

    Raises:
        UsageError: the tolerance is no share.
        InputError: there is no dataset, or another kvtrace wrote it.
    """
    if not 0 <= tolerance < 1:
        raise UsageError(
            "KVT-U070", f"`{tolerance:g}` is no share of a total", hint="`--tolerance 0.05`"
        )
    try:
        opened = open_dataset(dataset)
    except InputError as error:
        if error.cause is None or not is_dataset(dataset):
            raise
        why = f"{error.message}: {error.where}: {error.cause}"
        check = compared("dataset/parts", 1, 0, unit="whole", why=why)
        return Verification((check,), None)
    record = read_earlier(opened)
    checks = verify_dataset(
        opened, record, tolerance=tolerance, no_record_reason=_why_no_record(opened)
    )
    return Verification(tuple(checks), opened.manifest.digest)


def _why_no_record(dataset: Dataset) -> str:
    if (dataset.directory.parent / AUDIT_FILE).exists():
        return f"the {AUDIT_FILE} beside the dataset is of another dataset, or cannot be read"
    return f"there is no {AUDIT_FILE} beside the dataset; `kvtrace analyze` writes one"
