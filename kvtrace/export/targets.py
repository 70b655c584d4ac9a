"""The formats that can be written: which rows each tool accepts, and a small writer for each.

Read from kvcache-ai/Mooncake (FAST'25 traces), AIPerf 0.13 (`mooncake_trace`), the replay of Dynamo
1.6.1, kvcache-simulator 0.1.3 and microsoft/vidur.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import msgspec
import numpy as np

from kvtrace.export.rows import ExportRows, block_lists, separate_tails
from kvtrace.schema.arrays import BoolArray
from kvtrace.units import NS_PER_MS, NS_PER_S

Notes = list[str]
TIMED_ONLY: Final = "--fixed-schedule "
"""Part of a call that needs arrival times."""


@dataclass(frozen=True, slots=True)
class Target:
    """One format to export to."""

    name: str
    needs: tuple[str, ...]
    """blocks, clock: what the dataset must know. block_ids, a column: rows without are left out."""
    lowest: dict[str, int]
    """Columns and the lowest value that the tool takes; rows below are left out."""
    lines: Callable[[ExportRows, Notes], Iterator[str]]
    """The lines of the file. What a reader must know is added to the notes before the first."""
    try_it: str
    """How the tool is called; FILE and BLOCK stand for the file and the tokens a block."""


def _mooncake(rows: ExportRows, notes: Notes) -> Iterator[str]:
    if rows.block_size_tokens != 512:
        notes.append(
            f"Mooncake's own traces have 512 tokens a block; these have {rows.block_size_tokens}, "
            "the size of the source: tell the tool that reads them"
        )
    _note_sessions(rows, notes)
    for row, ids in zip(_records(rows), block_lists(rows), strict=True):
        yield _json({**_mooncake_row(row, ids), **_session(row)})


def _aiperf(rows: ExportRows, notes: Notes) -> Iterator[str]:
    tails, renamed = separate_tails(rows)
    if renamed:
        notes.append(
            f"{renamed:,} partial last blocks have an id of their own: AIPerf takes an id for one "
            "text of one length, and these share theirs with a longer or shorter block"
        )
    if not rows.requests["session"].is_null().all():
        notes.append(
            "sessions are left out: AIPerf would append each turn to the history, but these "
            "prompts hold their history already"
        )
    for row, ids in zip(_records(rows), block_lists(rows, tails), strict=True):
        yield _json(_mooncake_row(row, ids))


def _dynamo(rows: ExportRows, notes: Notes) -> Iterator[str]:
    if not rows.requests["session"].is_null().all():
        notes.append(
            "sessions are left out: every request comes at its recorded time, none waits for the "
            "reply of the turn before"
        )
    for row, ids in zip(_records(rows), block_lists(rows), strict=True):
        yield _json(_mooncake_row(row, ids))


def _kvcache_simulator(rows: ExportRows, _notes: Notes) -> Iterator[str]:
    size = rows.block_size_tokens
    for row, ids in zip(_records(rows), block_lists(rows), strict=True):
        yield _json({"block_size": size, **_mooncake_row(row, ids)})


def _vidur(rows: ExportRows, _notes: Notes) -> Iterator[str]:
    yield "arrived_at,num_prefill_tokens,num_decode_tokens"
    for row in _records(rows):
        arrived = _seconds(row["arrived_at_ns"])
        yield f"{arrived},{row['prompt_tokens']},{row['output_tokens']}"


_CSV_COLUMNS: Final = (
    "session",
    "turn",
    "arrived_at_ns",
    "prompt_tokens",
    "cached_tokens",
    "output_tokens",
    "queue_ns",
    "ttft_ns",
    "e2e_ns",
)


def _csv(rows: ExportRows, notes: Notes) -> Iterator[str]:
    size = rows.block_size_tokens
    if size is None and rows.block_sizes:
        notes.append("block ids are left out: the dataset has blocks of several sizes")
    yield ",".join(("request", *_CSV_COLUMNS, "block_size_tokens", "block_ids"))
    lists = iter(block_lists(rows)) if size is not None else None
    for number, row in enumerate(_records(rows)):
        cells = [str(number), *map(_cell, (row[name] for name in _CSV_COLUMNS))]
        ids = next(lists) if lists is not None else None
        cells += [_cell(None if ids is None else size), " ".join(map(str, ids or ()))]
        yield ",".join(cells)


Row = dict[str, int | None]


def _records(rows: ExportRows) -> Iterator[Row]:
    return rows.requests.iter_rows(named=True)


def _mooncake_row(row: Row, ids: list[int] | None) -> dict[str, object]:
    """The columns of a Mooncake row; what is unknown has no key."""
    fields: dict[str, object] = {}
    if (arrived_at_ns := row["arrived_at_ns"]) is not None:
        fields["timestamp"] = arrived_at_ns // NS_PER_MS
    fields["input_length"] = row["prompt_tokens"]
    if row["output_tokens"] is not None:
        fields["output_length"] = row["output_tokens"]
    if ids is not None:
        fields["hash_ids"] = ids
    return fields


def _session(row: Row) -> dict[str, object]:
    if row["session"] is None:
        return {}
    turn = {} if row["turn"] is None else {"turn": row["turn"]}
    return {"session_id": str(row["session"]), **turn}


def _note_sessions(rows: ExportRows, notes: Notes) -> None:
    if not rows.requests["session"].is_null().all():
        notes.append(
            "rows carry the ordinal of their session; AIPerf would take them for turns to be "
            "appended to one another: give it `--to aiperf`"
        )


def _json(fields: dict[str, object]) -> str:
    return msgspec.json.encode(fields).decode()


def _cell(value: int | None) -> str:
    return "" if value is None else str(value)


def _seconds(ns: int | None) -> str:
    """Nanoseconds as decimal seconds, exact and without zeros at the end."""
    if ns is None:
        return ""
    return f"{(Decimal(ns) / NS_PER_S).normalize():f}"


def leave_out(rows: ExportRows, target: Target) -> ExportRows:
    """The rows that the tool takes; the others are counted."""
    left_out = dict(rows.left_out)
    keep = np.ones(len(rows.requests), dtype=np.bool_)
    for reason, is_good in _demands(rows, target):
        if lost := int(np.count_nonzero(keep & ~is_good)):
            left_out[reason] = left_out.get(reason, 0) + lost
        keep &= is_good
    return rows.only(keep, left_out)


def _demands(rows: ExportRows, target: Target) -> Iterator[tuple[str, BoolArray]]:
    """(why a row is left out, which rows are good), one after the other."""
    for column in target.needs:
        if column == "block_ids" and rows.blocks is not None:
            yield "without block ids", rows.blocks.per_request() > 0
        elif column in rows.requests.columns:
            words = column.removesuffix("_ns").replace("_", " ")
            yield f"without {words}", rows.requests[column].is_not_null().to_numpy()
    for column, lowest in target.lowest.items():
        is_enough = rows.requests[column].fill_null(lowest) >= lowest
        yield f"with {column.replace('_', ' ')} below {lowest}", is_enough.to_numpy()


TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for target in (
        Target(
            name="mooncake",
            needs=("blocks",),
            lowest={},
            lines=_mooncake,
            try_it="kvtrace analyze FILE --block-size BLOCK",
        ),
        Target(
            name="aiperf",
            needs=("blocks",),
            lowest={"prompt_tokens": 1},
            lines=_aiperf,
            try_it="aiperf profile --input-file FILE --custom-dataset-type mooncake_trace "
            f"{TIMED_ONLY}--isl-block-size BLOCK …",
        ),
        Target(
            name="dynamo",
            needs=("blocks", "clock", "block_ids", "output_tokens"),
            lowest={"prompt_tokens": 1},
            lines=_dynamo,
            try_it="dynamo.replay.run_trace_replay(FILE, trace_block_size=BLOCK, …)",
        ),
        Target(
            name="kvcache-simulator",
            needs=("blocks", "block_ids"),
            lowest={"prompt_tokens": 1},
            lines=_kvcache_simulator,
            try_it="kvcache-simulator run --trace FILE --model MODEL",
        ),
        Target(
            name="vidur",
            needs=("clock", "output_tokens"),
            lowest={},
            lines=_vidur,
            try_it="the `trace_file` of microsoft/vidur's trace_replay request generator",
        ),
        Target(
            name="csv",
            needs=(),
            lowest={},
            lines=_csv,
            try_it="kvtrace ingest FILE --mapping export.toml (the mapping is in docs/export.md)",
        ),
    )
}
