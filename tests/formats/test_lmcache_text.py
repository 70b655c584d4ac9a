"""LMCache text logs: tiers by subtraction, ranks pooled, the last look-up counts, GB are GiB."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.ingest.contract import RequestRow, TransferRow
from kvtrace.ingest.formats.lmcache_text import FORMATS
from kvtrace.ingest.formats.lmcache_text.sizes import moved_bytes
from kvtrace.ingest.formats.vllm_text import FORMATS as VLLM_FORMATS
from kvtrace.ingest.registry import all_formats
from kvtrace.schema.metrics import METRICS
from tests.formats.reading import DATA, Reading, read_bytes, read_log, sniffed

LMCACHE = FORMATS[0]
FOLDER = DATA / "lmcache_text"
ENGINE = (FOLDER / "good_engine.log").read_bytes()
OLD = (FOLDER / "good_old.log").read_bytes()
SERVER = (FOLDER / "good_server.log").read_bytes()
MALFORMED = (FOLDER / "malformed.log").read_bytes()
MIB = 2**20


def log(*messages: str, process: str = "", end: str = "\n") -> bytes:
    """A log of INFO lines with the place in LMCache's source, one second apart."""
    stamped = [
        f"{process}[2026-03-01 10:00:{second:02d},000] LMCache INFO: {message} (x.py:1:lmcache.x)"
        for second, message in enumerate(messages)
    ]
    return ("\n".join(stamped) + end).encode()


def looked_up(total: int, hit: int | str, load: int, *, name: str = "a") -> str:
    return f"Reqid: {name}, Total tokens {total}, LMCache hit tokens: {hit}, need to load: {load}"


def retrieved(tokens: int, wanted: int, total: int, *, name: str | None = None) -> str:
    front = "" if name is None else f"[req_id={name}] "
    return (
        f"{front}Retrieved {tokens} out of {wanted} required tokens (from {total} total tokens)."
        " size: 0.1250 gb, cost 10.0000 ms, throughput: 12.5000 GB/s;"
    )


def split(row: RequestRow) -> tuple[int | None, ...]:
    """(prompt, cached, device, host, disk, remote, computed)"""
    return (
        row.prompt_tokens,
        row.cached_tokens,
        row.cached_device_tokens,
        row.cached_host_tokens,
        row.cached_disk_tokens,
        row.cached_remote_tokens,
        row.computed_tokens,
    )


def moved(row: TransferRow) -> tuple[str | None, str, int | None, int | None, int | None, int]:
    """(request, direction, tokens, bytes, ns, ranks)"""
    assert row.ranks is not None
    return (
        row.request_id,
        row.direction,
        row.moved_tokens,
        row.moved_bytes,
        row.duration_ns,
        row.ranks,
    )


def test_engine_prints_what_it_holds_itself() -> None:
    reading = read_bytes(LMCACHE, ENGINE)
    assert [(row.request_id, split(row)) for row in reading.requests] == [
        # 512 in HBM, 1 024 loaded by both ranks; the only backend is the host's
        ("cmpl-a-0", (2000, 1536, 512, 1024, 0, 0, 464)),
        ("cmpl-b-0", (300, 0, 0, 0, 0, 0, 300)),  # too little to load: 256 found, none loaded
        ("cmpl-c-0", (600, 512, 64, 448, 0, 0, 88)),  # the last of two look-ups
    ]
    assert [row.flags for row in reading.requests] == [(), (), ("load_not_confirmed",)]
    assert reading.ignored == {"other_engine_line": 1}
    assert reading.context.evidence_grade == "B"
    assert reading.context.engine_version == ">=0.4.0"


