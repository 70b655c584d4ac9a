"""Conversations of sources that name only the parent of a request: the root of the chain is one."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from kvtrace.ingest.hashing import KeyedHasher
from kvtrace.ingest.sources import Source
from kvtrace.schema.arrays import IntArray

_MAX_DOUBLINGS: Final = 64


def resolve_parents(source: Source, hasher: KeyedHasher) -> None:
    """Fill null session keys by the root of the parent chain, in place.

    A parent outside the trace is a root too, so that its children share a session. A row that
    nobody continues and that names no parent is a session of its own.
    """
    frame = source.requests
    parents = frame["parent_key"]
    if parents.null_count() == len(frame) or frame["session_key"].null_count() == 0:
        return
    ids = frame["request_id_key"]
    roots, cycles = _roots(ids, parents)
    sessions = [
        None if root is None else hasher.data_key("session", root.to_bytes(8, "little"))
        for root in roots
    ]
    filled = pl.coalesce("session_key", pl.Series("root", sessions, dtype=pl.UInt64))
    source.requests = frame.with_columns(filled.alias("session_key"))
    if cycles:
        message = f"{cycles} requests are their own ancestors; their sessions are cut there"
        source.notes.append(("parent_cycles", message))


def _roots(ids: pl.Series, parents: pl.Series) -> tuple[list[int | None], int]:
    """(request-id key of each row's root, rows on a cycle)."""
    rows = len(ids)
    first_row: dict[int, int] = {}
    for row, key in enumerate(ids.to_list()):
        if key is not None:
            first_row.setdefault(key, row)
    parent_list = parents.to_list()
    above = np.arange(rows)
    for row, parent in enumerate(parent_list):
        if parent is not None:
            above[row] = first_row.get(parent, row)
    root, cycles = _settled(above)
    found: list[int | None] = []
    id_list = ids.to_list()
    for row in root.tolist():
        is_outside = parent_list[row] is not None and parent_list[row] not in first_row
        found.append(parent_list[row] if is_outside else id_list[row])
    return found, cycles


def _settled(above: IntArray) -> tuple[IntArray, int]:
    """Follow the pointers to their roots by doubling; rows on a cycle stay where that ends."""
    root = above
    for _ in range(_MAX_DOUBLINGS):
        further = root[root]
        if np.array_equal(further, root):
            break
        root = further
    on_cycle = above[root] != root
    return np.where(on_cycle, np.arange(len(above)), root), int(on_cycle.sum())
