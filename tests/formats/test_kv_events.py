"""KV events: one block under one key in every encoding, and an account of what was lost."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.ingest.contract import BlockEventRow, Format
from kvtrace.ingest.formats.kv_events import FORMATS
from kvtrace.ingest.formats.kv_events.keys import KeyBook, engine_hash, key_book
from kvtrace.ingest.formats.kv_events.streams import Stream, log_name
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import DATA, Reading, read_bytes, sniffed

KV, TRT, LMCACHE = FORMATS
KEY = b"k" * 32
FOLDER = DATA / "kv_events"
T0 = 1_767_225_600  # 2026-01-01T00:00:00Z
Shown = tuple[object, ...]


def read(entry: Format, name: str) -> Reading:
    return read_bytes(entry, (FOLDER / name).read_bytes(), token_key=KEY)


def events(reading: Reading) -> list[BlockEventRow]:
    return [row for row in reading.rows if isinstance(row, BlockEventRow)]


def chain(tokens: Sequence[int], *, size: int = 4) -> list[int]:
    """Keys of a prompt's blocks, as `keys.py` says that they are made."""
    keys, parent = [], _keyed(b"")
    for start in range(0, len(tokens), size):
        parent = _keyed(parent + b"".join(t.to_bytes(8, "little") for t in tokens[start:][:size]))
        keys.append(int.from_bytes(parent, "little"))
    return keys


def _keyed(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=8, key=KEY).digest()


def captured(number: int | None, *raw: object, at: float = T0, topic: str = "") -> bytes:
    """One line of a capture with one batch of vLLM's arrays."""
    payload = msgspec.msgpack.encode([at, list(raw)])
    return (
        json.dumps({"topic": topic, "seq": number, "payload_hex": payload.hex()}).encode() + b"\n"
    )


def stored(
    *hashes: object, parent: object = None, tokens: list[int], size: int = 4
) -> list[object]:
    return ["BlockStored", list(hashes), parent, tokens, size, None, "GPU"]


def read_lines(*lines: bytes) -> Reading:
    return read_bytes(KV, b"".join(lines), token_key=KEY)


def keys(reading: Reading) -> list[int | None]:
    return [row.block_key for row in events(reading)]


# Identity


def test_every_encoding_gives_the_same_keys() -> None:
    # Tokens 0..3, 4..7, 8..11 in blocks of 4, behind int64 hashes (arrays), sha256 (arrays), maps.
    first, second, third = chain(list(range(12)))
    rows = events(read(KV, "capture.jsonl"))
    shown: list[Shown] = [
        (row.line, row.change, row.block_key, row.parent_key, row.block_tokens, row.medium)
        for row in rows[:9]
    ]
    assert shown == [
        (1, "stored", first, None, 4, "device"),
        (1, "stored", second, first, 4, "device"),
        (1, "removed", second, None, None, "device"),
        (2, "stored", first, None, 4, "device"),
        (2, "stored", second, first, 4, "device"),
        (2, "stored", first, None, None, "host"),  # without tokens: known by its hash
        (3, "stored", third, second, 4, "device"),
        (3, "removed", first, None, None, "device"),
        (3, "cleared", None, None, None, None),
    ]
    # SGLang's block has a salt and llm-d's topic an LLM: tokens 0..3, and yet another key.
    assert [(row.change, row.medium) for row in rows[9:]] == [
        ("stored", "host"),
        ("removed", "host"),
    ]
    assert rows[9].block_key == rows[10].block_key != first


def test_instances_are_topics_and_ranks_and_hold_no_host() -> None:
    rows = events(read(KV, "capture.jsonl"))
    assert [rows[0].instance, rows[3].instance] == ["sample", "sample dp 0"]
    label = hashlib.blake2b(b"kv@10.0.0.7@llm-x", digest_size=2).hexdigest()
    assert rows[9].instance == f"sample topic {label} dp 1"


def test_times_are_exact_and_on_the_epoch() -> None:
    reading = read(KV, "capture.jsonl")
    assert events(reading)[0].observed_at_ns == T0 * 10**9 + 125_000_000
    assert reading.context.clock == "utc"
    later = read_lines(captured(0, ["AllBlocksCleared"], at=12.5))
    assert (later.context.clock, events(later)[0].observed_at_ns) == ("relative", 12_500_000_000)


