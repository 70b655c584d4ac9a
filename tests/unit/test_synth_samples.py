"""The committed sample files: the generator makes them, and they tell the story of their README."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from statistics import median

import pytest

from kvtrace.errors import OutputError
from kvtrace.synth import (
    SAMPLE_SEED,
    Served,
    build_samples,
    generate,
    sample_profile,
    serve,
    write_samples,
)
from kvtrace.synth.samples import LOG_NAME, METRICS_NAME, TRACE_NAME
from tests import zstd
from tests.conftest import REPO

FOLDER = REPO / "sample_traces"
AGENTS_ARRIVE_NS = 35 * 60 * 1_000_000_000


def unpack(path: Path) -> bytes:
    packed = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(packed)
    return zstd.decompress(packed) if path.suffix == ".zst" else packed


@pytest.fixture(scope="module")
def made() -> dict[str, bytes]:
    return build_samples(SAMPLE_SEED)


@pytest.fixture(scope="module")
def served() -> tuple[Served, ...]:
    return serve(generate(sample_profile(SAMPLE_SEED)))


@pytest.mark.parametrize("name", [TRACE_NAME, LOG_NAME, METRICS_NAME])
def test_committed_files_are_what_the_seed_gives(name: str, made: dict[str, bytes]) -> None:
    # The decompressed bytes: another zlib or zstd release may pack the same bytes differently.
    assert unpack(FOLDER / name) == made[name]


def test_sample_folder_holds_the_three_files_and_a_readme_and_stays_small() -> None:
    files = sorted(FOLDER.iterdir())
    assert {file.name for file in files} == {TRACE_NAME, LOG_NAME, METRICS_NAME, "README.md"}
    assert sum(file.stat().st_size for file in files) < 1_500_000


def test_the_three_files_name_the_same_requests(made: dict[str, bytes]) -> None:
    trace = [json.loads(line)["request_id"] for line in made[TRACE_NAME].splitlines()]
    metrics = [json.loads(line)["request_id"] for line in made[METRICS_NAME].splitlines()]
    log = re.findall(r"Received request (\S+): params", made[LOG_NAME].decode())
    responses = re.findall(r"Generated response (\S+) \(", made[LOG_NAME].decode())
    assert len(set(trace)) == len(trace) == 1448
    assert sorted(trace) == sorted(metrics) == sorted(log) == sorted(responses)


def test_trace_and_metrics_agree_on_lengths_and_arrivals(made: dict[str, bytes]) -> None:
    metrics = {row["request_id"]: row for row in map(json.loads, made[METRICS_NAME].splitlines())}
    for row in map(json.loads, made[TRACE_NAME].splitlines()):
        other = metrics[row["request_id"]]
        assert (row["input_length"], row["output_length"]) == (
            other["input_toks"],
            other["output_toks"],
        )
        # 1 773 129 600 is 2026-03-10 08:00:00 UTC, the start of the trace.
        assert other["arrival_time"] - 1_773_129_600 == pytest.approx(
            row["timestamp"] / 1000, abs=0.0011
        )


def test_trace_ids_count_up_by_first_appearance(made: dict[str, bytes]) -> None:
    following = 0
    for line in made[TRACE_NAME].splitlines():
        for block in json.loads(line)["hash_ids"]:
            assert block <= following
            following = max(following, block + 1)
    assert following == 49_176


def test_request_times_are_in_order(served: tuple[Served, ...]) -> None:
    for one in served:
        assert one.arrived_at_ns < one.queued_at_ns <= one.scheduled_at_ns
        assert one.scheduled_at_ns < one.first_token_at_ns <= one.last_token_at_ns


def test_hits_never_exceed_what_the_trace_can_reuse(served: tuple[Served, ...]) -> None:
    seen: set[int] = set()
    for one in served:
        ids = one.request.block_ids
        known = next((i for i, block in enumerate(ids) if block not in seen), len(ids))
        hit_tokens = one.device_tokens + one.pulled_tokens
        assert hit_tokens <= min(known * 64, one.request.prompt_tokens - 1)
        seen.update(ids)


def hit_ratio(served: list[Served]) -> float:
    hits = sum(one.device_tokens + one.pulled_tokens for one in served)
    return hits / sum(one.request.prompt_tokens for one in served)


def test_hit_ratio_doubles_and_ttft_grows_more_than_five_fold(served: tuple[Served, ...]) -> None:
    before = [one for one in served if one.arrived_at_ns < AGENTS_ARRIVE_NS]
    after = [one for one in served if one.arrived_at_ns >= AGENTS_ARRIVE_NS]
    assert (len(before), len(after)) == (356, 1092)
    assert hit_ratio(before) == pytest.approx(0.430, abs=0.0005)
    assert hit_ratio(after) == pytest.approx(0.840, abs=0.0005)
    assert median(one.ttft_ns for one in before) / 1e9 == pytest.approx(0.238, abs=0.001)
    assert median(one.ttft_ns for one in after) / 1e9 == pytest.approx(1.882, abs=0.001)


def test_chats_get_slower_at_an_equal_hit_ratio(served: tuple[Served, ...]) -> None:
    chats = [one for one in served if one.request.workload == "chat"]
    before = [one for one in chats if one.arrived_at_ns < AGENTS_ARRIVE_NS]
    after = [one for one in chats if one.arrived_at_ns >= AGENTS_ARRIVE_NS]
    assert hit_ratio(after) == pytest.approx(hit_ratio(before), abs=0.005)
    assert median(o.ttft_ns for o in after) > 3 * median(o.ttft_ns for o in before)


def test_last_statistics_line_shows_both_hit_ratios(made: dict[str, bytes]) -> None:
    last = [line for line in made[LOG_NAME].decode().splitlines() if " Engine 000: " in line][-1]
    assert "Prefix cache hit rate: 37.9%, External prefix cache hit rate: 76.2%" in last


def test_log_has_nothing_private(made: dict[str, bytes]) -> None:
    log = made[LOG_NAME].decode()
    assert "prompt:" not in log
    assert set(re.findall(r"\d+\.\d+\.\d+\.\d+", log)) == {"127.0.0.1"}


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    first = write_samples(tmp_path / "a", 3)
    second = write_samples(tmp_path / "b", 3)
    assert [path.name for path in first] == [TRACE_NAME, LOG_NAME, METRICS_NAME]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_a_folder_that_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    with pytest.raises(OutputError) as caught:
        write_samples(blocked, 3)
    assert caught.value.code == "KVT-O010"
