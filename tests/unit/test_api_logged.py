"""What a dataset says of replayed requests: line, and times that count from arrival."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from kvtrace.api.logged import logged_requests
from kvtrace.schema.tables import REQUESTS
from kvtrace.store.dataset import Dataset, DatasetWriter
from tests.traces import Value, requests_frame
from tests.unit.audit_fakes import make_manifest, make_trace

SECOND = 10**9
NEXT_FILE = 2**44


def test_lines_and_times_are_in_the_order_of_the_trace(tmp_path: Path) -> None:
    rows: list[dict[str, Value]] = [
        {"request_key": 5, "line": 2, "ttft_ns": SECOND, "ttft_from": "arrival"},
        {"request_key": 9, "line": 3, "ttft_ns": SECOND, "ttft_from": "scheduled"},
        {"request_key": NEXT_FILE + 1, "line": 8, "queue_ns": 2 * SECOND, "cached_tokens": 4},
    ]
    with DatasetWriter(tmp_path / "dataset") as writer:
        writer.write_table("requests", requests_frame(rows))
        writer.commit(make_manifest())
    keys = np.array([NEXT_FILE + 1, 9, 5, 77], dtype=np.int64)
    trace = replace(make_trace(requests=4), request_key=keys)
    found = logged_requests(Dataset.open(tmp_path / "dataset"), trace)
    assert found is not None
    assert found.file.tolist() == [1, 0, 0, -1]
    assert found.line.tolist() == [8, 3, 2, -1]
    assert found.cached_tokens.tolist() == [4, -1, -1, -1]
    assert np.isnan(found.ttft_s).tolist() == [True, True, False, True]
    assert found.ttft_s[2] == 1.0
    assert found.queue_s[0] == 2.0
    assert found.place(3) == (None, None)


def test_without_a_trace_there_is_nothing_to_say(tmp_path: Path) -> None:
    with DatasetWriter(tmp_path / "dataset") as writer:
        writer.write_table("requests", pl.DataFrame(schema=REQUESTS.polars_schema()))
        writer.commit(make_manifest())
    assert logged_requests(Dataset.open(tmp_path / "dataset"), None) is None
