"""`KV Transfer metrics:` lines: bytes of all ranks, seconds summed over them, never half a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvtrace.ingest.formats.vllm_text import FORMATS
from kvtrace.schema.metrics import METRICS
from tests.formats.reading import Reading, read_bytes

VLLM = FORMATS[0]
NIXL = (
    "Num successful transfers=4, Avg xfer time (ms)=2.5, P90 xfer time (ms)=3.0, "
    "Avg post time (ms)=0.5, P90 post time (ms)=0.6, Avg MB per transfer=1.25, "
    "Throughput (MB/s)=500.0, Avg number of descriptors=8.0"
)
FAILURES = ", Num failed transfers=2, Num KV expired reqs=1, Num notifs after expiry=0"
OFFLOAD = (
    "vllm:kv_offload_store_bytes=4096, vllm:kv_offload_store_time=0.002, "
    "vllm:kv_offload_load_bytes=1024, vllm:kv_offload_load_time=0.0005, "
    "vllm:kv_offload_load_size_count=1, vllm:kv_offload_load_size_sum=1024"
)
OLD_OFFLOAD = (
    "GPU_to_CPU_total_bytes=4096, GPU_to_CPU_total_time=0.002, "
    "CPU_to_GPU_total_bytes=1024, CPU_to_GPU_total_time=0.0005"
)
MOVES_OF_OFFLOAD = [
    ("store", "device>host", 4096, 2_000_000),
    ("load", "host>device", 1024, 500_000),
]


def read(*bodies: str, end: str = "\n", before: str = "") -> Reading:
    lines = [
        f"INFO 10-22 13:28:{number:02d} [metrics.py:98] {before}KV Transfer metrics: {body}"
        for number, body in enumerate(bodies)
    ]
    return read_bytes(VLLM, ("\n".join(lines) + end).encode())


def moves(reading: Reading) -> list[tuple[str, str | None, int | None, int | None]]:
    return [
        (row.direction, row.path, row.moved_bytes, row.duration_ns) for row in reading.transfers
    ]


def metrics(reading: Reading) -> dict[str, float | None]:
    return {m.metric: m.value for sample in reading.samples for m in sample.metrics}


def test_nixl_counts_every_rank() -> None:
    reading = read(NIXL)
    # 4 × 1.25 MiB = 5 MiB = 5 242 880 B; 4 × 2.5 ms = 10 ms; 5 MiB in 10 ms = the printed 500 MiB/s
    assert moves(reading) == [("hand_off", "remote>device", 5_242_880, 10_000_000)]
    assert reading.transfers[0].ranks is None  # how many is not said
    assert reading.transfers[0].started_at_ns == reading.samples[0].observed_at_ns
    assert metrics(reading) == {
        "kv_transfers": 4.0,
        "kv_moved_bytes": 5_242_880.0,
        "kv_move_s": 0.01,
        "transfer_bytes_per_s": 524_288_000.0,
    }
    assert {m.window for m in reading.samples[0].metrics} == {"interval"}
    assert "transfer_time_pooled" in reading.note_codes
    assert reading.context.engine_version == ">=0.11.0"


def test_failures_are_samples() -> None:
    found = metrics(read(NIXL + FAILURES))
    assert (found["failed_kv_transfers"], found["kv_expired_requests"]) == (2.0, 1.0)


def test_an_interval_without_transfers_is_a_measured_zero_and_no_move() -> None:
    zeros = (
        "Num successful transfers=0, Avg xfer time (ms)=0, P90 xfer time (ms)=0, "
        "Avg post time (ms)=0, P90 post time (ms)=0, Avg MB per transfer=0, Throughput (MB/s)=0, "
        "Avg number of descriptors=0, Num failed transfers=1"
    )
    reading = read(zeros)
    assert moves(reading) == []
    assert metrics(reading) == {
        "kv_transfers": 0.0,
        "kv_moved_bytes": 0.0,
        "kv_move_s": 0.0,
        "failed_kv_transfers": 1.0,
    }


@pytest.mark.parametrize("body", [OFFLOAD, OLD_OFFLOAD])
def test_offloading_has_two_directions(body: str) -> None:
    reading = read(body)
    assert moves(reading) == MOVES_OF_OFFLOAD
    assert metrics(reading) == {
        "kv_stored_bytes": 4096.0,
        "kv_store_s": 0.002,
        "kv_loaded_bytes": 1024.0,
        "kv_load_s": 0.0005,
    }
    assert reading.context.tally.used == 1


def test_a_connector_without_post_times_does_not_say_who_reads() -> None:
    mooncake = (
        "Num successful transfers=2, Avg xfer time (ms)=20.0, Avg MB per transfer=2.0, "
        "Throughput (MB/s)=100.0, Num failed transfers=1"
    )
    assert moves(read(mooncake)) == [("hand_off", None, 4_194_304, 40_000_000)]


def test_several_connectors_add_up_but_their_rates_do_not() -> None:
    one = (
        "{'Num successful transfers': 2, 'Avg xfer time (ms)': 10.0, 'Avg MB per transfer': 1.0,"
        " 'Throughput (MB/s)': 100.0}"
    )
    numpy = one.replace("10.0", "np.float64(10.0)")
    reading = read(f"NixlConnector={one}, OtherConnector={numpy}, OffloadingConnector={{}}")
    assert moves(reading) == [
        ("hand_off", "remote>device", 2_097_152, 20_000_000),
        ("hand_off", None, 2_097_152, 20_000_000),
    ]
    assert metrics(reading) == {
        "kv_transfers": 4.0,
        "kv_moved_bytes": 4_194_304.0,
        "kv_move_s": 0.04,
        "transfer_bytes_per_s": None,
    }


@pytest.mark.parametrize(
    "body",
    [
        "load_count=10, load_avg_ms=550.0, load_keys=20",
        "HiSparse hits=3",
        "SomeConnector={'keys': [1, 2]}",
        "SomeConnector={'deep': {'Num successful transfers': 2}}",
        "NixlConnector={'Num successful transfers': 2, 'path': 'x'}",
        "state=idle, mode=a b",
    ],
)
def test_other_keys_are_counted_with_a_note(body: str) -> None:
    reading = read(body)
    assert reading.ignored == {"kv_transfer_keys_unknown": 1}
    assert "kv_transfer_keys_unknown" in reading.note_codes
    assert reading.transfers == []
    assert reading.samples == []


@pytest.mark.parametrize(
    "body",
    [
        NIXL[:-30],  # a field without its end
        NIXL.partition(", Throughput")[0],  # cut between fields
        "Num successful transfers=4",
        OFFLOAD.partition(", vllm:kv_offload_store_time")[0],
        NIXL.replace("=1.25", "=1.25 [x]"),
        NIXL.replace("=8.0", "=8.0x"),
        "NixlConnector={'Num successful transfers': 2",
        "",
        "=",
        "x=1, " * 5000,
    ],
)
def test_damaged_lines_are_rejected_whole(body: str) -> None:
    reading = read(body)
    assert reading.rejected == [(1, "damaged_line")]
    assert reading.transfers == []
    assert reading.samples == []


def test_a_number_at_the_end_of_the_file_may_be_cut() -> None:
    assert read(NIXL, end="").rejected == [(1, "damaged_line")]
    assert len(read(NIXL).transfers) == 1


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "-3", "1e300", "9" * 24])
def test_numbers_that_measure_nothing_are_unknown(number: str) -> None:
    row = read(NIXL.replace("1.25", number)).transfers[0]
    assert row.moved_bytes is None
    assert row.duration_ns == 10_000_000
    assert read(NIXL.replace("=2.5", f"={number}")).transfers[0].duration_ns is None


def test_the_engine_is_kept_where_the_line_names_it() -> None:
    assert read(NIXL, before="Engine 003: ").samples[0].engine == "Engine 003"


def test_every_metric_is_in_the_vocabulary() -> None:
    for name, _ in metrics(read(NIXL + FAILURES, OFFLOAD)).items():
        assert name in METRICS


@given(
    st.sampled_from([NIXL + FAILURES, OFFLOAD, "A={'Num successful transfers': 2}, B={}"]),
    st.lists(st.tuples(st.integers(0, 300), st.text(max_size=4)), max_size=4),
)
def test_no_edit_raises_or_loses_the_line(body: str, edits: list[tuple[int, str]]) -> None:
    for at, piece in edits:
        body = body[:at] + piece + body[at + len(piece) :]
    reading = read(body.replace("\n", " ").replace("\r", " "))
    assert reading.context.tally.used + sum(reading.ignored.values()) + len(reading.rejected) == 1