def test_decoded_batches_are_read_as_well() -> None:
    reading = read(KV, "decoded.jsonl")
    assert [(row.change, row.line) for row in events(reading)] == [
        ("stored", 1),
        ("stored", 1),
        ("removed", 2),
        ("cleared", 3),
        ("removed", 4),
    ]
    assert reading.rejected == []


def test_further_cache_groups_are_left_out() -> None:
    reading = read(KV, "capture.jsonl")
    note = next(note for note in reading.context.notes if note.code == "kv_events_groups")
    assert "left out: 1." in note.message
    group = {"type": "BlockRemoved", "block_hashes": [3], "medium": "GPU", "group_idx": 1}
    lower = read_lines(
        captured(0, group), captured(1, group | {"group_idx": 0}), captured(2, group)
    )
    assert len(events(lower)) == 2  # the first was taken before a lower group was seen
    assert lower.ignored == {"other_events": 1}


def test_a_child_of_a_block_not_seen_is_known_by_its_hash() -> None:
    reading = read_lines(captured(0, stored(8, parent=7, tokens=[1, 2, 3, 4])))
    book = key_book(KEY)
    assert keys(reading) == [book.of_hash(8)]
    assert events(reading)[0].parent_key == book.of_hash(7)
    assert reading.note_codes == {"kv_events_parents_unknown"}


def test_a_child_of_a_removed_block_still_has_its_chain() -> None:
    reading = read_lines(
        captured(0, stored(7, tokens=[1, 2, 3, 4])),
        captured(1, ["BlockRemoved", [7], "GPU"], ["AllBlocksCleared"]),
        captured(2, stored(8, parent=7, tokens=[5, 6, 7, 8])),
    )
    assert keys(reading)[-1] == chain([1, 2, 3, 4, 5, 6, 7, 8])[1]


def test_blocks_without_tokens_keep_their_hash_and_say_so() -> None:
    reading = read_lines(captured(0, stored(8, tokens=[], size=16)))
    assert keys(reading) == [key_book(KEY).of_hash(8)]
    assert events(reading)[0].block_tokens == 16
    assert reading.note_codes == {"kv_events_without_tokens"}


def test_tokens_that_do_not_fit_their_blocks_are_not_used() -> None:
    reading = read_lines(captured(0, stored(8, 9, tokens=[1, 2, 3, 4])))
    assert keys(reading) == [key_book(KEY).of_hash(8), key_book(KEY).of_hash(9)]


def test_adapters_salts_and_extra_keys_part_equal_tokens() -> None:
    plain = stored(1, tokens=[1, 2, 3, 4])
    reading = read_lines(
        captured(0, plain),
        captured(1, [*stored(2, tokens=[1, 2, 3, 4]), "adapter"]),
        captured(2, [*stored(3, tokens=[1, 2, 3, 4]), None, [["image"]]]),
        captured(3, [*stored(4, tokens=[1, 2, 3, 4]), None, [None]]),
    )
    first, second, third, fourth = keys(reading)
    assert len({first, second, third}) == 3
    assert fourth == first


def test_pairs_of_tokens_count_as_their_first() -> None:
    pairs = ["BlockStored", [5], None, [[1, 2], [2, 3], [3, 4], [4, 5]], 4, None, "GPU"]
    assert keys(read_lines(captured(0, pairs))) == chain([1, 2, 3, 4])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (-1, 2**64 - 1),
        (2**63 + 5, 2**63 + 5),
        (bytes(24) + b"\x00\x00\x00\x00\x00\x00\x01\x02", 258),
        ("0x102", 258),
        ("ab" * 32, 0xABABABABABABABAB),
    ],
)
def test_hashes_are_their_low_64_bits(value: object, expected: int) -> None:
    assert engine_hash(value) == expected


