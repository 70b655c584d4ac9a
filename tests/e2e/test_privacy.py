"""What names a person, a prompt or a host goes in and comes out nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from tests.e2e.conftest import Run

CANARIES = (
    "CANARY-PROMPT-7f3a",
    "canary.person@example.invalid",
    "CANARY-SESSION-19c2",
    "CANARY-REQUEST-55d0",
    "CANARY-REJECT-8e21",
    "canary-host.invalid",
)


def _trace(count: int) -> str:
    rows = [
        {
            "timestamp": 1_000 * i,
            "input_length": 1_024,
            "output_length": 8,
            "hash_ids": [0, i + 1],
            "session_id": f"{CANARIES[2]}-{i % 5}",
            "request_id": f"{CANARIES[3]}-{i}",
            "text_input": f"{CANARIES[0]} {CANARIES[1]}",
        }
        for i in range(count)
    ]
    broken = '{"timestamp": "' + CANARIES[4] + '", "input_length": 5, "output_length": 1}'
    return "\n".join([*map(json.dumps, rows), broken, ""])


def _log(count: int) -> str:
    lines = ["INFO 05-11 12:00:00 [api_server.py:1] vLLM API server version 0.8.5"]
    for i in range(count):
        lines += [
            f"INFO 05-11 12:{i // 60:02d}:{i % 60:02d} [logger.py:39] Received request "
            f"{CANARIES[3]}-{i}: prompt: '{CANARIES[0]} {CANARIES[1]}', params: "
            "SamplingParams(n=1, max_tokens=16), prompt_token_ids: None, lora_request: None, "
            "prompt_adapter_request: None.",
            f'INFO:     {CANARIES[5]}:50122 - "POST /v1/completions HTTP/1.1" 200 OK',
        ]
    return "\n".join([*lines, ""])


@pytest.fixture(scope="module")
def everything_written(kvtrace: Run, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Every output of a run over planted logs, as text; Parquet decompressed."""
    logs = tmp_path_factory.mktemp("planted")
    (logs / "trace.jsonl").write_text(_trace(60))
    (logs / "engine.log").write_text(_log(60))
    output = tmp_path_factory.mktemp("out")
    done = kvtrace("analyze", logs, "-o", output)
    assert done.returncode == 0, done.stderr
    listed = kvtrace("ingest", logs, "-o", output, "--json")
    texts = {"stdout": done.stdout + listed.stdout, "stderr": done.stderr + listed.stderr}
    for path in sorted(output.rglob("*")):
        if path.suffix == ".parquet":
            texts[path.name + str(path.parent.name)] = pl.read_parquet(path).write_ndjson()
        elif path.is_file():
            texts[path.name] = path.read_bytes().decode("utf-8", "replace")
    return texts


def test_the_run_read_the_planted_rows(everything_written: dict[str, str]) -> None:
    audit = json.loads(everything_written["audit.json"])
    assert audit["data"]["requests"] == 60
    assert audit["data"]["rejected"] == 1


@pytest.mark.parametrize("canary", CANARIES)
def test_canary_is_found_nowhere(canary: str, everything_written: dict[str, str]) -> None:
    assert [name for name, text in everything_written.items() if canary in text] == []


def test_keys_differ_from_salt_to_salt_and_the_digest_does_not(
    kvtrace: Run, tmp_path: Path
) -> None:
    (tmp_path / "trace.jsonl").write_text(_trace(60))
    digests, keys = [], []
    for salt in ("first-salt", "other-salt"):
        folder = tmp_path / salt
        done = kvtrace("ingest", tmp_path / "trace.jsonl", "-o", folder, "--salt", salt, "--json")
        assert done.returncode == 0, done.stderr
        digests.append(json.loads(done.stdout)["digest"])
        parts = sorted((folder / "dataset" / "requests").glob("*.parquet"))
        keys.append(pl.concat(map(pl.read_parquet, parts))["session_key"].to_list())
    assert digests[0] == digests[1]
    assert keys[0] != keys[1]
