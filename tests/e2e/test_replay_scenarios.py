"""`kvtrace replay` with scenario files, sweeps and loads, as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Run

SCENARIO = """
base = "dram_idle"
llm = "Meta-Llama-3.1-8B"
instances = 1
[tier.host_dram]
capacity_blocks = 4
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, kvtrace: Run) -> Path:
    folder = tmp_path_factory.mktemp("scenarios")
    rows = [
        {"timestamp": 1000 * turn + turn, "input_length": 1024, "output_length": 3, "hash_ids": ids}
        for turn, ids in enumerate(([1, 2], [3, 4], [1, 5], [3, 6]))
    ]
    log = folder / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / "ours.toml").write_text(SCENARIO, encoding="utf-8")
    done = kvtrace("ingest", log, "-o", folder / "out", "--block-size", "512", "-q")
    assert done.returncode == 0, done.stderr
    return folder


def test_a_scenario_of_a_file_is_replayed_and_drawn(kvtrace: Run, place: Path) -> None:
    done = kvtrace(
        *("replay", place / "out", "--scenario", place / "ours.toml", "--scenario", "hbm_only"),
        *("--instances", "1", "--growth", "2", "--json", "-q"),
        *("--trace-out", place / "trace.json", "--window", "0s..1h"),
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["scenarios"]
    assert [(one["scenario"], one["requests"]) for one in told] == [("ours", 8), ("hbm_only", 8)]
    assert told[0]["load"] == "sessions superposed x 2"
    assert told[0]["served_by"]["llm"].startswith("Meta-Llama-3.1-8B (")
    assert len(json.loads((place / "trace.json").read_bytes())["traceEvents"]) > 16
    shown = kvtrace("query", place / "out", "replay/summary", "--json")
    rows = json.loads(shown.stdout)["rows"]
    assert [row["scenario"] for row in rows] == ["ours", "hbm_only"]


def test_a_sweep_is_a_table_of_its_runs(kvtrace: Run, place: Path) -> None:
    words = ("replay", place / "out", "--scenario", place / "ours.toml")
    sweep = ("--sweep", "host_dram.capacity_blocks=0,8", "--one-at-a-time", "--workers", "1")
    done = kvtrace(*words, *sweep, "--json")
    assert done.returncode == 0, done.stderr
    assert "3 replays, 0 of them known before" in done.stderr
    runs = json.loads(done.stdout)["runs"]
    assert [run["value"] for run in runs] == [None, "0", "8"]
    again = kvtrace(*words, *sweep)
    assert "3 replays, 3 of them known before" in again.stderr
    assert "host_dram.capacity_blocks=8" in again.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--scenario", "nowhere"), "KVT-N001"),
        (("--sweep", "pool.capacity"), "KVT-N020"),
        (("--option", "hbm_only", "--sweep", "pool.capacity=1TB"), "KVT-N022"),
        (("--thin", "2"), "KVT-N030"),
        (("--window", "1s"), "KVT-U026"),
        (("--think", "soon"), "KVT-U001"),
        (("--sweep", "instances=1,2", "--trace-out", "drawn.json"), "KVT-U028"),
        (("--one-at-a-time",), "KVT-U028"),
    ],
)
def test_what_cannot_be_asked_is_refused(
    kvtrace: Run, place: Path, words: tuple[str, ...], code: str
) -> None:
    done = kvtrace("replay", place / "out", *words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error[{code}]")
