"""What holds for every gateway and usage format: told apart, and no damage breaks a reader."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kvtrace.ingest.contract import ReadContext, RequestRow, Tally
from kvtrace.ingest.families.gateways import GatewayFile, endpoint_of, status_of_code
from kvtrace.ingest.formats import (
    apisix,
    cloudflare_ai_gateway,
    codex_rollout,
    envoy_ai_gateway,
    helicone,
    higress,
    kong,
    langfuse,
    litellm,
    nginx_access,
    openai_batch,
    openrouter,
    portkey,
    provider_usage,
)
from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.sniff import recognise
from kvtrace.ingest.usage import TokenUsage
from kvtrace.ingest.values.instants import Instants
from tests.formats.reading import DATA, MODIFIED_AT_NS, read_bytes, sniffed

MODULES = (
    apisix,
    cloudflare_ai_gateway,
    codex_rollout,
    envoy_ai_gateway,
    helicone,
    higress,
    kong,
    langfuse,
    litellm,
    nginx_access,
    openai_batch,
    openrouter,
    portkey,
    provider_usage,
)
ENTRIES = {entry.name: entry for module in MODULES for entry in module.FORMATS}
FOLDERS = [module.__name__.rpartition(".")[2] for module in MODULES]
OURS = [path for name in FOLDERS for path in sorted((DATA / name).iterdir())]
OTHERS = [
    path for path in sorted(DATA.rglob("*")) if path.is_file() and path.parent.name not in FOLDERS
]
ROUNDS = 40
HOSTILE = (
    b"NaN",
    b"-Infinity",
    b"1e999999",
    b"-1",
    b"0",
    b"1.5",
    b"null",
    b"true",
    b"18446744073709551616",
    b"1" * 5_000,
    b'""',
    b'"-"',
    b"[]",
    b"{}",
    b"[[[[]]]]",
    b'"\xd9\xa1\xd9\xa2"',
    b'"sNaN"',
    b'"1e99"',
    b'"9999-99-99T99:99:99Z"',
    b'"0001-01-01T00:00:00+23:59"',
    b'"{\\"a\\": 1"',
    b'"\\ud800"',
    b"\xff\x00",
)


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"


def context() -> ReadContext:
    return ReadContext(path="sample", tally=Tally(), modified_at_ns=MODIFIED_AT_NS)


@pytest.mark.parametrize("path", OURS, ids=label)
def test_every_fixture_is_taken_for_its_own_format(path: Path) -> None:
    found = sniffed(all_formats(), path.read_bytes())
    assert found is not None
    assert found in ENTRIES
    assert found.startswith(path.parent.name)


@pytest.mark.parametrize("path", OTHERS, ids=label)
def test_no_fixture_of_another_format_is_taken_for_one_of_these(path: Path) -> None:
    assert sniffed(all_formats(), path.read_bytes()) not in ENTRIES


def test_lines_whose_first_one_is_cut_are_still_lines() -> None:
    lines = (DATA / "kong" / "good.jsonl").read_bytes()
    cut = lines.index(b",", 40) + 1
    found = recognise(lines[:cut] + b"\n" + lines, "a.jsonl", formats=all_formats())
    assert (found.format, found.framing) == (ENTRIES["kong"], "lines")


def mutated(data: bytes, chance: random.Random) -> bytes:
    """The bytes with one hurt: cut, spliced, swapped, or a value made hostile."""
    at, to = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    kind = chance.randrange(6)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[to:]
    if kind == 2:
        return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    separator = b": " if b": " in data else b","
    start = data.find(separator, at) + len(separator)
    ends = [found for mark in b",}]" if (found := data.find(bytes([mark]), start)) > 0]
    end = min(ends, default=len(data))
    return data[:start] + chance.choice(HOSTILE) + data[end:]


@pytest.mark.parametrize("path", OURS, ids=label)
def test_hurt_files_lose_no_record_and_raise_nothing(path: Path) -> None:
    data = path.read_bytes()
    found = recognise(data, path.name, formats=all_formats()).format
    assert found is not None
    chance = random.Random(label(path))
    for _ in range(ROUNDS):
        hurt = data
        for _ in range(chance.randrange(1, 5)):
            hurt = mutated(hurt, chance)
        reading = read_bytes(found, hurt)  # checks that every record has one outcome
        for row in reading.requests:
            counts = (row.prompt_tokens, row.cached_tokens, row.output_tokens)
            times = (row.ttft_ns, row.e2e_ns)
            assert all(value is None or 0 <= value < 2**63 for value in (*counts, *times))
            assert row.arrived_at_ns is None or abs(row.arrived_at_ns) < 2**63
        told = [detail or "" for _, _, detail in reading.context.tally.rejects]
        told += [note.message for note in reading.context.notes]
        assert "secret" not in " ".join(told)


@pytest.mark.parametrize("name", [name for name in ENTRIES if ENTRIES[name].framing == "lines"])
def test_deep_and_huge_records_are_no_rows(name: str) -> None:
    deep = b'{"a": ' * 100_000 + b"1" + b"}" * 100_000
    lists = b'{"usage": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    wide = b'{"a": "' + b"x" * 1_000_000 + b'"}'
    reading = read_bytes(ENTRIES[name], deep + b"\n" + lists + b"\n" + wide + b"\n")
    assert len(reading.rejected) + sum(reading.ignored.values()) == 3
    assert reading.rows == []


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/v1/chat/completions", "chat/completions"),
        ("/team/v1/chat/completions/?key=x", "chat/completions"),
        ("/openai/deployments/x/completions", "completions"),
        ("/v1beta/models/g:streamGenerateContent", "streamGenerateContent"),
        ("/model/x/converse-stream", "converse-stream"),
        ("/generate", "generate"),
        ("/metrics", None),
        ("/v1/models", None),
        ("/health", None),
        ("/v1/chat/completions/extra", None),
        ("/regenerate", None),
        ("", None),
    ],
)
def test_paths_of_inference(path: str, kind: str | None) -> None:
    assert endpoint_of(path) == kind


@pytest.mark.parametrize(
    ("code", "status"),
    [(None, "ok"), (200, "ok"), (304, "ok"), (0, "cancelled"), (499, "cancelled"), (429, "error")],
)
def test_outcome_of_a_code(code: int | None, status: str) -> None:
    assert status_of_code(code) == status


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1772438400", 1_772_438_400_000_000_000),
        ("1772438400.25", 1_772_438_400_250_000_000),
        ("1772438400250", 1_772_438_400_250_000_000),
        ("1772438400250000", 1_772_438_400_250_000_000),
        ("1772438400250000123", 1_772_438_400_250_000_123),
        ("27482", None),
        ("-5", None),
        ("0", None),
        ("1e30", None),
        ("2026-03-02T08:00:00Z", 1_772_438_400_000_000_000),
        ("2026-03-02T16:00:00+08:00", 1_772_438_400_000_000_000),
        ("2026-03-02 08:00:00", 1_772_438_400_000_000_000),
        ("02/Mar/2026:08:00:00 +0000", 1_772_438_400_000_000_000),
        ("02/Mar/2026:03:00:00 -0500", 1_772_438_400_000_000_000),
    ],
)
def test_times_in_every_form(text: str, ns: int | None) -> None:
    flags: list[str] = []
    assert Instants(context()).text_ns("t", text, flags) == ns
    assert flags == ([] if ns is not None else ["time_not_an_epoch"])


@pytest.mark.parametrize(
    "text", ["soon", "02/Mai/2026:08:00:00 +0000", "31/Feb/2026:08:00:00 +0000", "\u0661"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="`t` is not a number"):
        Instants(context()).text_ns("t", text, [])


def test_a_hit_of_the_gateways_cache_is_no_hit_of_the_kv_cache() -> None:
    gateway = GatewayFile(context())
    row = RequestRow(offset=0, line=1, status="gateway_cache_hit")
    usage = TokenUsage(
        shape="openai", prompt_tokens=10, cached_tokens=8, cache_write_tokens=1, output_tokens=2
    )
    gateway.fill(row, usage, [])
    assert (row.prompt_tokens, row.output_tokens) == (10, 2)
    assert (row.cached_tokens, row.cache_write_tokens) == (None, None)
    gateway.finish("t")
    assert gateway.context.evidence_grade == "L"


def test_a_first_token_after_the_end_is_flagged() -> None:
    row = RequestRow(offset=0, line=1, ttft_ns=5, e2e_ns=4)
    GatewayFile(context()).fill(row, None, [])
    assert row.flags == ("ttft_above_e2e",)
