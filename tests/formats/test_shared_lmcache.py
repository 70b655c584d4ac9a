"""LMCache excerpts of the shared material, alone and beside vLLM, with their right values."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvtrace.ingest.formats.lmcache_text import FORMATS
from kvtrace.ingest.formats.vllm_text import FORMATS as VLLM_FORMATS
from kvtrace.ingest.registry import all_formats
from tests.formats.reading import decoded, read_bytes, read_log, sniffed

LMCACHE = FORMATS[0]
pytestmark = pytest.mark.shared


@pytest.fixture
def excerpts(shared_dir: Path) -> Path:
    return shared_dir / "log_excerpts"


def test_old_wording_counts_a_failed_load_as_recomputed(excerpts: Path) -> None:
    reading = read_bytes(LMCACHE, decoded(excerpts / "lmcache-0.3.1-old.log"))
    (row,) = reading.requests
    assert (row.prompt_tokens, row.cached_tokens, row.computed_tokens) == (768, 192, 576)
    assert (row.cached_device_tokens, row.flags) == (0, ("partial_load",))
    (load,) = reading.transfers
    assert load.moved_tokens == 192  # of one rank
    assert load.moved_bytes == 192 * 524_288  # 0.0938 GiB, the only rank that printed it
    assert (load.request_id, load.duration_ns) == ("cmpl-67-0", 30_000_000)
    assert reading.rejected == []


def test_coloured_lines_add_up_to_one_store(excerpts: Path) -> None:
    reading = read_bytes(LMCACHE, decoded(excerpts / "lmcache-0.3.13-ansi.log"))
    (row,) = reading.requests
    assert (row.request_id, row.prompt_tokens, row.cached_tokens) == ("chatcmpl-8e", 9000, 0)
    (store,) = reading.transfers
    assert (store.request_id, store.direction) == ("chatcmpl-8e", "store")
    assert (store.moved_tokens, store.moved_bytes) == (4096, 2**29)
    assert store.duration_ns == 51_000_000
    assert reading.context.engine_facts["kv_bytes_per_token"] == 131_072


def test_server_splits_its_chunks_by_level(excerpts: Path) -> None:
    reading = read_bytes(LMCACHE, decoded(excerpts / "lmcache-0.5.6-mp-server.log"))
    (row,) = reading.requests
    assert row.cached_tokens == 10_240
    assert (row.cached_host_tokens, row.cached_remote_tokens) == (9216, 1024)
    stored = [move.moved_tokens for move in reading.transfers if move.direction == "store"]
    assert stored == [1600]
    assert reading.metric("kv_loaded_bytes") == [0.54e9]
    assert reading.metric("kv_stored_bytes") == [0.42e9]


def test_lookups_beside_vllm_split_local_from_external(excerpts: Path) -> None:
    data = decoded(excerpts / "vllm-0.13.0-lmcache-external.log")
    readings = read_log([*VLLM_FORMATS, LMCACHE], data)
    rows = {row.request_id: row for row in readings["lmcache_text"].requests}
    split = {
        name: (row.prompt_tokens, row.cached_tokens, row.cached_device_tokens)
        for name, row in rows.items()
    }
    assert split == {
        "chatcmpl-96": (9000, 8960, 4096),
        "chatcmpl-97": (1000, 976, 976),
        "chatcmpl-98": (512, 511, 0),
        "chatcmpl-99": (300, None, None),
    }
    (load,) = readings["lmcache_text"].transfers
    assert (load.moved_tokens, load.moved_bytes) == (4864, 4864 * 131_072)
    assert load.duration_ns == 80_000_000
    assert readings["vllm_text"].metric("external_prefix_hit_ratio") == [0.992]


def test_engine_suffix_stays_on_the_id(excerpts: Path) -> None:
    data = decoded(excerpts / "vllm-0.22-info-and-debug.log")
    (row,) = read_log([*VLLM_FORMATS, LMCACHE], data)["lmcache_text"].requests
    assert row.request_id == "chatcmpl-5d0c1b2a3f4e5d6c-1a2b3c4d"
    assert (row.prompt_tokens, row.cached_device_tokens) == (48, 16)
    assert (row.cached_tokens, row.computed_tokens) == (32, 16)


@pytest.mark.parametrize(
    "name", ["lmcache-0.3.1-old.log", "lmcache-0.3.13-ansi.log", "lmcache-0.5.6-mp-server.log"]
)
def test_excerpts_are_recognised(excerpts: Path, name: str) -> None:
    assert sniffed(all_formats(), decoded(excerpts / name)) == "lmcache_text"
