"""`kvtrace export`: what goes out comes back as the same facts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.conftest import REPO
from tests.e2e.conftest import Run

SAMPLES = REPO / "sample_traces"


@pytest.fixture(scope="module")
def output(kvtrace: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("out")
    done = kvtrace("ingest", SAMPLES, "-o", folder)
    assert done.returncode == 0, done.stderr
    return folder


def facts(kvtrace: Run, folder: Path) -> dict[str, object]:
    """Reuse of an output folder: its summary, the whole capacity curve, and by prompt length.

    Bytes of a capacity are left out: the engine's log tells them, and no trace carries them.
    """
    found: dict[str, object] = {}
    for name in ("reuse/summary", "reuse/capacity_curve", "reuse/by_prompt_bucket"):
        done = kvtrace("query", folder, name, "--json")
        assert done.returncode == 0, done.stderr
        rows = json.loads(done.stdout)["rows"]
        found[name] = [
            {key: value for key, value in row.items() if key != "capacity_bytes"} for row in rows
        ]
    return found


def test_mooncake_out_and_in_again_gives_the_same_reuse(
    kvtrace: Run, output: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    done = kvtrace("export", output, "--to", "mooncake", "-o", trace)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert "1,448 requests, 64 tokens a block" in done.stderr
    again = kvtrace("ingest", trace, "-o", tmp_path / "again")
    assert again.returncode == 0, again.stderr
    assert facts(kvtrace, tmp_path / "again") == facts(kvtrace, output)


def test_csv_out_and_in_again_with_the_mapping_of_the_docs(
    kvtrace: Run, output: Path, tmp_path: Path
) -> None:
    page = (REPO / "docs" / "export.md").read_text()
    toml = re.search(r"```toml[^\n]*\n(.*?)```", page, re.DOTALL)
    assert toml is not None
    (tmp_path / "export.toml").write_text(toml[1])
    trace = tmp_path / "trace.csv"
    assert kvtrace("export", output, "--to", "csv", "-o", trace).returncode == 0
    folder = tmp_path / "again"
    again = kvtrace("ingest", trace, "--mapping", tmp_path / "export.toml", "-o", folder)
    assert again.returncode == 0, again.stderr
    assert facts(kvtrace, folder) == facts(kvtrace, output)
    # The measured times came along: 1 448 joined requests have them all.
    columns = "count(ttft_ns), sum(ttft_ns), sum(queue_ns), sum(e2e_ns), sum(output_tokens)"
    sums = [
        kvtrace("query", one, "--sql", f"select {columns} from requests where is_headline").stdout
        for one in (output, folder)
    ]
    assert sums[0] == sums[1]
    assert "1,448" in sums[0]


def test_stdout_holds_the_trace_alone_and_quiet_is_quiet(kvtrace: Run, output: Path) -> None:
    done = kvtrace("export", output, "--to", "vidur", "-q")
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "arrived_at,num_prefill_tokens,num_decode_tokens"
    assert len(done.stdout.splitlines()) == 1 + 1448


def test_json_says_what_was_written_and_needs_a_file_of_its_own(
    kvtrace: Run, output: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    done = kvtrace("export", output, "--to", "mooncake", "-o", trace, "--json")
    document = json.loads(done.stdout)
    assert (document["requests"], document["path"]) == (1448, str(trace))
    assert done.stderr == ""
    mixed = kvtrace("export", output, "--to", "mooncake", "--json")
    assert (mixed.returncode, mixed.stdout) == (2, "")


def test_refusals_have_codes_and_a_way_on(kvtrace: Run, tmp_path: Path) -> None:
    done = kvtrace("ingest", SAMPLES / "request-metrics.jsonl", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    refused = kvtrace("export", tmp_path, "--to", "mooncake", "-o", tmp_path / "trace.jsonl")
    assert refused.returncode == 3
    assert refused.stderr.startswith("error[KVT-E003]")
    assert "--to vidur" in refused.stderr
    assert not (tmp_path / "trace.jsonl").exists()
    unknown = kvtrace("export", tmp_path, "--to", "parquet")
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("error[KVT-E001]")


def test_every_target_that_is_read_again_gives_the_same_tokens_times_and_reuse(
    kvtrace: Run, output: Path, tmp_path: Path
) -> None:
    tokens = "count(*) as n, sum(prompt_tokens) as p, sum(output_tokens) as o"
    first = "(select min(arrived_at_ns) from requests where is_headline)"
    times = f"sum((arrived_at_ns - {first}) // 1000000)::bigint as ms"  # Mooncake: whole ms
    sql = f"select {tokens}, {times} from requests where is_headline and status = 'ok'"

    def sums(folder: Path) -> object:
        done = kvtrace("query", folder, "--sql", sql, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["rows"]

    for target in ("aiperf", "dynamo", "kvcache-simulator", "vidur"):
        trace = tmp_path / f"{target}.{'csv' if target == 'vidur' else 'jsonl'}"
        assert kvtrace("export", output, "--to", target, "-o", trace).returncode == 0
        again = kvtrace("ingest", trace, "-o", tmp_path / target)
        assert again.returncode == 0, again.stderr
        assert sums(tmp_path / target) == sums(output), target
        if target in ("dynamo", "kvcache-simulator"):  # AIPerf gives tails ids of their own
            assert facts(kvtrace, tmp_path / target) == facts(kvtrace, output), target
