"""Engines of several servers in one log: each has a name of its own, without a host's or pod's."""

from __future__ import annotations

from kvtrace.ingest.formats.lmcache_text import FORMATS as LMCACHE
from kvtrace.ingest.formats.sglang_text import FORMATS as SGLANG
from kvtrace.ingest.formats.vllm_text import FORMATS as VLLM
from kvtrace.ingest.textlog.engines import EngineNames
from tests.formats.reading import read_bytes

STATS = (
    "INFO 11-06 09:00:0{} [loggers.py:1] Engine {:03d}: Avg prompt throughput: 1.0 tokens/s, Avg"
    " generation throughput: 1.0 tokens/s, Running: {} reqs, Waiting: 0 reqs, GPU KV cache usage:"
    " 0.1%, Prefix cache hit rate: 1.0%\n"
)
BATCH = (
    "[2025-12-01 09:00:0{}] Decode batch. #running-req: {}, #token: 5, token usage: 0.10,"
    " gen throughput (token/s): 1.00, #queue-req: 0\n"
)


def engines(text: str) -> list[tuple[str | None, float | None]]:
    """(engine, running requests) of each sample with that metric, in file order."""
    entry = VLLM[0] if "Engine " in text else SGLANG[0]
    return [
        (row.engine, metric.value)
        for row in sorted(read_bytes(entry, text.encode()).samples, key=lambda row: row.offset)
        for metric in row.metrics
        if metric.metric == "running_requests"
    ]


def test_two_servers_of_one_log_are_two_engines() -> None:
    writers = ("(APIServer pid=7) ", "(APIServer pid=9) ")
    text = "".join(
        writer + STATS.format(at, 0, running)
        for at, running in ((1, 4), (2, 5))
        for writer, running in ((writers[0], running), (writers[1], 10 * running))
    )
    names = ("Engine 000", "Engine 000 @2")
    assert engines(text) == list(zip(names * 2, (4, 40, 5, 50), strict=True))


def test_pods_of_one_log_are_engines_of_their_own() -> None:
    text = "".join(
        f"[pod/llm-{pod}/server] (APIServer pid=1) {STATS.format(1, rank, 4 + pod)}"
        for pod in range(2)
        for rank in range(2)
    )
    assert [name for name, _ in engines(text)] == [
        "Engine 000",
        "Engine 001",
        "Engine 000 @2",
        "Engine 001 @2",
    ]
    batches = [f"[pod/llm-{pod}/server] {BATCH.format(1, 4 + pod)}" for pod in (0, 1, 0)]
    assert engines("".join(batches)) == [(None, 4), ("@2", 5), (None, 4)]


def test_a_server_that_starts_again_is_the_engine_that_it_was() -> None:
    start = "(APIServer pid=9) INFO 11-06 09:00:03 [api.py:1] vLLM API server version 0.12.0\n"
    before, after = (
        f"(APIServer pid={pid}) " + STATS.format(at, 0, 1) for pid, at in ((7, 1), (9, 4))
    )
    assert [name for name, _ in engines(before + start + after)] == ["Engine 000"] * 2
    # The first one goes on, so that it had not ended.
    still = "(APIServer pid=7) " + STATS.format(5, 0, 1)
    names = [name for name, _ in engines(before + start + still + after + still)]
    assert names == ["Engine 000", "Engine 000", "Engine 000 @2", "Engine 000"]


def test_processes_of_one_server_mean_the_same_engine() -> None:
    names = EngineNames()
    for process in ("APIServer", "EngineCore_DP0"):
        assert names.name("Engine 000", process, f"{process} pid=7") == "Engine 000"
    for process in ("EngineCore_DP0", "APIServer"):
        assert names.name("Engine 000", process, f"{process} pid=8@1") == "Engine 000 @2"
    assert names.name("Engine 001", "EngineCore_DP1", "EngineCore_DP1 pid=9@1") == "Engine 001"


def test_devices_of_two_cache_servers_are_two_engines() -> None:
    from_pod = "[pod/lmcache-{}/server] [2025-11-06 09:00:00,000] LMCache INFO: {}\n"
    usage = "L1 memory usage: 45.25/60.00 GiB (75.4%)"
    text = "".join(from_pod.format(pod, usage) for pod in "aba")
    samples = read_bytes(LMCACHE[0], text.encode()).samples
    assert [sample.engine for sample in samples] == [None, "@2", None]
