"""`kvtrace query` and `kvtrace verify` as a person types them, without a process of their own."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from kvtrace import api
from kvtrace.cli.app import run
from kvtrace.errors import ExitCode, InputError, UsageError
from kvtrace.query.params import parse_param
from tests.conftest import REPO

HEADED = """-- name: my/statuses
-- question: How many requests of each status are there?
-- grain: one row per status
-- params: least BIGINT = 1
-- reads: requests
-- order: status
select
    status,                              -- name: how it ended
    count(*)::bigint as requests         -- requests: of this status
from requests
group by status
having count(*) >= getvariable('least')::bigint
order by status
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of the samples, without an audit."""
    folder = tmp_path_factory.mktemp("query") / "samples"
    api.ingest([REPO / "sample_traces"], output=folder)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A person's folder with one query."""
    place = tmp_path / "mine" / "my" / "statuses.sql"
    place.parent.mkdir(parents=True)
    place.write_text(HEADED, encoding="utf-8")
    return tmp_path / "mine"


Typed = pytest.CaptureFixture[str]


def kvtrace(capsys: Typed, *words: object) -> tuple[int, str, str]:
    try:
        code = run(["query", *map(str, words)])
    except SystemExit as stop:
        code = int(stop.code or 0)
    said = capsys.readouterr()
    return code, said.out, said.err


def test_queries_are_listed_by_topic_and_found_by_a_word(capsys: Typed) -> None:
    code, out, _ = kvtrace(capsys)
    assert code == 0
    assert "\nreuse\n" in out
    code, out, _ = kvtrace(capsys, "capacity")
    assert "reuse/capacity_curve" in out
    assert "coverage/fields" not in out


def test_a_query_describes_itself(capsys: Typed) -> None:
    _, out, _ = kvtrace(capsys, "reuse/capacity_curve")
    assert "param  capacities BIGINT[], null unless given" in out
    assert "hit_ratio_tokens" in out
    assert "run it: kvtrace query DIR reuse/capacity_curve" in out
    _, out, _ = kvtrace(capsys, "reuse/capacity_curve", "--json")
    assert json.loads(out)["params"][0]["name"] == "capacities"


def test_a_word_that_means_nothing_is_an_error(capsys: Typed) -> None:
    code, out, err = kvtrace(capsys, "zzzz")
    assert (code, out) == (2, "")
    assert err.startswith("error[KVT-U013]")
    assert "did you mean" not in err


@pytest.mark.parametrize("typed", ["reuse/capacty_curve", "capacty_curve"])
def test_a_query_that_is_misspelt_is_named(capsys: Typed, typed: str) -> None:
    code, out, err = kvtrace(capsys, typed)
    assert (code, out) == (2, "")
    assert "no folder and no query" in err
    assert "did you mean `reuse/capacity_curve`" in err


def test_bytes_follow_the_llm_and_say_so_else_stay_unknown(capsys: Typed, made: Path) -> None:
    # 15 696 386 prompt tokens x 80 layers x 8 heads x 128 x 2 (K, V) x 2 bytes
    _, out, err = kvtrace(capsys, made, "kv/summary", "--json", "--llm", "Llama-3.1-70B")
    assert json.loads(out)["rows"][0]["kv_bytes_requested"] == 15_696_386 * 327_680
    assert "kv_bytes_per_token = 327,680 (Meta-Llama-3.1-70B from flag" in err
    # the engine's log names an 8B: 32 layers x 8 heads x 128 x 2 x 2 bytes
    _, out, err = kvtrace(capsys, made, "kv/summary", "--json")
    assert json.loads(out)["rows"][0]["kv_bytes_requested"] == 15_696_386 * 131_072
    assert "from the logs" in err


def test_bytes_that_nobody_knows_stay_null(capsys: Typed, tmp_path: Path) -> None:
    api.ingest([REPO / "sample_traces" / "router-trace.jsonl.zst"], output=tmp_path)
    _, out, err = kvtrace(capsys, tmp_path, "kv/summary", "--json")
    assert json.loads(out)["rows"][0]["kv_bytes_requested"] is None
    assert "kv_bytes_per_token" not in err


def test_a_file_of_ones_own_runs_with_and_without_a_header(
    capsys: Typed, made: Path, folder: Path, tmp_path: Path
) -> None:
    code, out, _ = kvtrace(capsys, made, folder / "my" / "statuses.sql", "--mode", "csv")
    assert (code, out) == (0, "status,requests\nok,1448\n")
    plain = tmp_path / "plain.sql"
    plain.write_text("select count(*) as n from requests where turn >= getvariable('turn');")
    code, out, _ = kvtrace(capsys, made, plain, "-p", "turn=100000", "--mode", "csv")
    assert (code, out) == (0, "n\n0\n")
    code, _, err = kvtrace(capsys, made, plain, "-p", "trun=1")
    assert code == 2
    assert "did you mean `turn`" in err


def test_a_folder_adds_queries(capsys: Typed, made: Path, folder: Path) -> None:
    _, out, _ = kvtrace(capsys, "--queries", folder, "my/statuses")
    assert "least BIGINT, 1 unless given" in out
    code, out, _ = kvtrace(
        capsys, made, "my/statuses", "--queries", folder, "-p", "least=2000", "--mode", "csv"
    )
    assert (code, out) == (0, "status,requests\n")