def test_ranks_are_pooled_tokens_once_bytes_summed_time_the_longest() -> None:
    transfers = read_bytes(LMCACHE, ENGINE).transfers
    assert [moved(row) for row in transfers] == [
        # 64 MiB a rank: 65 536 bytes a token × 1 024; 10 and 12 ms
        ("cmpl-a-0", "load", 1024, 128 * MIB, 12_000_000, 2),
        # printed as 0.0283 GB a rank: 464 × 65 536 = 0.02832 GiB
        ("cmpl-a-0", "store", 464, 2 * 464 * 65_536, 5_000_000, 2),
    ]
    assert [row.path for row in transfers] == ["host>device", "device>host"]
    # the line of 10:00:01.020 ended a load of 10 ms
    assert (transfers[0].started_at_ns or 0) % 1_000_000_000 == 10_000_000


def test_engine_facts_hold_bytes_of_a_token_over_all_ranks() -> None:
    assert read_bytes(LMCACHE, ENGINE).context.engine_facts == {
        "chunk_tokens": 256,
        "kv_bytes_per_token": 131_072,
        "kv_bytes_per_token_of_a_rank": 65_536,
    }


def test_lines_without_ids_find_their_requests() -> None:
    reading = read_bytes(LMCACHE, OLD)
    assert [(row.request_id, split(row)) for row in reading.requests] == [
        ("cmpl-a-0", (1000, 768, 0, 0, 0, 768, 232)),  # 3 objects of 256 came from remote
        ("cmpl-b-0", (1000, 256, 0, None, None, None, 744)),  # 256 of 512 came; tier not said
        ("user-7", (1000, 976, 976, 0, 0, 0, 24)),  # −208: the engine holds 768 + 208
        ("user-7", (512, 511, 0, None, None, None, 1)),  # the id again; its last token is computed
        ("cmpl-d-0", (90, None, None, None, None, None, None)),  # still pending
    ]
    assert [row.flags for row in reading.requests] == [
        (),
        ("partial_load",),
        (),
        ("load_not_confirmed",),
        ("lookup_pending",),
    ]
    assert [row.status for row in reading.requests] == ["ok", "ok", "ok", "ok", "open"]
    assert [moved(row) for row in reading.transfers] == [
        ("cmpl-a-0", "load", 768, 192 * MIB, 100_000_000, 2),
        ("cmpl-b-0", "load", 256, 64 * MIB, 25_000_000, 2),
        ("cmpl-a-0", "store", 232, 2 * 232 * 131_072, 5_000_000, 2),
    ]
    assert [row.path for row in reading.transfers] == ["remote>device", None, "device>host"]
    assert reading.context.engine_version == ">=0.3.7,<0.4.0"


def test_server_counts_keys_and_loads_show_what_a_key_holds() -> None:
    reading = read_bytes(LMCACHE, SERVER)
    # 60 keys, then 3 840 tokens: a key is 64 tokens, since each of 4 ranks has its own
    assert [(row.request_id, split(row)) for row in reading.requests] == [
        ("chatcmpl-x-0a1b2c3d", (None, 3840, 0, 3072, None, 768, None)),
        ("chatcmpl-y-0a1b2c3d", (None, 512, None, 512, None, 0, None)),
        ("chatcmpl-z-0a1b2c3d", (None, 768, 0, 768, None, 0, None)),
        ("chatcmpl-n-0a1b2c3d", (None, None, None, 0, 0, 0, None)),
    ]
    assert [moved(row) for row in reading.transfers] == [
        ("chatcmpl-x-0a1b2c3d", "load", 3840, None, 14_000_000, 2),
        ("chatcmpl-z-0a1b2c3d", "load", 768, None, 2_000_000, 1),
        (None, "store", 1600, None, 2_000_000, 1),
    ]
    assert reading.context.engine_facts == {"key_tokens": 64}
    assert {"keys_of_ranks", "misses_not_logged", "chunk_size"} <= reading.note_codes


