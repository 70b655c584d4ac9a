"""vLLM inside Dynamo: its messages stand behind the prefix of Rust's tracing."""

from __future__ import annotations

from kvtrace.ingest.formats.dynamo_text import FORMATS as DYNAMO
from kvtrace.ingest.formats.vllm_text import FORMATS as VLLM
from tests.formats.reading import read_bytes, read_log
from tests.formats.test_vllm_text_meaning import HITS

LOG = f"""\
2026-02-03T10:00:00.000001Z  INFO core.__init__: vLLM API server version 0.12.0
2026-02-03T10:00:05.300000Z  INFO dynamo_llm::http: Received request for the model
2026-02-03T10:00:10.250000Z  INFO loggers.log: Engine 001: {HITS}
2026-02-03T10:00:11.250000Z  INFO loggers.log: Engine 001: {HITS[:60]}
2026-02-03T10:00:21.500000Z  INFO async_llm.add_request: Added request 0fa1-0badcafe.
2026-02-03T10:00:22.000000Z  INFO block_manager::slot: request set to finish: \
cached_gpu_tokens: 32; cached_host_tokens: 0; cached_disk_tokens: 16 request_id=0fa1
2026-02-03T10:00:23.000000Z DEBUG main.worker: Request handler ready
"""


def test_messages_behind_tracing_are_vllms() -> None:
    readings = read_log((*VLLM, *DYNAMO), LOG.encode())
    vllm, dynamo = readings["vllm_text"], readings["dynamo_text"]
    assert vllm.metric("prefix_hit_ratio") == [0.5]
    assert [sample.engine for sample in vllm.samples] == ["Engine 001"]
    assert [sample.observed_at_ns for sample in vllm.samples] == [1_770_112_810_250_000_000]
    assert [row.request_id for row in vllm.requests] == ["0fa1-0badcafe"]
    assert vllm.context.engine_version == "0.12.0"
    assert [row.cached_tokens for row in dynamo.requests] == [48]
    assert vllm.rejected == [(4, "damaged_line")]
    assert vllm.ignored == {"other_program": 2}  # a Rust target is never vLLM's


def test_a_line_with_both_stamps_gives_the_zone_of_the_others() -> None:
    line = "INFO 02-03 11:00:0{} [x.py:1] Added request {}.\n"
    text = "2026-02-03T10:00:01.5Z " + line.format(1, "a") + line.format(5, "b")
    reading = read_bytes(VLLM[0], text.encode())
    assert [row.arrived_at_ns for row in reading.requests] == [
        1_770_112_801_000_000_000,
        1_770_112_805_000_000_000,
    ]
    assert reading.context.clock == "utc"


def test_a_pod_that_starts_ends_no_request_of_another() -> None:
    pods = ["[pod/llm-0/c] (APIServer pid=1) ", "[pod/llm-1/c] (APIServer pid=1) "]
    line = "INFO 02-03 11:00:0{} [x.py:1] {}\n"
    text = (
        pods[0]
        + line.format(1, "Added request a.")
        + pods[1]
        + line.format(2, "vLLM API server version 0.12.0")
        + pods[0]
        + line.format(5, "Aborted request(s) a.")
    )
    reading = read_bytes(VLLM[0], text.encode())
    assert [(row.status, row.e2e_ns) for row in reading.requests] == [("cancelled", 4 * 10**9)]


def test_every_dialect_behind_ray_says_that_lines_may_be_missing() -> None:
    ray = "(ServeReplica:a:b pid=7, ip=192.0.2.1) "
    request = "INFO 02-03 11:00:01 [x.py:1] Added request a.\n"
    tiers = "2026-02-03T10:00:22Z  INFO s: request set to finish: cached_gpu_tokens: 3;"
    tiers += " cached_host_tokens: 0; cached_disk_tokens: 1 request_id=a\n"
    readings = read_log((*VLLM, *DYNAMO), (ray + request + ray + tiers).encode())
    assert all("ray_deduplicates" in reading.note_codes for reading in readings.values())
    readings = read_log((*VLLM, *DYNAMO), (request + tiers).encode())
    assert not any("ray_deduplicates" in reading.note_codes for reading in readings.values())
