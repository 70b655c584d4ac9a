"""`verify` passes what is right, and names what somebody changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import polars as pl
import pytest

from kvtrace import api
from kvtrace.config import resolve_settings
from kvtrace.errors import InputError, UsageError
from kvtrace.schema.manifest import Manifest
from kvtrace.store.files import file_digest
from kvtrace.verify import headline
from kvtrace.verify.caches import lru, unlimited
from kvtrace.verify.check import Check
from kvtrace.verify.rows import Request, by_arrival
from tests.conftest import Analysed


@pytest.fixture(scope="module")
def made(samples: Analysed) -> Path:
    """An analysis of the samples."""
    return samples.folder


@pytest.fixture
def output(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(made, tmp_path / "samples"))


def failed(folder: Path) -> dict[str, Check]:
    return {one.id: one for one in api.verify(folder).checks if one.verdict == "fail"}


def rewrite(folder: Path, table: str, change: pl.Expr) -> None:
    """Another column in a part of the table, with a manifest that knows the new bytes."""
    path = folder / "dataset" / "manifest.json"
    manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    entry = manifest.tables[table][0]
    part = folder / "dataset" / entry.path
    pl.read_parquet(part).with_columns(change).write_parquet(part)
    manifest.tables[table][0] = msgspec.structs.replace(
        entry, byte_size=part.stat().st_size, blake2b=file_digest(part)
    )
    path.write_bytes(msgspec.json.encode(manifest))


def test_the_samples_pass(made: Path) -> None:
    done = api.verify(made)
    assert done.has_passed
    verdicts = {one.id: one.verdict for one in done.checks}
    assert {verdicts[name] for name in verdicts if name.startswith("query/")} == {"pass"}
    assert sum(name.startswith("query/lru_hit_blocks_at_") for name in verdicts) == 3
    assert verdicts["engine/vllm_text_2/prompt_tokens"] == "pass"
    assert verdicts["engine/vllm_text_2/hit_ratio_tokens"] == "cannot_compare"


def test_a_trace_whose_atoms_all_end_in_a_partial_block_passes(tmp_path: Path) -> None:
    # 20 tokens are blocks of 16 and of 4, always touched together: no atom shows the block size
    # in its mean of 10. Capacity 1 of 2 distinct blocks: the second request hits 16 tokens.
    rows = [
        {"timestamp": second, "input_length": 20, "output_length": 1, "hash_ids": [1, 2]}
        for second in (0, 1000)
    ]
    log = tmp_path / "trace.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = resolve_settings({"block_size": 16})
    api.ingest([log], output=tmp_path / "out", settings=settings)
    checks = {one.id: one for one in api.verify(tmp_path / "out").checks}
    assert checks["query/lru_hit_tokens_at_1"].independent == 16
    assert {one.verdict for one in checks.values()} == {"pass", "cannot_compare"}


def test_every_check_is_in_the_json(made: Path) -> None:
    document = json.loads(api.verify(made).to_json())
    assert document["has_passed"] is True
    for check in document["checks"]:
        assert set(check) == {
            "id", "independent", "kvtrace", "unit", "tolerance", "verdict", "why"
        }  # fmt: skip
        assert check["why"]


def test_a_changed_reuse_fact_is_found(output: Path) -> None:
    # the first atom of each part that is reusable is said to be further away than it is
    rewrite(output, "reuse", (pl.col("distance_blocks") + 40).alias("distance_blocks"))
    found = failed(output)
    assert found
    assert all(name.startswith("query/lru_hit_") for name in found)


def test_a_reuse_fact_that_is_denied_is_found(output: Path) -> None:
    rewrite(output, "reuse", pl.lit(False).alias("is_reusable"))
    assert "query/reusable_blocks" in failed(output)


def test_a_changed_request_is_found_by_the_digest_and_by_the_engine(output: Path) -> None:
    rewrite(output, "requests", (pl.col("prompt_tokens") * 2).alias("prompt_tokens"))
    found = failed(output)
    assert {
        "dataset/digest",
        "manifest/prompt_tokens",
        "audit/prompt_tokens",
        "engine/vllm_text_2/prompt_tokens",
    } <= set(found)


@pytest.mark.parametrize(
    ("path", "id"),
    [
        (("data", "prompt_tokens"), "audit/prompt_tokens"),
        (("data", "requests"), "audit/requests"),
        (("data", "requests_by_status", "ok"), "audit/requests_ok"),
        (("reuse", "reusable_blocks"), "audit/reusable_blocks"),
        (("reuse", "reusable_ratio_tokens"), "audit/reusable_ratio_tokens"),
        (("kv", "bytes_requested"), "audit/kv_bytes_requested"),
    ],
)
def test_a_changed_number_of_the_audit_is_found(
    output: Path, path: tuple[str, ...], id: str
) -> None:
    file = output / "audit.json"
    document = json.loads(file.read_bytes())
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] += 1
    file.write_text(json.dumps(document))
    assert set(failed(output)) == {id}


def test_rows_that_went_nowhere_are_found(output: Path) -> None:
    path = output / "dataset" / "manifest.json"
    manifest = msgspec.json.decode(path.read_bytes(), type=Manifest)
    manifest.files[0].kept -= 1
    path.write_bytes(msgspec.json.encode(manifest))
    found = failed(output)["manifest/files_that_add_up"]
    assert (found.independent, found.kvtrace) == (3, 2)
    assert manifest.files[0].path in found.why


def test_changed_bytes_are_one_failed_check(output: Path) -> None:
    part = next((output / "dataset" / "reuse").iterdir())
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    done = api.verify(output)
    assert [one.id for one in done.checks] == ["dataset/parts"]
    assert not done.has_passed
    assert part.name in done.checks[0].why


def test_an_audit_of_another_dataset_is_not_compared(output: Path) -> None:
    file = output / "audit.json"
    document = json.loads(file.read_bytes())
    document["data"]["dataset_digest"] = "0" * 32
    file.write_text(json.dumps(document))
    checks = {one.id: one for one in api.verify(output).checks}
    assert checks["audit/record"].verdict == "cannot_compare"
    assert "another dataset" in checks["audit/record"].why
    assert checks["query/kv_bytes_requested"].verdict == "cannot_compare"


def test_a_large_dataset_says_that_it_is_not_simulated(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(headline, "MAX_LRU_REFS", 10)
    checks = {one.id: one for one in api.verify(made).checks}
    assert checks["query/lru_hit_blocks"].verdict == "cannot_compare"
    assert "not simulated one by one" in checks["query/lru_hit_blocks"].why
    assert checks["query/reusable_blocks"].verdict == "pass"


def test_no_dataset_is_an_error_and_so_is_a_wrong_tolerance(made: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no dataset here"):
        api.verify(tmp_path)
    with pytest.raises(UsageError, match="is no share of a total"):
        api.verify(made, tolerance=2)


def request(key: int, runs: list[tuple[int, int]], arrived: int | None = None) -> Request:
    tokens = 10 * sum(count for _, count in runs)
    return Request(key, "ok", arrived, True, tokens, None, None, 0, runs)


def test_only_leading_blocks_count_and_prefixes_outlive_tails() -> None:
    first, second = request(1, [(0, 3)]), request(2, [(0, 2), (3, 1)])
    third = request(3, [(5, 1), (0, 2)])
    domains = {0: [first, second, third]}
    # second: 0 and 1 were seen. third: 5 was not, so nothing behind it counts
    seen = unlimited(domains, {0: 10})
    assert (seen.reusable_blocks, seen.reusable_tokens, seen.distinct_blocks) == (2, 20, 5)
    # room for one: after the first request only its head is left
    assert lru(domains, {0: 10}, 1) == (1, 10)
    assert lru(domains, {0: 10}, 2) == (2, 20)


def test_requests_come_in_order_of_arrival_and_one_without_stands_where_it_is() -> None:
    rows = [request(1, [(0, 1)], 50), request(2, [(0, 1)]), request(3, [(0, 1)], 20)]
    # the second takes the arrival of the first
    assert [one.key for one in by_arrival(rows)[0]] == [3, 1, 2]
