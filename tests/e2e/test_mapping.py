"""A log of one's own, from `sniff --suggest-mapping` to the report; nothing of it gets out."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import polars as pl
import pytest

from tests.e2e.conftest import Run

CANARIES = (
    "what is the colour of my secret",
    "mallory@example.com",
    "sk-canary-000111222",
    "conversation-of-mallory",
    "10.66.77.88",
    "request-canary-99",
)
START_MS = 1_767_225_600_000
MAPPING = """
[time]
field = "when"
unit = "ms"
[fields]
request_id = "id"
session = "talk.id"
tenant = "user"
model = "served"
prompt_tokens = "tokens.prompt"
cached_tokens = "tokens.cached"
output_tokens = "tokens.completion"
ttft = "first_ms"
e2e = { field = "took", unit = "s" }
status = { field = "code", ok = [200] }
prompt = "prompt"
[semantics]
prompt_includes_cached = true
"""


def _record(at: int) -> dict[str, object]:
    question, mail, key, talk, host, request = CANARIES
    return {
        "when": START_MS + 1_000 * at,
        "id": f"{request}-{at}",
        "talk": {"id": f"{talk}-{at // 4}"},
        "user": mail,
        "served": "llama",
        "tokens": {"prompt": 200 + at, "cached": 16 * (at % 4), "completion": 9},
        "first_ms": 80 + at,
        "took": 1.25,
        "code": 200,
        "prompt": f"{question} " * (10 + at % 4),
        "headers": {"authorization": key, host: key, mail: {"prompt_tokens": 3}},
        "upstream": host,
    }


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """60 good records, one with a value that is none, one that is cut."""
    bad = _record(60) | {"tokens": {"prompt": CANARIES[0]}}
    lines = [json.dumps(record) for record in [*map(_record, range(60)), bad]]
    path = tmp_path / "custom.jsonl"
    path.write_text("\n".join([*lines, lines[0][:200]]) + "\n")
    (tmp_path / "map.toml").write_text(MAPPING)
    return path


def test_analyze_reads_a_log_by_its_mapping_and_keeps_its_secrets(
    kvtrace: Run, log: Path, tmp_path: Path
) -> None:
    done = kvtrace("analyze", log, "--mapping", tmp_path / "map.toml", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    audit = json.loads((tmp_path / "out" / "audit.json").read_bytes())
    assert (audit["data"]["requests"], audit["data"]["rejected"]) == (60, 2)
    assert audit["data"]["files"][0]["format"] == "mapping"
    assert audit["data"]["files"][0]["evidence_grade"] == "A"
    listed = kvtrace(
        "ingest", log, "--mapping", tmp_path / "map.toml", "-o", tmp_path / "out", "--json"
    )
    assert "reused" in listed.stderr
    texts = {"stdout": done.stdout + listed.stdout, "stderr": done.stderr + listed.stderr}
    for path in sorted((tmp_path / "out").rglob("*")):
        if path.suffix == ".parquet":
            texts[str(path)] = pl.read_parquet(path).write_ndjson()
        elif path.is_file():
            texts[str(path)] = path.read_bytes().decode("utf-8", "replace")
    found = [
        (canary, name) for canary in CANARIES for name, text in texts.items() if canary in text
    ]
    assert found == []


def test_another_mapping_is_another_dataset(kvtrace: Run, log: Path, tmp_path: Path) -> None:
    command = ("ingest", log, "--mapping", tmp_path / "map.toml", "-o", tmp_path / "out", "--json")
    first = json.loads(kvtrace(*command).stdout)
    changed = MAPPING.replace("includes_cached = true", "includes_cached = false")
    (tmp_path / "map.toml").write_text(changed)
    second = kvtrace(*command)
    assert "reused" not in second.stderr
    # cached tokens are 16 × (0 + 1 + 2 + 3) in four requests, 15 times: 1 440
    totals = json.loads(second.stdout)["totals"]
    assert totals["prompt_tokens"] == first["totals"]["prompt_tokens"] + 1_440


def test_sniff_suggests_a_mapping_that_reads_the_log(
    kvtrace: Run, log: Path, tmp_path: Path
) -> None:
    plain = kvtrace("sniff", log)
    assert plain.returncode == 0
    assert "--suggest-mapping" in plain.stdout
    shown = kvtrace("sniff", log, "--suggest-mapping")
    assert shown.returncode == 0, shown.stderr
    assert [canary for canary in CANARIES if canary in shown.stdout] == []
    assert tomllib.loads(shown.stdout)["fields"]["prompt_tokens"] == "tokens.prompt"
    target = tmp_path / "first.toml"
    written = kvtrace("sniff", log, "--suggest-mapping", "-o", target)
    assert (written.returncode, target.read_text()) == (0, shown.stdout)
    by_it = kvtrace("sniff", log, "--mapping", target)
    assert "mapping, evidence grade A" in by_it.stdout
    again = kvtrace("sniff", log, "--suggest-mapping", "-o", target)
    assert (again.returncode, "KVT-U023" in again.stderr) == (2, True)


def test_a_log_of_no_known_format_is_answered_with_the_way_out(
    kvtrace: Run, log: Path, tmp_path: Path
) -> None:
    done = kvtrace("analyze", log, "-o", tmp_path / "out")
    assert done.returncode == 3
    assert "KVT-I002" in done.stderr
    assert "--suggest-mapping" in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "code", "said"),
    [
        ('field = "when"', 'feild = "when"', "KVT-U032", "`field`"),
        ('unit = "ms"', 'unit = "s"', "KVT-U033", 'unit = "ms"'),
        ("[time]", 'match = "other-*"\n[time]', "KVT-U036", "does not match"),
    ],
)
def test_a_wrong_mapping_stops_with_a_remedy(
    kvtrace: Run, log: Path, tmp_path: Path, old: str, new: str, code: str, said: str
) -> None:
    (tmp_path / "map.toml").write_text(MAPPING.replace(old, new, 1))
    done = kvtrace("analyze", log, "--mapping", tmp_path / "map.toml", "-o", tmp_path / "out")
    assert done.returncode == 2, done.stderr
    assert code in done.stderr
    assert said in done.stderr
    assert "map.toml" in done.stderr
    assert [canary for canary in CANARIES if canary in done.stderr] == []


def test_flags_that_do_not_go_together(kvtrace: Run, log: Path, tmp_path: Path) -> None:
    assert kvtrace("sniff", log, "-o", tmp_path / "x.toml").returncode == 2
    assert kvtrace("sniff", log, "--suggest-mapping", "--json").returncode == 2


def test_a_time_in_another_unit_is_said_once_with_its_first_line(
    kvtrace: Run, tmp_path: Path
) -> None:
    text = '[time]\nfield = "t"\nunit = "ms"\n[fields]\nprompt_tokens = "p"\n'
    (tmp_path / "map.toml").write_text(text)
    times = [START_MS + at for at in range(20)]
    times[7] *= 1_000
    times[9] *= 1_000
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps({"t": time, "p": 5}) + "\n" for time in times))
    output = tmp_path / "out"
    done = kvtrace("ingest", log, "--mapping", tmp_path / "map.toml", "-o", output)
    assert done.returncode == 0, done.stderr
    notes = [line for line in done.stdout.split("\n") if "[time_in_another_unit]" in line]
    assert len(notes) == 1
    assert "2 requests have a time in another unit than the rest (first log.jsonl:8)" in notes[0]
    (part,) = (output / "dataset" / "requests").glob("*.parquet")
    arrived = pl.read_parquet(part)["arrived_at_ns"].sort().to_list()
    assert arrived == [(START_MS + at) * 10**6 for at in range(20)]
