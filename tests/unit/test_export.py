"""Exported traces: the rows that each tool accepts, and no name, id or hash in them."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from kvtrace.errors import InputError, OutputError, UsageError
from kvtrace.export import TARGETS, Exported, export_trace
from kvtrace.export.rows import load_rows
from kvtrace.schema.manifest import CacheDomain, Manifest, SourceEntry, Totals
from kvtrace.store.dataset import Dataset, DatasetWriter
from tests.traces import Traced, Value, blocks_frame, requests_frame

SECOND = 1_000_000_000


def _domain(number: int, size: int, distinct: int, *, drops_tails: bool) -> CacheDomain:
    return CacheDomain(
        cache_domain=number,
        source_id=0,
        scope="file",
        block_size_tokens=size,
        block_size_reason="test",
        partial_tail="dropped" if drops_tails else "counted",
        ids="chained",
        block_refs=0,
        distinct_blocks=distinct,
    )


def dataset_of(
    folder: Path,
    requests: Sequence[Traced],
    *,
    sizes: Sequence[int] = (4,),
    drops_tails: bool = False,
) -> Dataset:
    """A committed dataset with these requests; `sizes` are the block sizes of domains 0, 1, …"""
    rows: list[dict[str, Value]] = []
    for key, request in enumerate(requests):
        tokens = len(request.blocks) * sizes[request.cache_domain] or None
        if tokens and request.tail_tokens:
            tokens += request.tail_tokens - sizes[request.cache_domain]
        rows.append({"request_key": key, "prompt_tokens": tokens, **request.columns})
    frame = requests_frame(rows)
    blocks = blocks_frame(requests, frame["request_key"].to_list())
    held = blocks.group_by("cache_domain").agg(
        (pl.col("start_block") + pl.col("block_count")).max()
    )
    domains = [
        _domain(number, sizes[number], distinct, drops_tails=drops_tails)
        for number, distinct in sorted(held.iter_rows())
    ]
    source = SourceEntry(
        source_id=0,
        format="test",
        evidence_grade="A" if domains else "B",
        role="headline",
        files=[0],
        requests=len(rows),
        samples=0,
        transfers=0,
        clock="relative",
    )
    totals = Totals(
        requests=len(rows),
        requests_by_status={},
        prompt_tokens=None,
        output_tokens=None,
        cached_tokens=None,
        cached_known_requests=0,
        cache_write_tokens=None,
        cached_tiers={},
        block_refs=None,
        distinct_blocks=None,
        block_size_tokens=None,
        samples=0,
        transfers=0,
        rejected=0,
    )
    with DatasetWriter(folder / "dataset") as writer:
        writer.write_table("requests", frame)
        writer.write_table("blocks", blocks)
        writer.commit(
            Manifest(
                schema_version=1,
                kvtrace_version="0",
                settings={},
                inputs_fingerprint="",
                files=[],
                sources=[source],
                domains=domains,
                totals=totals,
                tables={},
                digest="",
            )
        )
    return Dataset.open(folder / "dataset")


def exported(dataset: Dataset, to: str) -> tuple[list[str], Exported]:
    stream = io.BytesIO()
    done = export_trace(dataset, to, stream)
    return stream.getvalue().decode().splitlines(), done


def at(seconds: float, **columns: Value) -> dict[str, Value]:
    return {"arrived_at_ns": round(seconds * SECOND), **columns}


def chat(tmp_path: Path) -> Dataset:
    """Three turns of two sessions, in the file in another order than they arrived."""
    return dataset_of(
        tmp_path,
        [
            # 2 full blocks and one of 3 tokens: 11 tokens, at 12.5 s
            Traced([7, 8, 9], 3, at(12.5, output_tokens=5, session_key=77, turn=1)),
            Traced([7, 8], 0, at(10.25, output_tokens=0, session_key=77, turn=0)),
            Traced([7, 5], 1, at(11.0, session_key=2**63)),
        ],
    )


def test_mooncake_rows_are_in_order_of_arrival_with_ids_by_first_appearance(tmp_path: Path) -> None:
    lines, done = exported(chat(tmp_path), "mooncake")
    # 10.25 s is the start; 11.0 s is 750 ms on; blocks 7 8 | 7 5 | 7 8 9 become 0 1 | 0 2 | 0 1 3.
    # The second request does not know its output: no key, not a zero.
    assert [json.loads(line) for line in lines] == [
        {
            "timestamp": 0,
            "input_length": 8,
            "output_length": 0,
            "hash_ids": [0, 1],
            "session_id": "0",
            "turn": 0,
        },
        {"timestamp": 750, "input_length": 5, "hash_ids": [0, 2], "session_id": "1"},
        {
            "timestamp": 2250,
            "input_length": 11,
            "output_length": 5,
            "hash_ids": [0, 1, 3],
            "session_id": "0",
            "turn": 1,
        },
    ]
    assert done.requests == 3
    assert done.left_out == {}
    assert any("512" in note and "4" in note for note in done.notes)


def test_kvcache_simulator_rows_state_their_block_size(tmp_path: Path) -> None:
    lines, _ = exported(chat(tmp_path), "kvcache-simulator")
    assert json.loads(lines[0]) == {
        "block_size": 4,
        "timestamp": 0,
        "input_length": 8,
        "output_length": 0,
        "hash_ids": [0, 1],
    }
    assert len(lines) == 3


def test_dynamo_leaves_out_rows_without_output(tmp_path: Path) -> None:
    lines, done = exported(chat(tmp_path), "dynamo")
    # Without the second request block 5 is gone, and 9 is the third block that appears.
    assert [json.loads(line)["hash_ids"] for line in lines] == [[0, 1], [0, 1, 2]]
    assert all("session_id" not in line for line in lines)
    assert done.left_out == {"without output tokens": 1}
    assert "left out: 1 without output tokens" in done.summary()


def test_vidur_has_exact_decimal_seconds(tmp_path: Path) -> None:
    dataset = dataset_of(
        tmp_path,
        [
            Traced([], 0, at(3, prompt_tokens=10, output_tokens=4)),
            Traced(
                [], 0, {"arrived_at_ns": 4 * SECOND + 1, "prompt_tokens": 2, "output_tokens": 1}
            ),
            Traced([], 0, at(13, prompt_tokens=20, output_tokens=3)),
        ],
    )
    lines, done = exported(dataset, "vidur")
    assert lines == [
        "arrived_at,num_prefill_tokens,num_decode_tokens",
        "0,10,4",
        "1.000000001,2,1",
        "10,20,3",
    ]
    assert done.block_size_tokens is None


def test_csv_leaves_cells_empty_where_nothing_is_known(tmp_path: Path) -> None:
    dataset = dataset_of(
        tmp_path,
        [
            Traced([1, 2], 2, at(5, cached_tokens=0, ttft_ns=7, e2e_ns=9, queue_ns=1)),
            Traced([], 0, at(6, prompt_tokens=3)),
        ],
    )
    lines, _ = exported(dataset, "csv")
    assert lines == [
        "request,session,turn,arrived_at_ns,prompt_tokens,cached_tokens,output_tokens,queue_ns,"
        "ttft_ns,e2e_ns,block_size_tokens,block_ids",
        "0,,,0,6,0,,1,7,9,4,0 1",
        "1,,,1000000000,3,,,,,,,",
    ]


def test_aiperf_gets_one_length_for_an_id(tmp_path: Path) -> None:
    # Block 9 is the partial last block of two prompts (1 token, then 3) and full in a third; AIPerf
    # refuses an id of two lengths. The full one keeps its id, the others get ids of their own; the
    # fourth, partial as the first, shares with it.
    dataset = dataset_of(
        tmp_path,
        [
            Traced([7, 9], 1, at(0)),
            Traced([7, 9], 3, at(1)),
            Traced([7, 9, 4], 0, at(2)),
            Traced([7, 9], 1, at(3)),
        ],
    )
    lines, done = exported(dataset, "aiperf")
    assert [json.loads(line)["hash_ids"] for line in lines] == [[0, 1], [0, 2], [0, 3, 4], [0, 1]]
    assert any(note.startswith("3 partial last blocks") for note in done.notes)
    # Mooncake's own shape keeps the ids as they are.
    plain, _ = exported(dataset, "mooncake")
    assert [json.loads(line)["hash_ids"] for line in plain] == [[0, 1], [0, 1], [0, 1, 2], [0, 1]]


def test_aiperf_keeps_partial_ids_of_one_length(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, [Traced([7, 9], 3, at(0)), Traced([7, 9], 3, at(1))])
    lines, done = exported(dataset, "aiperf")
    assert [json.loads(line)["hash_ids"] for line in lines] == [[0, 1], [0, 1]]
    assert not any("partial" in note for note in done.notes)


def test_dropped_tails_stay_dropped(tmp_path: Path) -> None:
    # 10 tokens in blocks of 4 with tails left out: two ids. A prompt of 3 tokens has none, which is
    # known; one of 9 tokens without ids is unknown.
    dataset = dataset_of(
        tmp_path,
        [
            Traced([7, 8], 0, at(0, prompt_tokens=10)),
            Traced([], 0, at(1, prompt_tokens=3)),
            Traced([], 0, at(2, prompt_tokens=9)),
        ],
        drops_tails=True,
    )
    lines, _ = exported(dataset, "mooncake")
    assert [json.loads(line).get("hash_ids") for line in lines] == [[0, 1], [], None]
    left, done = exported(dataset, "kvcache-simulator")
    assert len(left) == 1
    assert done.left_out == {"without block ids": 2}


def test_rows_that_cannot_be_replayed_are_left_out_and_counted(tmp_path: Path) -> None:
    dataset = dataset_of(
        tmp_path,
        [
            Traced([1], 0, at(0, status="error")),
            Traced([2], 0, at(1, status="cancelled")),
            Traced([3], 0, at(2, status="cancelled")),
            Traced([4], 0, {"arrived_at_ns": None}),
            Traced([5], 0, at(4, prompt_tokens=None)),
            Traced([6], 0, at(5, is_headline=False)),
            Traced([7], 0, at(6)),
        ],
    )
    lines, done = exported(dataset, "mooncake")
    # The one row that is left starts the clock and the ids.
    assert [json.loads(line) for line in lines] == [
        {"timestamp": 0, "input_length": 4, "hash_ids": [0]}
    ]
    assert done.left_out == {
        "with status `cancelled`": 2,
        "with status `error`": 1,
        "without arrival": 1,
        "without prompt length": 1,
    }


def test_order_without_a_clock_has_no_times(tmp_path: Path) -> None:
    rows = [Traced([1], 0, {"clock": "order", "arrived_at_ns": None, "output_tokens": 1})] * 2
    dataset = dataset_of(tmp_path, rows)
    lines, done = exported(dataset, "mooncake")
    assert [json.loads(line) for line in lines] == [
        {"input_length": 4, "output_length": 1, "hash_ids": [0]}
    ] * 2
    assert any("no clock" in note for note in done.notes)
    assert "--fixed-schedule" not in exported(dataset, "aiperf")[1].try_it
    assert "--fixed-schedule" in exported(chat(tmp_path / "timed"), "aiperf")[1].try_it
    for to in ("vidur", "dynamo"):
        with pytest.raises(InputError) as caught:
            exported(dataset, to)
        assert caught.value.code == "KVT-E005"


def test_domains_of_one_size_never_share_a_block(tmp_path: Path) -> None:
    dataset = dataset_of(
        tmp_path,
        [Traced([1, 2], 0, at(0)), Traced([1, 2], 0, at(1), cache_domain=1), Traced([1], 0, at(2))],
        sizes=(4, 4),
    )
    lines, done = exported(dataset, "mooncake")
    assert [json.loads(line)["hash_ids"] for line in lines] == [[0, 1], [2, 3], [0]]
    assert any("no block is shared" in note for note in done.notes)


def test_block_sizes_that_differ_are_refused_and_csv_leaves_ids_out(tmp_path: Path) -> None:
    dataset = dataset_of(
        tmp_path,
        [Traced([1], 0, at(0)), Traced([1], 0, at(1), cache_domain=1)],
        sizes=(4, 8),
    )
    with pytest.raises(InputError) as caught:
        exported(dataset, "mooncake")
    assert caught.value.code == "KVT-E004"
    assert "4, 8 tokens" in str(caught.value)
    lines, done = exported(dataset, "csv")
    assert [line.rsplit(",", 2)[1:] for line in lines[1:]] == [["", ""], ["", ""]]
    assert any("several sizes" in note for note in done.notes)


@pytest.mark.parametrize("to", ["mooncake", "aiperf", "dynamo", "kvcache-simulator"])
def test_block_formats_refuse_a_dataset_without_blocks(tmp_path: Path, to: str) -> None:
    dataset = dataset_of(tmp_path, [Traced([], 0, at(0, prompt_tokens=5, output_tokens=1))])
    with pytest.raises(InputError) as caught:
        exported(dataset, to)
    assert caught.value.code == "KVT-E003"
    assert "grade B" in (caught.value.cause or "")
    assert "--to vidur" in (caught.value.hint or "")


def test_nothing_to_export_says_what_was_left_out(tmp_path: Path) -> None:
    dataset = dataset_of(tmp_path, [Traced([1], 0, at(0, status="error"))])
    for to in ("csv", "vidur"):
        with pytest.raises(InputError) as caught:
            exported(dataset, to)
        assert caught.value.code == "KVT-E002"
        assert caught.value.cause == "left out: 1 with status `error`"


def test_zero_prompts_are_left_out_where_a_tool_refuses_them(tmp_path: Path) -> None:
    dataset = dataset_of(
        tmp_path,
        [Traced([1], 0, at(0, output_tokens=1)), Traced([], 0, at(1, prompt_tokens=0))],
    )
    lines, done = exported(dataset, "aiperf")
    assert len(lines) == 1
    assert done.left_out == {"with prompt tokens below 1": 1}


def test_an_unknown_format_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        export_trace(None, "mooncak", io.BytesIO())  # type: ignore[arg-type]
    assert caught.value.code == "KVT-E001"
    assert caught.value.hint == "--to mooncake"


def test_a_file_is_packed_as_its_name_says_and_always_the_same(tmp_path: Path) -> None:
    dataset = chat(tmp_path)
    lines, _ = exported(dataset, "mooncake")
    paths = [tmp_path / "a" / "one.jsonl.gz", tmp_path / "b" / "two.jsonl.gz"]
    for path in paths:
        done = export_trace(dataset, "mooncake", path)
        assert str(path) in done.try_it
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert gzip.decompress(paths[0].read_bytes()).decode().splitlines() == lines


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "in_the_way").write_text("")
    with pytest.raises(OutputError) as caught:
        export_trace(chat(tmp_path), "mooncake", tmp_path / "in_the_way" / "trace.jsonl")
    assert caught.value.code == "KVT-E010"


@pytest.mark.parametrize("to", sorted(TARGETS))
def test_no_key_or_name_of_the_dataset_goes_out(tmp_path: Path, to: str) -> None:
    secrets: dict[str, Value] = {
        "request_id_key": 11_222_333_444_555_666,
        "session_key": 12_222_333_444_555_666,
        "parent_key": 13_222_333_444_555_666,
        "tenant_key": 14_222_333_444_555_666,
        "llm": "CANARY-model",
        "adapter": "CANARY-adapter",
        "request_type": "CANARY-type",
        "flags": ["CANARY-flag"],
        "request_key": 15_222_333_444_555_666,
    }
    start = 1_774_000_000_123_456_789
    rows = [Traced([3], 0, {**secrets, "arrived_at_ns": start, "output_tokens": 2})]
    lines, done = exported(dataset_of(tmp_path, rows), to)
    text = "\n".join([*lines, *done.summary()])
    assert "CANARY" not in text
    assert "222333444555666" not in text
    assert "1774000000" not in text


def test_long_traces_are_numbered_across_chunks(tmp_path: Path) -> None:
    # 5 000 requests of a shared block and one of their own: more than one chunk of 4 096.
    rows = [Traced([0, number + 1], 0, at(number)) for number in range(5000)]
    lines, _ = exported(dataset_of(tmp_path, rows), "mooncake")
    assert [json.loads(line)["hash_ids"] for line in lines] == [[0, n + 1] for n in range(5000)]


def test_runs_of_consecutive_ids_are_written_out(tmp_path: Path) -> None:
    rows = load_rows(dataset_of(tmp_path, [Traced([1, 2, 3], 0, at(0)), Traced([1, 9], 0, at(1))]))
    assert rows.blocks is not None
    # Runs: 0..2, then 0 and 3: five ids in three runs.
    assert rows.blocks.start.tolist() == [0, 0, 3]
    ids, bounds = rows.blocks.expand(0, 2)
    assert ids.tolist() == [0, 1, 2, 0, 3]
    assert bounds.tolist() == [0, 3, 5]
    assert rows.blocks.expand(1, 2)[0].tolist() == [0, 3]
