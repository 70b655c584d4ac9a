"""What explains the slow tail, and whether hits help: from requests through SQL to the finding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvtrace.api.verbs import ingest
from kvtrace.audit.build import build_audit
from kvtrace.audit.record import Finding
from kvtrace.duckdb_session import Session
from kvtrace.query.catalog import load_catalog
from kvtrace.schema.tables import TABLES
from kvtrace.store.dataset import Dataset
from tests.traces import Value, requests_frame
from tests.unit.audit_fakes import make_input, reuse_queries

MS = 1_000_000
CATALOG = load_catalog()
NAMES = ("latency/tail_causes", "latency/tail_split", "latency/ttft_by_cached_share")


def finding(rows: list[dict[str, Value]], ident: str) -> Finding | None:
    """The finding of that id over a dataset of these requests."""
    with Session(threads=1) as session:
        for name, table in TABLES.items():
            frame = requests_frame(rows) if name == "requests" else table.empty()
            session.create_table(name, frame)
        return found_in(session, ident)


def found_in(session: Session, ident: str) -> Finding | None:
    """The finding of that id over the tables of a session."""
    results: dict[str, Any] = {name: CATALOG.run(session, name) for name in NAMES}
    found = build_audit(make_input(queries=reuse_queries() | results)).findings
    return next((one for one in found if one.id == ident), None)


def served(prompt: int, cached: int, moved: int, ttft_ms: int, queue_ms: int) -> dict[str, Value]:
    return {
        "prompt_tokens": prompt,
        "cached_tokens": cached,
        "cached_remote_tokens": moved,
        "ttft_ns": ttft_ms * MS,
        "ttft_from": "arrival",
        "queue_ns": queue_ms * MS,
        "prefill_ns": (ttft_ms - queue_ms) * MS,
    }


def spread(index: int, modulus: int) -> int:
    """0 .. modulus - 1, unlike its neighbours and unlike the spread of another modulus."""
    return index * 7919 % modulus


def by_length(index: int) -> dict[str, Value]:
    # TTFT is 1 ms for each ten prompt tokens; hits and queue are spread without it.
    prompt = 1000 + 10 * spread(index, 401)
    hit = 10 * spread(index, 37)
    return served(prompt, hit, hit, prompt // 10 + spread(index, 11), spread(index, 11))


def by_bytes(index: int) -> dict[str, Value]:
    # TTFT is 1 ms for each ten moved tokens; prompts are spread without it, the queue is short.
    moved = 10 * spread(index, 397)
    prompt = 4000 + 10 * spread(index, 101)
    return served(prompt, moved, moved, 50 + moved // 10 + spread(index, 11), spread(index, 11))


def by_queue(index: int) -> dict[str, Value]:
    queue = 10 * spread(index, 401)
    hit = 10 * spread(index, 37)
    return served(1000 + 10 * spread(index, 101), hit, hit, queue + 100, queue)


def by_chance(index: int) -> dict[str, Value]:
    row = served(1000 + spread(index, 101), 10 * spread(index, 37), 0, 100 + spread(index, 389), 0)
    return row | {"queue_ns": None, "prefill_ns": None}


@pytest.mark.parametrize(
    ("made", "said", "severity"),
    [
        (by_length, "length explains them best", "info"),
        (by_bytes, "bytes moved explains them best", "warning"),
        (by_queue, "queueing, not length or bytes", "warning"),
        (by_chance, "none of the known causes explains them", "info"),
    ],
    ids=["length", "bytes moved", "queueing", "none"],
)
def test_the_cause_of_the_tail_is_named(made: Any, said: str, severity: str) -> None:
    found = finding([made(index) for index in range(400)], "tail_cause")
    assert found is not None
    assert said in found.message
    assert found.severity == severity
    assert found.table == "latency/tail_causes"


def test_a_tail_of_a_few_requests_is_no_finding() -> None:
    # 190 requests: at most 19 above the p90.
    assert finding([by_length(index) for index in range(190)], "tail_cause") is None


def hits(index: int, *, effect_ms: int, queue_ms: int = 0) -> dict[str, Value]:
    """Every second request has 500 of 1 000 tokens cached: TTFT and queue change by so much."""
    is_hit = index % 2
    queue = 5 + queue_ms * is_hit
    return served(1000, 500 * is_hit, 0, 200 + spread(index, 11) + effect_ms * is_hit, queue)


@pytest.mark.parametrize(
    ("effect_ms", "said"),
    [(100, "come with a later first token"), (0, "save at most")],
    ids=["later", "no help"],
)
def test_hits_that_do_not_help_are_found(effect_ms: int, said: str) -> None:
    found = finding([hits(i, effect_ms=effect_ms) for i in range(400)], "hits_do_not_help")
    assert found is not None
    assert said in found.message
    assert "The load at the arrival is unknown" in found.message


def test_a_queue_that_hides_the_saving_is_said() -> None:
    rows = [hits(index, effect_ms=0, queue_ms=80) for index in range(400)]
    found = finding(rows, "hits_do_not_help")
    assert found is not None
    # After the queue 80 ms sooner for 500 tokens: about 160 ms for 1 000.
    assert "After the queue they are sooner (159.9 ms for 1 000 tokens)" in found.message
    assert "Hits and queue go together (r = 1.00)" in found.message


def test_hits_that_help_are_no_finding() -> None:
    rows = [hits(index, effect_ms=-80) for index in range(400)]
    assert finding(rows, "hits_do_not_help") is None


@pytest.mark.shared
@pytest.mark.parametrize("card", ["rtx4090", "rtxpro6000"])
def test_the_vllm_runs_are_queueing_and_not_length(
    card: str, shared_dir: Path, tmp_path: Path
) -> None:
    log = shared_dir / "traces" / f"vllm_requests_{card}_llama31_8b.jsonl.gz"
    ingest([log], output=tmp_path / "out")
    with Dataset.open(tmp_path / "out" / "dataset").session() as session:
        found = found_in(session, "tail_cause")
    assert found is not None
    assert "of benchmark traffic (30 requests above" in found.message
    assert "queueing, not length or bytes" in found.message
    assert "These logs do not say, per request: bytes moved" in found.message