@pytest.mark.parametrize("value", [1.5, None, True, b"", "", [1]])
def test_anything_else_is_no_hash(value: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        engine_hash(value)


def test_remembered_blocks_are_bounded_and_the_oldest_goes() -> None:
    book = KeyBook(KEY, max_known=2)
    for hashed in (1, 2, 1, 3):
        book.remember("a", hashed, 10 * hashed)
    assert [book.known("a", hashed) for hashed in (1, 2, 3)] == [10, None, 30]
    book.forget("a")
    book.remember("b", 1, 11)
    assert (book.known("a", 1), book.known("b", 1)) == (None, 11)


# Numbers


def test_lost_batches_are_counted_and_said() -> None:
    clear = ["AllBlocksCleared"]
    reading = read_lines(
        *(captured(number, clear, at=T0 + number) for number in (4, 5, 9)),
        captured(7, clear, at=T0 + 7),  # a replay fills one gap …
        captured(5, clear, at=T0 + 5),  # … and repeats what was there
        b'{"topic": "", "seq": -1, "payload_hex": ""}\n',
    )
    assert len(events(reading)) == 4
    assert reading.ignored == {"replayed_batch": 1, "replay_end": 1}
    note = next(note for note in reading.context.notes if note.code == "kv_events_lost")
    # Of 4 to 9, 6 and 8 never came.
    assert note.message.startswith("2 of 6 batches")
    assert note.severity == "warning"


def test_a_number_that_starts_anew_is_a_new_process() -> None:
    reading = read_lines(
        captured(6, stored(7, tokens=[1, 2, 3, 4]), at=T0),
        captured(0, stored(8, tokens=[1, 2, 3, 4]), at=T0 + 60),
    )
    assert [row.change for row in events(reading)] == ["stored", "cleared", "stored"]
    assert reading.note_codes == {"kv_events_restarts"}


def test_many_restarts_are_several_engines() -> None:
    lines = [captured(50 * (n % 2), ["AllBlocksCleared"], at=T0 + n) for n in range(20)]
    assert "kv_events_mixed_publishers" in read_lines(*lines).note_codes


def test_batches_without_numbers_say_that_losses_are_unknown() -> None:
    reading = read_lines(captured(None, ["AllBlocksCleared"]), captured(None, ["AllBlocksCleared"]))
    assert len(events(reading)) == 2
    assert reading.note_codes == {"kv_events_no_sequence"}


@given(st.lists(st.integers(0, 30), max_size=40))
def test_lost_numbers_equal_a_plain_count(numbers: list[int]) -> None:
    """All at one time, so that nothing is a restart."""
    stream = Stream("a")
    seen: list[int] = []
    for number in numbers:
        arrival = stream.place(number, 5)
        is_known = number in seen or (bool(seen) and number < seen[0])
        assert (arrival == "replayed") == is_known
        if arrival != "replayed":
            seen.append(number)
    assert stream.received == len(seen)
    expected = set(range(min(seen), max(seen))) - set(seen) if seen else set()
    assert stream.lost == len(expected)


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("a/kv.jsonl", "a/kv.jsonl"),
        ("a/kv.jsonl.3.gz", "a/kv.jsonl"),
        ("kv-20260102.jsonl.zst", "kv.jsonl"),
        ("kv.jsonl-2026-01-02", "kv.jsonl"),
        ("engine-1.jsonl", "engine-1.jsonl"),
    ],
)
def test_rotated_files_are_one_instance(path: str, name: str) -> None:
    assert log_name(path) == name


# Damage


def test_damaged_messages_are_rejected_whole() -> None:
    reading = read(KV, "capture_damaged.jsonl")
    assert reading.rejected == [
        *((line, "damaged_line") for line in (2, 3, 4)),
        *((line, "invalid_field") for line in range(5, 13)),
    ]
    assert reading.ignored == {"empty_batch": 1, "other_events": 2, "replay_end": 1}
    assert {row.line for row in events(reading)} == {1}
    assert {"kv_events_medium_unknown", "kv_events_type_unknown"} <= reading.note_codes


def test_no_token_id_and_no_topic_is_left_over() -> None:
    secret = 87_654_321
    reading = read_lines(captured(0, stored(1, tokens=[secret] * 4), topic="kv@host-name@llm"))
    told = repr((reading.rows, reading.context.notes, reading.context.engine_facts))
    assert str(secret) not in told
    assert "host-name" not in told


