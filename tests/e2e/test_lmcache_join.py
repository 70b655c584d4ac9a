"""A log of vLLM and LMCache together: one row a request, with the tier split of LMCache."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from tests.e2e.conftest import Run

LOG = """\
(APIServer pid=1) INFO 03-01 10:00:00 [x.py:1] Added request chatcmpl-a.
(APIServer pid=1) INFO 03-01 10:00:01 [x.py:1] Added request chatcmpl-b.
(EngineCore_DP0 pid=2) [2026-03-01 10:00:02,000] LMCache INFO: Reqid: chatcmpl-a, \
Total tokens 1000, \
LMCache hit tokens: 768, need to load: 512 (x.py:1:lmcache.x)
(EngineCore_DP0 pid=2) [2026-03-01 10:00:02,100] LMCache INFO: Retrieved 512 out of 512 required \
tokens (from 1000 total tokens). size: 0.0625 gb, cost 50.0000 ms, throughput: 1.2500 GB/s; \
(x.py:1:lmcache.x)
(EngineCore_DP0 pid=2) [2026-03-01 10:00:03,000] LMCache INFO: Reqid: chatcmpl-b, \
Total tokens 300, \
LMCache hit tokens: 0, need to load: 0 (x.py:1:lmcache.x)
"""


def ingested(kvtrace: Run, log: Path, folder: Path) -> tuple[dict[str, object], pl.DataFrame]:
    """(totals, headline requests)"""
    done = kvtrace("ingest", log, "-o", folder, "--json")
    assert done.returncode == 0, done.stderr
    requests = pl.read_parquet(folder / "dataset" / "requests" / "*.parquet")
    return json.loads(done.stdout)["totals"], requests.filter("is_headline").sort("request_key")


def test_requests_of_both_layers_become_one_row_each(kvtrace: Run, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text(LOG)
    totals, requests = ingested(kvtrace, log, tmp_path / "out")
    assert requests["prompt_tokens"].to_list() == [1000, 300]
    assert requests["cached_tokens"].to_list() == [768, 0]
    assert requests["cached_device_tokens"].to_list() == [256, 0]  # 768 - 512
    assert requests["computed_tokens"].to_list() == [232, 300]
    assert (totals["requests"], totals["transfers"]) == (2, 1)


@pytest.mark.shared
def test_excerpt_gives_four_requests_with_their_split(
    kvtrace: Run, tmp_path: Path, shared_dir: Path
) -> None:
    log = shared_dir / "log_excerpts" / "vllm-0.13.0-lmcache-external.log"
    totals, requests = ingested(kvtrace, log, tmp_path)
    assert requests["prompt_tokens"].to_list() == [9000, 1000, 512, 300]
    assert requests["cached_tokens"].to_list() == [8960, 976, 511, None]
    assert requests["cached_device_tokens"].to_list() == [4096, 976, 0, None]
    assert totals["cached_known_requests"] == 3
