"""No canary gets into an exported trace, a sniff, a suggested mapping, an error or a hint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvtrace.export import TARGETS
from tests.e2e.canaries import CANARIES, USER, found_in, users_in, written_texts
from tests.e2e.conftest import Run

START_MS = 1_767_225_600_000
SECRET_NAME = "quokkasecret"
"""A name that a file or a folder may have; the search finds it."""
MAPPING = """
[time]
field = "at"
unit = "ms"
[fields]
request_id = "id"
session = "talk"
tenant = "who"
model = "served"
adapter = "lora"
prompt_tokens = "p"
cached_tokens = "c"
output_tokens = "o"
ttft = { field = "first", unit = "ms" }
e2e = { field = "took", unit = "ms" }
block_hashes = { field = "ids", block_size = 16, scope = "file" }
"""


def record(at: int) -> dict[str, object]:
    secret = CANARIES[at % len(CANARIES)]
    return {
        "at": START_MS + 10 * at,
        "id": f"{secret} {USER}{at:04d}",
        "talk": f"{secret} {at // 30}",
        "who": secret,
        "served": secret,
        "lora": f"lora {secret}",
        "p": 48,
        "c": 16,
        "o": 4,
        "first": 30,
        "took": 200,
        "ids": [0, 1, 2 + at % 5],
        "prompt": secret,
    }


def write_log(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record(at)) + "\n" for at in range(60)))


def leaks(texts: dict[str, str]) -> dict[str, object]:
    """Where canaries and user ids are."""
    return {
        name: seen
        for name, text in texts.items()
        if (seen := [*found_in(text), *sorted(users_in(text))[:3]])
    }


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "map.toml").write_text(MAPPING)
    write_log(tmp_path / "logs" / "log.jsonl")
    return tmp_path / "logs" / "log.jsonl"


def test_no_canary_gets_into_a_trace_for_another_tool(
    kvtrace: Run, log: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = kvtrace("ingest", log, "--mapping", tmp_path / "map.toml", "-o", out)
    assert done.returncode == 0, done.stderr
    texts = written_texts(out) | {"ingest": done.stdout + done.stderr}
    for target in TARGETS:
        exported = kvtrace("export", out, "--to", target)
        assert exported.returncode == 0, exported.stderr
        assert len(exported.stdout.splitlines()) >= 60
        texts[f"{target} stdout"], texts[f"{target} stderr"] = exported.stdout, exported.stderr
    assert leaks(texts) == {}


def test_names_of_files_are_shown_as_they_were_given_and_never_exported(
    kvtrace: Run, tmp_path: Path
) -> None:
    """docs/privacy.md: the name of a file, relative to what was given, and no more of its path."""
    (tmp_path / "map.toml").write_text(MAPPING)
    write_log(tmp_path / SECRET_NAME / "marmalade.jsonl")
    out = tmp_path / "out"
    given = tmp_path / SECRET_NAME
    done = kvtrace("ingest", given, "--mapping", tmp_path / "map.toml", "-o", out)
    assert done.returncode == 0, done.stderr
    texts = written_texts(out)
    everything = "\n".join([*texts.values(), done.stdout, done.stderr])
    assert SECRET_NAME not in everything  # the folder that was given is not kept
    assert "marmalade.jsonl" in texts["dataset/manifest.json"]
    for target in TARGETS:
        exported = kvtrace("export", out, "--to", target)
        assert leaks({"stdout": exported.stdout, "stderr": exported.stderr}) == {}


def test_no_canary_gets_into_a_sniff_or_a_suggested_mapping(
    kvtrace: Run, log: Path, tmp_path: Path
) -> None:
    runs = {
        "sniff": kvtrace("sniff", log),
        "json": kvtrace("sniff", log, "--json"),
        "mapped": kvtrace("sniff", log, "--mapping", tmp_path / "map.toml"),
        "suggested": kvtrace("sniff", log, "--suggest-mapping"),
    }
    assert [run.returncode for run in runs.values()] == [0] * 4
    assert leaks({name: run.stdout + run.stderr for name, run in runs.items()}) == {}


BAD_MAPPINGS = {
    "a field that is not there": MAPPING.replace('"talk"', '"talks"'),
    "a unit that the values contradict": MAPPING.replace('unit = "ms"\n[', 'unit = "s"\n['),
    "a time that is text": MAPPING.replace('"at"', '"who"'),
    "a count that is text": MAPPING.replace('"p"', '"prompt"'),
    "ids that are text": MAPPING.replace('"ids"', '"served"'),
    "a key that is none": MAPPING.replace("tenant", "tenants"),
    "a mapping that fits nothing": '[fields]\nprompt_tokens = "tokens"\n',
}


@pytest.mark.parametrize("what", BAD_MAPPINGS)
def test_no_canary_gets_into_what_is_said_of_a_bad_mapping(
    what: str, kvtrace: Run, log: Path, tmp_path: Path
) -> None:
    (tmp_path / "bad.toml").write_text(BAD_MAPPINGS[what])
    out = tmp_path / "out"
    texts = {}
    for limit in ("0", "1"):
        done = kvtrace(
            "ingest", log, "--mapping", tmp_path / "bad.toml", "-o", out, "--max-reject-rate", limit
        )
        texts[f"limit {limit}"] = done.stdout + done.stderr
    assert any("bad.toml" in text or "log.jsonl" in text for text in texts.values())
    assert leaks(texts | written_texts(out)) == {}


def test_no_canary_of_a_csv_header_gets_into_an_error(kvtrace: Run, tmp_path: Path) -> None:
    header = ",".join(json.dumps(one, ensure_ascii=False) for one in ("p", "o", *CANARIES))
    cells = ",".join(["5", "6"] + ['"x"'] * len(CANARIES))
    log = tmp_path / "log.csv"
    log.write_text(header + "\n" + (cells + "\n") * 20)
    (tmp_path / "map.toml").write_text('[fields]\nprompt_tokens = "p"\nsession = "talk"\n')
    texts = {}
    for verb, more in (
        ("ingest", ("--mapping", tmp_path / "map.toml", "-o", tmp_path / "out")),
        ("sniff", ("--suggest-mapping",)),
        ("sniff", ()),
    ):
        done = kvtrace(verb, log, *more)
        texts[f"{verb} {len(more)}"] = done.stdout + done.stderr
    assert "KVT-U035" in texts["ingest 4"]
    assert leaks(texts) == {}


def test_no_canary_gets_into_an_error_about_flags(kvtrace: Run, log: Path, tmp_path: Path) -> None:
    texts = {}
    for at, flags in enumerate(
        (
            ("--tz", "Mars/Olympus"),
            ("--block-size", "0"),
            ("--tokenizer", str(log)),  # a log for a tokenizer: it is read, and is none
            ("--mapping", str(log)),  # a log for a mapping
            ("--max-reject-rate", "7"),
        )
    ):
        done = kvtrace("ingest", log, "-o", tmp_path / f"out{at}", *flags)
        assert done.returncode != 0
        texts[flags[0]] = done.stdout + done.stderr
    assert leaks(texts) == {}