def test_a_million_tokens_in_one_message() -> None:
    line = captured(0, stored(*range(62_500), tokens=list(range(1_000_000)), size=16))
    assert len(events(read_lines(line))) == 62_500


def test_deep_payloads_are_damage() -> None:
    deep = b"\x91" * 100_000 + b"\x00"
    line = json.dumps({"seq": 0, "payload_hex": deep.hex()}).encode()
    nested = b'{"seq": 1, "payload": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    assert read_lines(line + b"\n" + nested).rejected == [(1, "damaged_line"), (2, "damaged_line")]


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        (KV, "capture.jsonl"),
        (KV, "decoded.jsonl"),
        (TRT, "trtllm.jsonl"),
        (LMCACHE, "lmcache.jsonl"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_nothing_that_is_broken_raises(entry: Format, name: str) -> None:
    """`read_bytes` checks that each record has one outcome."""
    good = (FOLDER / name).read_bytes()
    rng = random.Random(7)
    pieces = [
        b"null",
        b"-1",
        b"1e400",
        b"9" * 40,
        b"[]",
        b"{}",
        b'"\xd9\xa1"',
        b"\x00",
        b"ff",
        b"c1",
    ]
    for _ in range(400):
        data = bytearray(good)
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(data))
            end = min(len(data), at + rng.randrange(30))
            choice = rng.randrange(4)
            if choice == 0:
                data[at:end] = rng.choice(pieces)
            elif choice == 1:
                data[at:end] = b""
            elif choice == 2:
                data[at:at] = good[rng.randrange(len(good)) :][: rng.randrange(200)]
            else:
                data[at] = rng.randrange(256)
        for row in events(read_bytes(entry, bytes(data), token_key=KEY)):
            assert row.block_key is None or 0 <= row.block_key < 2**64
            assert (row.block_key is None) == (row.change == "cleared")


# TensorRT-LLM


def test_trtllm_events() -> None:
    reading = read(TRT, "trtllm.jsonl")
    first, second = chain([0, 1, 2, 3, 4, 5])
    shown: list[Shown] = [
        (row.line, row.change, row.block_key, row.block_tokens, row.medium, row.from_medium)
        for row in events(reading)
    ]
    assert shown == [
        (3, "stored", first, 4, "device", None),
        (3, "stored", second, 2, "device", None),
        (5, "moved", first, None, "host", "device"),
        (7, "removed", second, None, None, None),
        (7, "removed", first, None, None, None),
        (9, "cleared", None, None, None, None),
        (9, "stored", first, 4, "device", None),
    ]
    assert reading.ignored == {"other_window": 2, "priority_update": 1, "replayed_event": 1}
    assert reading.note_codes == {"kv_events_lost", "kv_events_restarts"}


def test_trtllm_capacity() -> None:
    reading = read(TRT, "trtllm.jsonl")
    assert reading.metric("kv_capacity_blocks") == [100.0]
    # A block with another behind it is full: 4 tokens; 100 blocks of 4.
    assert reading.context.engine_facts == {
        "block_size": 4,
        "kv_capacity_blocks": 100,
        "kv_capacity_tokens": 400,
        "host_kv_capacity_blocks": 40,
    }
    assert reading.context.clock == "order"


def test_damaged_trtllm_events() -> None:
    reading = read(TRT, "trtllm_damaged.jsonl")
    assert reading.rejected == [
        (2, "damaged_line"),
        *((line, "invalid_field") for line in (3, 4, 5, 6, 8, 9)),
    ]
    assert reading.ignored == {"unknown_event": 1}


def test_trtllm_events_in_an_array() -> None:
    lines = (FOLDER / "trtllm.jsonl").read_bytes().splitlines()
    data = b"[" + b",".join(lines) + b"]"
    assert sniffed(all_formats(), data) == "trtllm_kv_events"


# LMCache