def test_server_statistics_are_of_the_window_and_decimal() -> None:
    reading = read_bytes(LMCACHE, SERVER)
    assert reading.metric("kv_loaded_bytes") == [1.5e9]
    assert reading.metric("kv_stored_bytes") == [0.25e9]
    assert reading.metric("kv_load_bytes_per_s") == [20e9]
    assert reading.metric("kv_store_bytes_per_s") == [None]  # n/a: shown without a value
    assert reading.metric("host_kv_used_bytes") == [45.25 * 2**30]
    assert [sample.engine for sample in reading.samples] == ["cuda:0", None]
    assert {m.window_ns for m in reading.samples[0].metrics} == {10_000_000_000}
    assert reading.ignored == {"cumulative_statistics": 1, "repeated_lookup": 1}


def test_metrics_are_of_the_vocabulary() -> None:
    for sample in read_bytes(LMCACHE, SERVER).samples:
        for metric in sample.metrics:
            assert METRICS[metric.metric].unit == metric.unit


def test_damaged_lines_are_rejected_whole() -> None:
    reading = read_bytes(LMCACHE, MALFORMED)
    assert reading.rejected == [
        (1, "damaged_line"),  # spliced
        (2, "invalid_field"),  # 256 found in a prompt of 100
        (3, "damaged_line"),
        (4, "invalid_field"),  # 500 loaded of 400
        (5, "damaged_line"),
        (6, "damaged_line"),  # its end is missing, though a line end follows
        (7, "invalid_field"),  # 36 + 5 keys are not 40
        (8, "damaged_line"),
        (9, "damaged_line"),
        (11, "damaged_line"),  # the file ends in it
    ]
    assert [(row.request_id, row.cached_tokens) for row in reading.requests] == [("cmpl-e-0", 256)]


@pytest.mark.parametrize(
    ("total", "hit", "load", "device", "loaded"),
    [
        (9000, 8960, 4864, 4096, 4864),
        (1000, 768, -208, 976, 0),
        (512, 512, 511, 0, 511),  # the whole prompt: one token less is loaded
        (512, 512, 255, 256, 255),
        (351, 350, 350, 0, 350),  # 0.3.0 took the token off the hit itself
        (100, 0, 0, 0, 0),
        (100, 64, 0, 64, 0),
    ],
)
def test_what_the_engine_holds_is_found_by_subtraction(
    total: int, hit: int, load: int, device: int, loaded: int
) -> None:
    (row,) = read_bytes(LMCACHE, log(looked_up(total, hit, load))).requests
    assert (row.cached_device_tokens, row.cached_tokens) == (device, device + loaded)
    assert row.computed_tokens == total - device - loaded


def test_repeated_lookup_is_the_same_request_until_something_moved() -> None:
    asked = looked_up(1000, 768, 768)
    again = read_bytes(LMCACHE, log(asked, asked))
    assert len(again.requests) == 1
    used = read_bytes(LMCACHE, log(asked, retrieved(768, 768, 1000), asked))
    assert [row.flags for row in used.requests] == [(), ("load_not_confirmed",)]
    other = read_bytes(LMCACHE, log(asked, looked_up(900, 768, 768)))
    assert [row.prompt_tokens for row in other.requests] == [1000, 900]


def test_id_with_the_engines_suffix_is_resumed_and_not_counted_again() -> None:
    name = "cmpl-a-0-0123abcd"
    asked = looked_up(1000, 768, 768, name=name)
    resumed = looked_up(1010, 768, 768, name=name)
    reading = read_bytes(LMCACHE, log(asked, retrieved(768, 768, 1000, name=name), resumed))
    assert [row.prompt_tokens for row in reading.requests] == [1000]
    assert reading.ignored == {"resumed_lookup": 1}


def test_restart_makes_the_next_use_of_an_id_a_new_request() -> None:
    start = "Creating LMCacheEngine with config: {'chunk_size': 64}"
    asked = looked_up(1000, 768, 768)
    reading = read_bytes(LMCACHE, log(start, asked, start, asked))
    assert len(reading.requests) == 2
    assert reading.context.engine_facts["chunk_tokens"] == 64


