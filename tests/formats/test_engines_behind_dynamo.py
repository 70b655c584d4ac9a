"""Engines inside Dynamo: their messages stand behind the prefix of Rust's tracing."""

from __future__ import annotations

from kvtrace.ingest.formats.dynamo_text import FORMATS as DYNAMO
from kvtrace.ingest.formats.lmcache_text import FORMATS as LMCACHE
from kvtrace.ingest.formats.sglang_text import FORMATS as SGLANG
from kvtrace.ingest.formats.trtllm_text import FORMATS as TRTLLM
from kvtrace.ingest.formats.vllm_text import FORMATS as VLLM
from tests.formats.reading import read_log

BATCH = (
    "Prefill batch, #new-seq: 1, #new-token: 100, #cached-token: 28, token usage: 0.10,"
    " #running-req: 2, #queue-req: 3, "
)
STEP = (
    "iter = 7, global_rank = 0, rank = 0, currank_total_requests = 0/0, host_step_time = 12.5ms,"
    " prev_device_step_time = 11.5ms, timestamp = 2026-02-03 10:00:12, num_scheduled_requests: 3,"
    " states = {'num_ctx_requests': 1, 'num_ctx_tokens': 100, 'num_generation_tokens': 2}"
)
LOG = f"""\
2026-02-03T10:00:10.250000Z  INFO scheduler.log_prefill_stats: {BATCH}
2026-02-03T10:00:11.250000Z  INFO scheduler.log_prefill_stats: {BATCH[:60]}
2026-02-03T10:00:12.000000Z  INFO py_executor._log: {STEP}
2026-02-03T10:00:13.000000Z  INFO dynamo_llm::http: {BATCH}
2026-02-03T10:00:14.000000Z  INFO cache_engine.store: Stored 512 out of total 512 tokens. \
size: 0.0625 GB, cost 25.0000 ms, throughput: 2.5000 GB/s; offload_time: 20.0000 ms, \
put_time: 5.0000 ms
2026-02-03T10:00:15.000000Z DEBUG main.worker: Request handler ready
"""
ENGINES = (*VLLM, *SGLANG, *LMCACHE, *TRTLLM, *DYNAMO)


def test_messages_of_python_targets_are_offered_to_every_engine() -> None:
    readings = read_log(ENGINES, LOG.encode())
    sglang = readings["sglang_text"]
    assert sglang.metric("cached_tokens") == [28]
    assert [row.observed_at_ns for row in sglang.samples] == [1_770_112_810_250_000_000]
    assert sglang.rejected == [(2, "damaged_line")]
    assert len(readings["trtllm_text"].samples) == 1
    assert [row.moved_tokens for row in readings["lmcache_text"].transfers] == [512]
    assert sglang.ignored == {"other_program": 2}  # a Rust target is no engine's