def test_lmcache_batches() -> None:
    reading = read(LMCACHE, "lmcache.jsonl")
    rows = events(reading)
    names = {key: index for index, key in enumerate(dict.fromkeys(row.block_key for row in rows))}
    assert [(row.line, row.change, names[row.block_key], row.medium) for row in rows] == [
        (1, "stored", 0, "host"),
        (1, "stored", 1, "host"),  # the second rank's part of chunk 1 is left out
        (2, "stored", 0, "disk"),
        (3, "stored", 1, "remote"),  # shared
        (4, "stored", 0, "remote"),
        (5, "removed", 0, "host"),
        (8, "cleared", 2, None),  # a higher incarnation
        (8, "stored", 0, "host"),
        (11, "removed", 0, "remote"),  # in an envelope
    ]
    assert rows[0].instance != rows[4].instance
    assert [row.observed_at_ns for row in rows[6:8]] == [None, None]  # ts 0 is unknown
    assert reading.ignored == {
        "access_event": 1,
        "replayed_batch": 1,
        "stale_batch": 1,
        "config_event": 1,
    }
    assert {"kv_events_lost", "kv_events_restarts", "kv_events_groups"} == reading.note_codes


def test_damaged_lmcache_batches() -> None:
    reading = read(LMCACHE, "lmcache_damaged.jsonl")
    assert reading.rejected == [
        (2, "damaged_line"),
        *((line, "invalid_field") for line in range(3, 10)),
    ]


# Mooncake


def test_mooncake_store_events() -> None:
    replica = [["memory", "tcp://10.0.0.1:6000"]]
    reading = read_lines(
        captured(
            0,
            ["BlockStoreEvent", "key-1", replica, "llm-x", 4, "0xa1", "", [1, 2, 3, 4]],
            ["BlockStoreEvent", "key-2", replica, "llm-x", 4, "0xa2", "0xa1", [5, 6, 7, 8]],
        ),
        captured(1, ["BlockUpdateEvent", "key-1", replica]),
        captured(2, ["BlockUpdateEvent", "key-1", []]),
        captured(3, ["RemoveAllEvent"]),
    )
    rows = events(reading)
    assert [(row.change, row.medium) for row in rows] == [
        ("stored", "remote"),
        ("stored", "remote"),
        ("removed", "remote"),
        ("cleared", None),
    ]
    assert rows[1].parent_key == rows[0].block_key == rows[2].block_key


# Which file is which


@pytest.mark.parametrize(
    ("name", "format_name"),
    [
        ("capture.jsonl", "kv_events"),
        ("capture_damaged.jsonl", "kv_events"),
        ("decoded.jsonl", "kv_events"),
        ("trtllm.jsonl", "trtllm_kv_events"),
        ("trtllm_damaged.jsonl", "trtllm_kv_events"),
        ("lmcache.jsonl", "lmcache_cache_events"),
        ("lmcache_damaged.jsonl", "lmcache_cache_events"),
    ],
)
def test_files_are_recognised(name: str, format_name: str) -> None:
    assert sniffed(all_formats(), (FOLDER / name).read_bytes()) == format_name


@pytest.mark.shared
def test_shared_captures(shared_dir: Path) -> None:
    """The values of INDEX.md."""
    folder = shared_dir / "log_excerpts"
    vllm = events(
        read_bytes(KV, (folder / "vllm-kv-events-capture.jsonl").read_bytes(), token_key=KEY)
    )
    by_line = [
        [(row.change, row.medium, row.instance) for row in vllm if row.line == line]
        for line in (1, 2, 3)
    ]
    assert [row.observed_at_ns for row in vllm][:1] == [1_746_964_800_250_000_000]
    assert by_line == [
        [
            ("stored", "device", "sample"),
            ("stored", "device", "sample"),
            ("removed", "device", "sample"),
            ("cleared", None, "sample"),
        ],
        [("stored", "device", "sample dp 1"), ("stored", "host", "sample dp 1")],
        [
            ("stored", "device", "sample dp 0"),
            ("stored", "device", "sample dp 0"),
            ("removed", "device", "sample dp 0"),
        ],
    ]
    assert {row.block_tokens for row in vllm if row.change == "stored"} == {16}
    reading = read_bytes(TRT, (folder / "trtllm-kv-events.jsonl").read_bytes(), token_key=KEY)
    changes = [row.change for row in events(reading)]
    assert changes == ["stored", "stored", "moved", "removed"]
    moved = events(reading)[2]
    assert (moved.from_medium, moved.medium) == ("device", "host")
    assert reading.metric("kv_capacity_blocks") == [7240.0]