def test_ranks_without_process_names_are_told_by_the_repeated_step() -> None:
    asked, loaded = looked_up(2000, 1024, 1024), retrieved(1024, 1024, 2000)
    (row,) = read_bytes(LMCACHE, log(asked, loaded, loaded)).transfers
    assert moved(row) == ("a", "load", 1024, 256 * MIB, 10_000_000, 2)


def test_chunks_of_one_prompt_are_stored_one_after_the_other() -> None:
    stored = "Stored 2048 out of total 2048 tokens. size: 0.2500 GB, cost 25.0000 ms,"
    stored += " throughput: 10.0000 GB/s; offload_time: 24.0000 ms, put_time: 1.0000 ms"
    first = "Storing KV cache for 2048 out of 2048 tokens (skip_leading_tokens=0) for request a"
    next_ = "Storing KV cache for 2048 out of 4096 tokens (skip_leading_tokens=2048) for request a"
    (row,) = read_bytes(LMCACHE, log(first, stored, next_, stored)).transfers
    assert moved(row) == ("a", "store", 4096, 512 * MIB, 50_000_000, 1)


def test_groups_of_one_worker_add_bytes_and_time_but_no_tokens() -> None:
    rest = retrieved(1024, 1024, 2000).partition("Retrieved")[2]
    lines = [f"[req_id=a kv_group={group}] Retrieved{rest}" for group in (0, 1)]
    (row,) = read_bytes(LMCACHE, log(*lines, process="(Worker_TP0 pid=1) ")).transfers
    assert moved(row) == ("a", "load", 1024, 256 * MIB, 20_000_000, 1)


def test_move_of_an_unknown_request_is_kept_without_one() -> None:
    (row,) = read_bytes(LMCACHE, log(retrieved(1024, 1024, 2000))).transfers
    assert moved(row) == (None, "load", 1024, 128 * MIB, 10_000_000, 1)


def test_loads_of_engines_in_one_file_stay_apart() -> None:
    lines = b""
    for rank in (0, 1):
        lines += log(
            looked_up(1000, 768, 768, name=f"r{rank}"), process=f"(EngineCore_DP{rank} pid=1) "
        )
    for rank in (1, 0):
        lines += log(retrieved(768, 768, 1000), process=f"(Worker_DP{rank}_TP0 pid=2) ")
    transfers = read_bytes(LMCACHE, lines).transfers
    assert [row.request_id for row in transfers] == ["r1", "r0"]


@pytest.mark.parametrize(
    ("gib", "cost", "rate", "tokens", "expected"),
    [
        ("0.5938", "80.0000", "7.4219", 4864, 131_072),
        ("0.0019", "1.0830", "1.7753", 14, 147_456),  # 36 layers × 8 heads × 128 × 2 × 2 bytes
        ("0.5195", "501.7759", "1.0354", 4864, 114_688),
        ("0.0020", "0.5500", "3.6364", 16, None),  # too coarse
        ("0.0000", "0.1000", "0.0000", 16, None),
        ("0.5000", "1.0000", "9.0000", 16, None),  # size and rate contradict each other
    ],
)
def test_bytes_of_a_token_follow_from_both_roundings(
    gib: str, cost: str, rate: str, tokens: int, expected: int | None
) -> None:
    moved = moved_bytes(tokens, gib=gib, cost_ms=cost, gib_per_s=rate)
    assert moved.token == expected
    rounded = int(Decimal(gib) * 2**30)
    assert moved.total == (rounded if expected is None else expected * tokens)


def test_id_that_imitates_a_lookup_stays_an_id() -> None:
    name = "a, Total tokens 5, LMCache hit tokens: 5, need to load: 5"
    (row,) = read_bytes(LMCACHE, log(looked_up(1000, 768, 768, name=name))).requests
    assert (row.request_id, row.prompt_tokens) == (name, 1000)


def test_colours_inside_the_prefix_come_off() -> None:
    line = "\x1b[32;20m[2026-03-01 10:00:00,000] LMCache INFO:\x1b[0m "
    line += looked_up(1000, 768, 768) + " \x1b[3m(x.py:1:lmcache.x)\x1b[0m\n"
    (row,) = read_bytes(LMCACHE, line.encode()).requests
    assert (row.request_id, row.prompt_tokens) == ("a", 1000)


