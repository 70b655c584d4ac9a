"""Captures of two engines, one rotated: what the fleet computed again, from files to the report."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from tests.e2e.conftest import Run

T0 = 1_767_225_600
SECRET = 654_321


def line(number: int, at_s: int, *events: object) -> str:
    """One captured batch of vLLM."""
    payload = msgspec.msgpack.encode([float(T0 + at_s), list(events), 0])
    return json.dumps({"topic": "", "seq": number, "payload_hex": payload.hex()}) + "\n"


def stored(hashes: list[int], tokens: list[int]) -> list[object]:
    return ["BlockStored", hashes, None, tokens, 4, None, "GPU"]


FIRST, SECOND = [SECRET] * 4, [5, 6, 7, 8]


def capture(folder: Path) -> None:
    """Two blocks; the engines' hashes of them differ, as those of vLLM do."""
    folder.mkdir()
    (folder / "engine-0.jsonl.1").write_text(
        line(3, 0, stored([11, 12], FIRST + SECOND)) + line(4, 20, ["BlockRemoved", [12], "GPU"])
    )
    (folder / "engine-0.jsonl").write_text(
        # The first block is held; the second is computed again 40 s after its store, 20 s after
        # anybody held it; then both are only announced.
        line(5, 40, stored([11, 12], FIRST + SECOND))
        + line(6, 50, stored([11, 12], FIRST + SECOND))
    )
    (folder / "engine-1.jsonl").write_text(
        line(0, 30, stored([21], FIRST))  # 30 s later, while engine 0 holds it
    )


def test_tokens_computed_again_are_found_over_files_and_engines(
    kvtrace: Run, tmp_path: Path
) -> None:
    capture(tmp_path / "logs")
    out = tmp_path / "out"
    done = kvtrace("analyze", tmp_path / "logs", "-o", out)
    assert done.returncode == 0, done.stderr
    audit = json.loads((out / "audit.json").read_text())
    table = audit["tables"]["kv_events/restored_tokens"]
    shown = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    assert [
        (row["place"], row["since_stored_bucket_s"], row["restored_tokens"]) for row in shown
    ] == [("other_instance_holds", 16, 4), ("same_instance_removed", 32, 4)]
    assert [row["since_held_p50_s"] for row in shown] == [0.0, 20.0]
    assert {row["computed_tokens"] for row in shown} == {16}
    finding = next(one for one in audit["findings"] if one["id"] == "restored_tokens")
    assert "8 of 16 computed tokens (50.0 %)" in finding["message"]
    report = (out / "report.html").read_text()
    assert "kv_events/restored_tokens" in report
    held = b"".join(file.read_bytes() for file in out.rglob("*") if file.is_file())
    assert str(SECRET).encode() not in held


def test_dataset_from_before_the_stays_is_refused_or_made_again(
    kvtrace: Run, tmp_path: Path
) -> None:
    capture(tmp_path / "logs")
    out = tmp_path / "out"
    assert kvtrace("ingest", tmp_path / "logs", "-o", out).returncode == 0
    path = out / "dataset" / "manifest.json"
    held = json.loads(path.read_text())
    assert [part["rows"] for part in held["tables"].pop("block_stays")] == [4]
    path.write_text(json.dumps(held))
    refused = kvtrace("query", out, "kv_events/restored_summary")
    assert refused.returncode != 0
    assert "KVT-O007" in refused.stderr
    assert "Traceback" not in refused.stderr
    again = kvtrace("ingest", tmp_path / "logs", "-o", out)
    assert again.returncode == 0, again.stderr
    assert "reused" not in again.stderr
    assert kvtrace("query", out, "kv_events/restored_summary").returncode == 0
