"""Whether the dataset is whole: its parts, its rows' digest, and where every input row went."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvtrace.schema.manifest import Manifest
from kvtrace.schema.tables import TABLES
from kvtrace.store.dataset import Dataset
from kvtrace.store.digest import digest_tables
from kvtrace.verify.check import Check, compared, not_compared

READ_TABLES: Final = (
    "requests",
    "blocks",
    "keys",
    "samples",
    "transfers",
    "block_events",
    "rejects",
)
"""Tables that ingest fills from the logs; the rest is computed from them."""
MAX_DIGEST_ROWS: Final = 20_000_000
"""Rows up to which the logical digest is made again: it holds whole tables in memory."""


def check_integrity(dataset: Dataset) -> Iterator[Check]:
    """Parts, rows of each table, the logical digest and the conservation law of each file."""
    manifest = dataset.manifest
    parts = sum(len(entries) for entries in manifest.tables.values())
    yield compared(
        "dataset/parts",
        parts,
        parts,
        unit="files",
        why="every part has the bytes that the manifest names (BLAKE2b)",
    )
    for name in TABLES:
        entries = manifest.tables.get(name, [])
        if entries:
            yield compared(
                f"dataset/rows_of_{name}",
                dataset.table(name).height,
                sum(entry.rows for entry in entries),
                unit="rows",
                why="rows of the parts, and of the manifest",
            )
    yield _digest(dataset)
    yield from _conservation(manifest)


def _digest(dataset: Dataset) -> Check:
    rows = sum(
        entry.rows for name in READ_TABLES for entry in dataset.manifest.tables.get(name, [])
    )
    if rows > MAX_DIGEST_ROWS:
        why = f"{rows:,} rows; above {MAX_DIGEST_ROWS:,} the digest is not made again"
        return not_compared("dataset/digest", why)
    again = digest_tables({name: dataset.table(name) for name in READ_TABLES})
    is_same = again == dataset.manifest.digest
    return compared(
        "dataset/digest",
        1,
        int(is_same),
        unit="equal",
        why="the logical digest of the rows as they lie there, and that of the manifest",
    )


def _conservation(manifest: Manifest) -> Iterator[Check]:
    """Of each file: rows in = kept + rejected + blank, and kept = used + ignored."""
    files = manifest.files
    broken = [
        entry.path
        for entry in files
        if entry.rows_in != entry.kept + entry.rejected + entry.blank
        or entry.kept != entry.used + entry.ignored
    ]
    law = "rows in = kept + rejected + blank, and kept = used + ignored, in every file"
    yield compared(
        "manifest/files_that_add_up",
        len(files),
        len(files) - len(broken),
        unit="files",
        why=law if not broken else f"{law}; not in `{broken[0]}`",
    )
    stored = sum(entry.rows for entry in manifest.tables.get("rejects", []))
    yield compared(
        "manifest/rejected",
        sum(entry.rejected for entry in files),
        manifest.totals.rejected,
        unit="rows",
        why=f"sum over files, and the total; the table of rejects holds {stored:,}",
    )
