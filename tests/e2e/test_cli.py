"""Exit codes, streams and the shape of errors: a promise to scripts."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import jsonschema
import pytest

from kvtrace import api
from tests.conftest import REPO
from tests.e2e.conftest import Run

SAMPLES = REPO / "sample_traces"


@pytest.fixture(scope="module")
def output(kvtrace_process: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output folder of one analysis of the samples."""
    folder = tmp_path_factory.mktemp("samples")
    done = kvtrace_process("analyze", SAMPLES, "-o", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_analyze_writes_report_audit_and_dataset(output: Path) -> None:
    assert (output / "report.html").stat().st_size < 4_000_000
    assert json.loads((output / "audit.json").read_bytes())["schema_version"] == 1
    assert (output / "dataset" / "manifest.json").is_file()


def test_json_prints_one_document_on_stdout(kvtrace: Run, output: Path) -> None:
    done = kvtrace("analyze", SAMPLES, "-o", output, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((output / "audit.json").read_bytes())


def test_output_defaults_to_reports_and_the_name(kvtrace: Run, tmp_path: Path) -> None:
    done = kvtrace("ingest", SAMPLES, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "reports" / "sample_traces" / "dataset" / "manifest.json").is_file()


def test_ingest_conserves_every_row(kvtrace: Run, output: Path, tmp_path: Path) -> None:
    done = kvtrace("ingest", SAMPLES, "-o", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["files"]
    for entry in document["files"]:
        assert entry["rows_in"] == entry["kept"] + entry["rejected"] + entry["blank"]
        assert entry["kept"] == entry["used"] + entry["ignored"]
    audit = json.loads((output / "audit.json").read_bytes())
    assert document["digest"] == audit["data"]["dataset_digest"]


@pytest.mark.parametrize("name", ["reuse/capacity_marks", "reuse/capacity_curve", "kv/summary"])
def test_a_query_without_parameters_gives_the_table_of_the_report(output: Path, name: str) -> None:
    audit = json.loads((output / "audit.json").read_bytes())
    shown = audit["tables"][name]
    rows = [[row[column] for column in shown["columns"]] for row in api.query(output, name).rows()]
    assert rows == shown["rows"] != []


def test_queries_list_run_and_show(kvtrace: Run, output: Path) -> None:
    listing = kvtrace("query")
    assert "reuse/summary" in listing.stdout
    table = kvtrace("query", output, "reuse/summary")
    assert table.returncode == 0, table.stderr
    assert "reusable_ratio_tokens" in table.stdout
    shown = kvtrace("query", output, "reuse/summary", "--show-sql")
    assert "select" in shown.stdout


@pytest.mark.parametrize(
    "sql",
    [
        "copy (select 1) to '/tmp/x.csv'",
        "select * from read_csv('/etc/passwd')",
        "attach '/tmp/x.db'",
        "select 1; select 2",
    ],
)
def test_sql_cannot_leave_the_dataset(kvtrace: Run, output: Path, sql: str) -> None:
    done = kvtrace("query", output, "--sql", sql)
    assert done.returncode in {2, 4}
    assert done.stdout == ""
    assert done.stderr.startswith("error[KVT-")


def test_a_user_query_runs(kvtrace: Run, output: Path) -> None:
    done = kvtrace("query", output, "--sql", "select count(*) as n from requests", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"][0]["n"] > 0


def test_replay_prices_hits(kvtrace: Run, output: Path) -> None:
    done = kvtrace("replay", output, "--option", "hbm_only", "--option", "pool_dram_tcp", "--json")
    assert done.returncode == 0, done.stderr
    options = json.loads(done.stdout)["options"]
    assert [option["id"] for option in options] == ["hbm_only", "pool_dram_tcp"]


def test_report_is_rebuilt_from_the_record_alone(
    kvtrace: Run, output: Path, tmp_path: Path
) -> None:
    record = tmp_path / "audit.json"
    record.write_bytes((output / "audit.json").read_bytes())
    done = kvtrace("report", record, "-o", tmp_path / "again.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.html").read_bytes() == (output / "report.html").read_bytes()


def test_the_record_keeps_its_schema(output: Path) -> None:
    schema = json.loads((REPO / "kvtrace" / "audit" / "audit.schema.json").read_bytes())
    jsonschema.validate(json.loads((output / "audit.json").read_bytes()), schema)


def _assert_error(done: subprocess.CompletedProcess[str], code: int) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "error" in done.stderr.lower()


def test_a_missing_path_is_an_input_error(kvtrace: Run, tmp_path: Path) -> None:
    (tmp_path / "logs.jsonl").write_text("")
    done = kvtrace("analyze", tmp_path / "log.jsonl", "-o", tmp_path / "out")
    _assert_error(done, 3)
    assert "logs.jsonl" in done.stderr


def test_an_unusable_input_names_each_file(kvtrace: Run, tmp_path: Path) -> None:
    (tmp_path / "junk.bin").write_bytes(bytes(range(256)) * 4)
    (tmp_path / "empty.jsonl").write_bytes(b"")
    done = kvtrace("analyze", tmp_path, "-o", tmp_path / "out")
    _assert_error(done, 3)
    assert "junk.bin" in done.stderr
    assert "empty.jsonl" in done.stderr
    assert not (tmp_path / "out" / "dataset" / "manifest.json").exists()


def test_a_misspelt_llm_offers_close_names(kvtrace: Run, tmp_path: Path) -> None:
    done = kvtrace("analyze", SAMPLES, "--llm", "Llama-3.1-70", "-o", tmp_path)
    _assert_error(done, 2)
    assert "Llama-3.1-70B" in done.stderr


def test_a_process_ends_as_a_run_does(kvtrace: Run, kvtrace_process: Run, output: Path) -> None:
    # The other tests call the command line in this process; this is why they may.
    for words in (
        ("query", output, "reuse/summary", "--json"),
        ("query", output, "reuse/sumary"),
        ("query", "somewhere"),
    ):
        here, there = kvtrace(*words), kvtrace_process(*words)
        assert (here.returncode, here.stdout) == (there.returncode, there.stdout)
        assert here.stderr == there.stderr


def test_usage_errors_exit_2(kvtrace: Run) -> None:
    _assert_error(kvtrace("analyze"), 2)
    _assert_error(kvtrace("analyse"), 2)
    _assert_error(kvtrace("query", "somewhere"), 2)


def test_a_folder_without_a_dataset_is_named(kvtrace: Run, tmp_path: Path) -> None:
    done = kvtrace("query", tmp_path, "reuse/summary")
    assert done.returncode in {2, 3, 5}
    assert str(tmp_path) in done.stderr


def test_an_output_that_is_a_file_is_an_output_error(kvtrace: Run, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("taken")
    _assert_error(kvtrace("analyze", SAMPLES, "-o", tmp_path / "out"), 5)


def test_too_many_rejects_stop_the_run(kvtrace: Run, tmp_path: Path) -> None:
    good = '{"timestamp": %d, "input_length": 1024, "output_length": 5, "hash_ids": [%d, %d]}\n'
    lines = [good % (i * 10, 2 * i, 2 * i + 1) for i in range(1_000)] + ["{broken\n"] * 200
    (tmp_path / "trace.jsonl").write_text("".join(lines))
    done = kvtrace("ingest", tmp_path / "trace.jsonl", "-o", tmp_path / "out")
    _assert_error(done, 3)
    assert "KVT-I004" in done.stderr
    assert "trace.jsonl:1001" in done.stderr
    assert "--max-reject-rate" in done.stderr
    accepted = kvtrace(
        "ingest",
        tmp_path / "trace.jsonl",
        "-o",
        tmp_path / "out",
        "--max-reject-rate",
        "0.2",
        "--json",
    )
    assert accepted.returncode == 0, accepted.stderr
    assert json.loads(accepted.stdout)["totals"]["rejected"] == 200


def test_a_fleet_file_says_what_no_log_says(kvtrace: Run, output: Path, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.toml"
    fleet.write_text('instances = 3\npool_dram_bytes = "512GiB"\n')
    done = kvtrace("replay", output, "--fleet", fleet, "--option", "hbm_only", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["options"][0]["instances"] == 3
    fleet.write_text("pool_dram = 1\n")
    wrong = kvtrace("replay", output, "--fleet", fleet)
    _assert_error(wrong, 2)
    assert "pool_dram_bytes" in wrong.stderr


def test_replay_keeps_what_was_stated_for_the_audit(kvtrace: Run, tmp_path: Path) -> None:
    done = kvtrace("analyze", SAMPLES, "-o", tmp_path, "--hardware", "A100-SXM4-80GB")
    assert done.returncode == 0, done.stderr
    replayed = json.loads(kvtrace("replay", tmp_path, "--option", "hbm_only", "--json").stdout)
    assert replayed["served_by"]["hardware"].startswith("A100-SXM4-80GB")


def test_nothing_is_left_of_a_run_that_read_nothing(kvtrace: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    _assert_error(kvtrace("analyze", tmp_path / "empty", "-o", tmp_path / "out"), 3)
    assert not (tmp_path / "out").exists()


def test_replay_asks_again_for_an_llm_that_came_from_a_file(kvtrace: Run, tmp_path: Path) -> None:
    config = tmp_path / "own.json"
    config.write_text(
        json.dumps(
            {
                "model_type": "llama",
                "hidden_size": 4096,
                "intermediate_size": 14336,
                "num_attention_heads": 32,
                "num_hidden_layers": 32,
                "num_key_value_heads": 8,
                "vocab_size": 128256,
            }
        )
    )
    done = kvtrace("analyze", SAMPLES, "-o", tmp_path / "out", "--llm", config)
    assert done.returncode == 0, done.stderr
    assert "served by   own," in done.stdout
    asked = kvtrace("replay", tmp_path / "out", "--option", "hbm_only")
    _assert_error(asked, 2)
    assert "--llm FILE" in asked.stderr


def test_a_part_whose_bytes_changed_is_never_read(kvtrace: Run, tmp_path: Path) -> None:
    assert kvtrace("ingest", SAMPLES, "-o", tmp_path, "--json").returncode == 0
    part = next((tmp_path / "dataset" / "reuse").glob("*.parquet"))
    data = bytearray(part.read_bytes())
    data[100] ^= 0xFF
    part.write_bytes(data)
    damaged = kvtrace("query", tmp_path, "reuse/summary")
    _assert_error(damaged, 3)
    assert part.name in damaged.stderr
    again = kvtrace("ingest", SAMPLES, "-o", tmp_path)
    assert again.returncode == 0, again.stderr
    assert "reused" not in again.stderr
    assert kvtrace("query", tmp_path, "reuse/summary").returncode == 0


def test_a_failed_gate_is_exit_code_1_and_named_with_its_number(kvtrace: Run, output: Path) -> None:
    done = kvtrace("report", output, "--to", "json", "--fail-on", "requests>100")
    assert done.returncode == 1
    assert "gate failed: requests>100: requests is 1,448 requests" in done.stderr
    assert json.loads(done.stdout)["schema_version"] == 1
    passed = kvtrace("report", output, "--to", "adr", "--fail-on", "requests>1448", "-q")
    assert passed.returncode == 0, passed.stderr
    assert "(left to a person)" in passed.stdout


def test_a_gate_that_does_not_exist_is_refused_before_the_work(
    kvtrace: Run, tmp_path: Path
) -> None:
    done = kvtrace("analyze", SAMPLES, "-o", tmp_path / "out", "--fail-on", "finding:nothing")
    _assert_error(done, 2)
    assert not (tmp_path / "out").exists()
