"""What prompt counts of spans include is one rule an instrumentation, whatever the order."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

from kvtrace.ingest.pipeline import Ingested, ingest_paths
from kvtrace.ingest.readfile import IngestSettings

START = 1_780_000_000_000_000_000
SPEC = "gen_ai.usage.cache_read.input_tokens"
OLD = "gen_ai.usage.cache_read_input_tokens"
PROOF = (100, 900)  # more cached than input: left out, so 1000
SILENT = (1_000, 600)  # either 1000 or 1600


def span(
    number: int,
    counts: tuple[int, int],
    *,
    scope: str = "lib",
    version: str = "1",
    provider: str | None = None,
    cached: str = OLD,
    total: int | None = None,
    texts: dict[str, str] | None = None,
) -> str:
    """One export of one call with 10 output tokens; `counts` are input and cached."""
    whole = {"gen_ai.usage.input_tokens": counts[0], cached: counts[1]}
    whole["gen_ai.usage.output_tokens"] = 10
    if total is not None:
        whole["gen_ai.usage.total_tokens"] = total
    told = dict(texts or {}) | ({} if provider is None else {"gen_ai.system": provider})
    attributes = [{"key": key, "value": {"intValue": str(value)}} for key, value in whole.items()]
    attributes += [{"key": key, "value": {"stringValue": value}} for key, value in told.items()]
    call = {
        "traceId": f"{number:032x}",
        "spanId": f"{number:016x}",
        "name": "chat m",
        "startTimeUnixNano": str(START + number * 1_000_000_000),
        "endTimeUnixNano": str(START + number * 1_000_000_000 + 500_000_000),
        "attributes": attributes,
    }
    scopes = [{"scope": {"name": scope, "version": version}, "spans": [call]}]
    return json.dumps({"resourceSpans": [{"scopeSpans": scopes}]})


def ingested(tmp_path: Path, *files: list[str], hash_prompts: bool = False) -> Ingested:
    folder = tmp_path / f"in{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    for number, lines in enumerate(files):
        (folder / f"spans-{number}.json").write_text("\n".join(lines) + "\n")
    return ingest_paths([folder], settings=IngestSettings(hash_prompts=hash_prompts), salt=b"s")


def prompts(run: Ingested) -> list[int | None]:
    rows = run.frames["requests"].sort("arrived_at_ns")
    return rows["prompt_tokens"].to_list()


def severities(run: Ingested) -> dict[str, str]:
    return {
        note.code: note.severity for note in run.notes if note.code.startswith("cache_semantics")
    }


def test_one_call_that_proves_it_settles_its_instrumentation_in_any_order(tmp_path: Path) -> None:
    lines = [span(1, PROOF), span(2, SILENT), span(3, (500, 0)), span(4, SILENT)]
    for order in itertools.permutations(lines):
        run = ingested(tmp_path, list(order))
        assert prompts(run) == [1_000, 1_600, 500, 1_600]
        assert severities(run) == {"cache_semantics_proved": "info"}


def test_however_a_folder_is_split(tmp_path: Path) -> None:
    lines = [span(1, SILENT), span(2, SILENT), span(3, PROOF)]
    for cut in (1, 2):
        run = ingested(tmp_path, lines[:cut], lines[cut:])
        assert prompts(run) == [1_600, 1_600, 1_000]
        (note,) = [one for one in run.notes if one.code == "cache_semantics_proved"]
        assert "spans-1.json:" in note.message  # where the proof stands
    reverse = ingested(tmp_path, [lines[2]], lines[:2])
    assert prompts(reverse) == [1_600, 1_600, 1_000]


def test_instrumentations_versions_and_providers_are_apart(tmp_path: Path) -> None:
    lines = [
        span(1, PROOF, provider="anthropic"),
        span(2, SILENT, provider="openai"),
        span(3, SILENT, provider="anthropic", version="2"),
        span(4, SILENT, provider="anthropic", scope="other"),
        span(5, SILENT, provider="Anthropic"),
        span(6, SILENT),  # of the same instrumentation, and nothing speaks against it
    ]
    run = ingested(tmp_path, lines)
    assert prompts(run) == [1_000, 1_000, 1_000, 1_000, 1_600, 1_600]
    flags = run.frames["requests"].sort("arrived_at_ns")["flags"].to_list()
    assert [bool(row) for row in flags] == [False, True, True, True, False, False]
    assert severities(run) == {
        "cache_semantics_proved": "info",
        "cache_semantics_assumed": "warning",
    }


def test_a_total_proves_either_way(tmp_path: Path) -> None:
    inclusive = ingested(tmp_path, [span(1, SILENT), span(2, (1_000, 400), total=1_010)])
    assert prompts(inclusive) == [1_000, 1_000]
    assert severities(inclusive) == {"cache_semantics_proved": "info"}
    exclusive = ingested(tmp_path, [span(1, SILENT), span(2, (1_000, 400), total=1_410)])
    assert prompts(exclusive) == [1_600, 1_400]


def test_proofs_against_each_other_are_a_warning_and_change_no_other_call(tmp_path: Path) -> None:
    lines = [span(1, SILENT), span(2, PROOF), span(3, (1_000, 400), total=1_010)]
    run = ingested(tmp_path, lines)
    assert prompts(run) == [1_000, 1_000, 1_000]
    assert severities(run) == {"cache_semantics_mixed": "warning"}
    (note,) = [one for one in run.notes if one.code == "cache_semantics_mixed"]
    assert "spans-0.json:2" in note.message
    assert "spans-0.json:3" in note.message


def test_names_of_the_convention_need_no_warning_but_yield_to_a_proof(tmp_path: Path) -> None:
    silent = ingested(tmp_path, [span(1, SILENT, cached=SPEC)])
    assert prompts(silent) == [1_000]
    assert severities(silent) == {"cache_semantics_by_spec": "info"}
    assert silent.frames["requests"]["flags"].to_list() == [[]]
    proved = ingested(tmp_path, [span(1, SILENT, cached=SPEC), span(2, PROOF, cached=SPEC)])
    assert prompts(proved) == [1_600, 1_000]


def test_blocks_follow_the_length_that_was_settled(tmp_path: Path) -> None:
    text = json.dumps([{"role": "user", "content": "word " * 1_300}])  # some 1600 tokens
    told = {"gen_ai.input.messages": text}
    for proof, blocks in ((PROOF, 100), ((1_000, 400), 63)):  # ceil(1600 / 16), ceil(1000 / 16)
        total = None if proof is PROOF else 1_010
        lines = [
            span(1, SILENT, texts=told),
            span(2, proof, total=total, texts=told),
            span(3, SILENT, texts=told),
        ]
        run = ingested(tmp_path, lines, hash_prompts=True)
        sums = run.frames["blocks"].group_by("request_key").sum()["block_count"].to_list()
        assert sorted(sums) == [63, blocks, blocks]
        assert all(not row for row in run.frames["requests"]["flags"].to_list())


def test_jaeger_traces_are_settled_the_same(tmp_path: Path) -> None:
    def trace(number: int, counts: tuple[int, int]) -> dict[str, object]:
        told: dict[str, object] = {
            "otel.scope.name": "lib",
            "otel.scope.version": "1",
            "gen_ai.usage.input_tokens": counts[0],
            OLD: counts[1],
            "gen_ai.usage.output_tokens": 10,
        }
        tags = [{"key": key, "value": value} for key, value in told.items()]
        call = {"traceID": f"{number:x}", "spanID": f"{number:x}", "operationName": "chat m"}
        times = {"startTime": START // 1_000 + number, "duration": 5}
        return {
            "traceID": f"{number:x}",
            "spans": [{**call, **times, "tags": tags}],
            "processes": {},
        }

    path = tmp_path / "jaeger.json"
    path.write_text(json.dumps({"data": [trace(1, SILENT), trace(2, PROOF), trace(3, SILENT)]}))
    run = ingest_paths([path], salt=b"s")
    assert prompts(run) == [1_600, 1_000, 1_600]
    assert severities(run) == {"cache_semantics_proved": "info"}