def test_lines_of_other_programs_are_not_taken() -> None:
    data = b"Stored 5 items in the basket\nRetrieved 5 out of 6 documents\nReqid: unknown\n"
    data += b'{"message": "Stored 17 rows", "asctime": "2026-03-01 10:00:00"}\n'
    reading = read_bytes(LMCACHE, data)
    assert (reading.rows, reading.rejected) == ([], [])
    assert sum(reading.ignored.values()) == 4


def test_other_engines_requests_in_the_same_log_keep_their_lines() -> None:
    data = b"(APIServer pid=1) INFO 03-01 10:00:00 [x.py:1] Added request a.\n" + OLD
    readings = read_log([*VLLM_FORMATS, LMCACHE], data)
    assert len(readings["vllm_text"].requests) == 1
    assert len(readings["lmcache_text"].requests) == 5


def test_sniffed_by_its_messages() -> None:
    assert sniffed(all_formats(), ENGINE) == "lmcache_text"
    assert sniffed(all_formats(), SERVER) == "lmcache_text"


def test_open_requests_are_bounded_and_none_is_lost() -> None:
    asked = [looked_up(1000, 768, 768, name=f"r{number}") for number in range(5_000)]
    reading = read_bytes(LMCACHE, b"".join(log(line) for line in asked))
    assert len(reading.requests) == 5_000


def test_line_longer_than_any_message_is_damaged() -> None:
    long = log("Reqid: " + "a, Total tokens 5" * 200_000)
    assert read_bytes(LMCACHE, long).rejected == [(1, "damaged_line")]


def facts(reading: Reading) -> list[tuple[str | None, int | None, int | None]]:
    return [(row.request_id, row.prompt_tokens, row.cached_tokens) for row in reading.requests]


@given(st.integers(min_value=0, max_value=len(ENGINE)))
def test_file_cut_anywhere_invents_nothing(length: int) -> None:
    whole, cut = read_bytes(LMCACHE, ENGINE), read_bytes(LMCACHE, ENGINE[:length])
    known = {row.request_id: row for row in whole.requests}
    for row in cut.requests:
        full = known[row.request_id]
        assert row.prompt_tokens == full.prompt_tokens
        assert row.cached_tokens in (None, full.cached_tokens)
    assert sum(row.moved_bytes or 0 for row in cut.transfers) <= sum(
        row.moved_bytes or 0 for row in whole.transfers
    )


@given(
    st.sampled_from([ENGINE, OLD, SERVER]),
    st.lists(st.tuples(st.integers(0, 2_000), st.binary(max_size=6)), max_size=6),
)
def test_any_bytes_are_counted_and_never_raise(data: bytes, edits: list[tuple[int, bytes]]) -> None:
    for at, patch in edits:
        data = data[:at] + patch + data[at + len(patch) :]
    reading = read_bytes(LMCACHE, data)  # fails if a record has no outcome
    for row in reading.requests:
        if row.prompt_tokens is not None and row.cached_tokens is not None:
            assert 0 <= row.cached_tokens <= row.prompt_tokens


def test_lookup_that_finds_nothing_any_more_waits_for_no_load() -> None:
    prefetch = (
        "Prefetch request completed (L1+L2): {found}/50 retained keys ({found} L1, 0 L2) in 0.8 ms"
        " (external_request_id=a, prefetch_request_id=-1)"
    )
    reading = read_bytes(
        LMCACHE,
        log(
            prefetch.format(found=40),
            prefetch.format(found=0),
            "Retrieved 10240 tokens in 0.012 seconds",
        ),
    )
    assert [(row.cached_host_tokens, row.flags) for row in reading.requests] == [
        (0, ("found_in_chunks",))
    ]
    assert [row.request_id for row in reading.transfers] == [None]