@pytest.mark.parametrize(
    ("old", "new", "code", "place"),
    [
        ("-- grain: one row per status\n", "", "KVT-Q010", "statuses.sql:1"),
        ("-- grain:", "-- rows:", "KVT-Q010", "statuses.sql:3"),
        ("least BIGINT = 1", "least BIGINT = 1; drop view requests", "KVT-Q012", "statuses.sql:4"),
        ("-- name: my/statuses", "-- name: my/other", "KVT-Q014", "statuses.sql:1"),
    ],
)
def test_a_broken_file_is_named_with_its_line(
    capsys: Typed, made: Path, folder: Path, old: str, new: str, code: str, place: str
) -> None:
    (folder / "my" / "statuses.sql").write_text(HEADED.replace(old, new), encoding="utf-8")
    exit_code, out, err = kvtrace(capsys, made, "my/statuses", "--queries", folder)
    assert (exit_code, out) == (2, "")
    assert err.startswith(f"error[{code}]")
    assert place in err
    assert "hint:" in err


def test_a_name_of_the_catalogue_is_taken(capsys: Typed, made: Path, folder: Path) -> None:
    place = folder / "reuse" / "summary.sql"
    place.parent.mkdir()
    place.write_text(HEADED.replace("my/statuses", "reuse/summary"), encoding="utf-8")
    code, _, err = kvtrace(capsys, made, "reuse/summary", "--queries", folder)
    assert code == 2
    assert "error[KVT-Q017]: two queries are called `reuse/summary`" in err
    assert str(place) in err
    assert "the catalogue" in err


def test_a_folder_query_is_guarded(capsys: Typed, made: Path, folder: Path) -> None:
    text = HEADED.replace("from requests", "from read_text('/etc/hostname')")
    (folder / "my" / "statuses.sql").write_text(text, encoding="utf-8")
    code, out, err = kvtrace(capsys, made, "my/statuses", "--queries", folder)
    assert (code, out) == (2, "")
    assert "KVT-Q024" in err


def test_rows_are_cut_where_asked_and_said(capsys: Typed, made: Path) -> None:
    _, out, err = kvtrace(capsys, made, "coverage/fields", "--limit", "2", "--mode", "csv")
    assert len(out.splitlines()) == 3
    assert "only the first 2 rows; there are more" in err


def test_a_query_without_end_is_stopped(capsys: Typed, made: Path) -> None:
    endless = "select sum(a.range * b.range) from range(10000000000) a, range(10000000) b"
    code, out, err = kvtrace(capsys, made, "--sql", endless, "--timeout", "0.3")
    assert (code, out) == (4, "")
    assert "KVT-Q004" in err


def test_too_many_rows_are_an_error(capsys: Typed, made: Path) -> None:
    code, out, err = kvtrace(capsys, made, "--sql", "from range(1000002)")
    assert (code, out) == (4, "")
    assert "KVT-Q005" in err
    assert "--limit N" in err


def test_output_follows_the_name_of_the_file(capsys: Typed, made: Path, tmp_path: Path) -> None:
    for suffix in ("csv", "json", "md", "parquet"):
        code, out, _ = kvtrace(capsys, made, "coverage/statuses", "-o", tmp_path / f"out.{suffix}")
        assert (code, out) == (0, "")
    assert pl.read_parquet(tmp_path / "out.parquet").rows() == [("ok", 1448, 15_696_386)]
    assert json.loads((tmp_path / "out.json").read_bytes())["query"] == "coverage/statuses"
    assert (tmp_path / "out.csv").read_text().startswith("status,")
    assert (tmp_path / "out.md").read_text().startswith("| `status` |")


def test_parquet_needs_a_file(capsys: Typed, made: Path) -> None:
    code, out, err = kvtrace(capsys, made, "coverage/statuses", "--mode", "parquet")
    assert (code, out) == (2, "")
    assert "KVT-U016" in err


def test_shown_sql_carries_what_is_known(capsys: Typed, made: Path) -> None:
    _, out, _ = kvtrace(capsys, made, "kv/summary", "--show-sql", "--llm", "Llama-3.1-70B")
    assert "set variable kv_bytes_per_token = 327680" in out
    assert "set variable block_size_tokens = 64::bigint;" in out


def test_a_folder_query_in_another_encoding_says_how_to_save_it(
    capsys: Typed, made: Path, folder: Path
) -> None:
    (folder / "my" / "statuses.sql").write_bytes(HEADED.encode() + b"-- caf\xe9\n")
    code, _, err = kvtrace(capsys, made, "my/statuses", "--queries", folder)
    assert code == 2
    assert "error[KVT-Q015]" in err
    assert "hint: save it as UTF-8" in err


def test_two_modes_at_once_are_named(capsys: Typed, made: Path) -> None:
    code, _, err = kvtrace(capsys, made, "reuse/summary", "--json", "--mode", "csv")
    assert code == 2
    assert "hint: leave one of them out: `--mode csv`" in err


def test_a_number_beyond_64_bits_is_no_bigint() -> None:
    assert parse_param("window_requests", "BIGINT", str(2**63 - 1)) == 2**63 - 1
    with pytest.raises(UsageError) as caught:
        parse_param("window_requests", "BIGINT", str(2**63))
    assert caught.value.code == "KVT-Q023"
    assert caught.value.hint == "write it as `window_requests=1000`"


def test_a_dataset_or_audit_that_is_not_there_is_input_that_cannot_be_used(tmp_path: Path) -> None:
    for call in (api.open_dataset, api.report):
        with pytest.raises(InputError) as caught:
            call(tmp_path / "nowhere")
        assert caught.value.exit_code == ExitCode.INPUT_UNUSABLE
        assert caught.value.hint
