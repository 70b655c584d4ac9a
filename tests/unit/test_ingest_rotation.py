"""Rotated logs on a clock without a date: joined by name and time together, never by one alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.ingest.files.rotation import rotation_name
from kvtrace.ingest.pipeline import Ingested
from tests.unit.ingest_formats import ingest, made_up, write_rows

S = 1_000_000_000


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        ("router.jsonl", "router.jsonl"),
        ("router.jsonl.1", "router.jsonl"),
        ("router.jsonl.12.gz", "router.jsonl"),
        ("router.jsonl.gz", "router.jsonl"),
        ("router.jsonl-20240501", "router.jsonl"),
        ("router.jsonl-20240501.zst", "router.jsonl"),
        ("router-2024-05-01.jsonl", "router.jsonl"),
        ("router.0.jsonl", "router.jsonl"),
        ("a/router.1.jsonl.xz", "a/router.jsonl"),
        ("conversation.jsonl", "conversation.jsonl"),
    ],
)
def test_rotation_is_told_by_what_the_name_ends_in(name: str, bare: str) -> None:
    assert rotation_name(name) == bare


def piece(
    path: Path, first_s: int, last_s: int, keys: list[int], step_s: int = 1, **more: object
) -> Path:
    rows = [
        {"arrived_at_ns": at * S, "prompt_tokens": len(keys) * 10, "block_keys": keys, **more}
        for at in range(first_s, last_s + 1, step_s)
    ]
    path.parent.mkdir(exist_ok=True)
    return write_rows(path, "f", rows)


def read(tmp_path: Path, block_size: int | None = 10) -> Ingested:
    return ingest([tmp_path], made_up("f", clock="relative", block_size=block_size))


def test_pieces_of_one_log_are_one_source_in_order_of_time(tmp_path: Path) -> None:
    # Rotation moves the older lines to `.1`: it comes first in time and last by name.
    piece(tmp_path / "r.jsonl.1", 100, 104, [7, 8])
    piece(tmp_path / "r.jsonl", 105, 109, [7, 9])
    result = read(tmp_path)
    assert [(one.role, one.requests, one.files) for one in result.sources] == [
        ("headline", 10, [0, 1])
    ]
    arrivals = result.frames["requests"].sort("arrived_at_ns")["arrived_at_ns"]
    assert arrivals.to_list() == [at * S for at in range(10)]
    # Block 7 is the same block in both pieces: 3 distinct blocks, not 4; `.1` has the first two.
    assert len(result.domains) == 1
    assert result.totals.distinct_blocks == 3
    assert result.frames["keys"].sort("block")["chained_hash"].to_list() == [7, 8, 9]
    (note,) = [one for one in result.notes if one.code == "rotated_files_joined"]
    assert note.message.startswith("r.jsonl.1, r.jsonl are read as pieces of one log")


def test_times_that_overlap_keep_files_apart(tmp_path: Path) -> None:
    piece(tmp_path / "r.0.jsonl", 0, 9, [7])
    piece(tmp_path / "r.1.jsonl", 0, 9, [7, 8])
    result = read(tmp_path)
    assert sorted(one.role for one in result.sources) == ["beside", "headline"]
    assert len(result.domains) == 2
    assert "sources_beside" in {one.code for one in result.notes}


def test_a_hole_longer_than_the_pieces_keeps_them_apart(tmp_path: Path) -> None:
    piece(tmp_path / "r.0.jsonl", 0, 9, [7])
    piece(tmp_path / "r.1.jsonl", 19, 28, [7])  # 10 s after 9 s, spans of 9 s
    assert len(read(tmp_path).sources) == 2


def test_names_that_are_no_rotations_keep_files_apart(tmp_path: Path) -> None:
    piece(tmp_path / "chat.jsonl", 0, 9, [7])
    piece(tmp_path / "code.jsonl", 10, 19, [7])
    assert len(read(tmp_path).sources) == 2


def test_order_of_the_given_paths_changes_nothing(tmp_path: Path) -> None:
    first = piece(tmp_path / "r.jsonl.1", 0, 4, [7])
    second = piece(tmp_path / "r.jsonl", 5, 9, [7])
    fmt = made_up("f", clock="relative", block_size=10)
    assert ingest([first, second], fmt).digest == ingest([second, first], fmt).digest


def test_a_log_cut_in_two_gives_the_digest_of_the_whole(tmp_path: Path) -> None:
    fmt = made_up("f", clock="relative", block_size=10)
    whole = piece(tmp_path / "whole" / "r.jsonl", 0, 9, [7, 8], llm="m")
    piece(tmp_path / "cut" / "r.jsonl.1", 0, 4, [7, 8], llm="m")
    piece(tmp_path / "cut" / "r.jsonl", 5, 9, [7, 8], llm="m")
    assert ingest([whole], fmt).digest == ingest([tmp_path / "cut"], fmt).digest
