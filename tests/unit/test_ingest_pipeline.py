"""The pipeline: counts, copies, sources, sessions, domains, totals, refusals, determinism."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from kvtrace.errors import InputError
from kvtrace.ingest.contract import Metric, ReadContext, Record, Row, SampleRow, TransferRow
from kvtrace.ingest.pipeline import fingerprint
from kvtrace.ingest.readfile import IngestSettings
from kvtrace.ingest.sources import clock_resolution_ns
from kvtrace.schema.tables import TABLES
from tests.unit.ingest_formats import ingest, made_up, write_rows

S = 1_000_000_000


def row(**fields: object) -> dict[str, object]:
    return {"prompt_tokens": 10, **fields}


def test_frames_have_exactly_the_columns_of_the_schema(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a", "f", [row(block_keys=[1], session_id="s")])
    result = ingest([path], made_up("f", block_size=10))
    assert set(result.frames) == {
        "requests",
        "blocks",
        "keys",
        "samples",
        "transfers",
        "block_events",
        "rejects",
    }
    for name, frame in result.frames.items():
        assert dict(frame.schema) == TABLES[name].polars_schema()


def test_every_record_has_one_outcome(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a", "f", [row(), {"skip": 1}, row()])
    path.write_bytes(path.read_bytes() + b"\n  \nbroken\n" + b"x" * ((16 << 20) + 1) + b"\n")
    entry = ingest([path], made_up("f")).files[0]
    assert (entry.rows_in, entry.kept, entry.rejected, entry.blank) == (8, 4, 2, 2)
    assert (entry.used, entry.ignored) == (2, 2)
    assert entry.rejected_by_reason == {"invalid_json": 1, "record_too_long": 1}
    assert entry.ignored_by_reason == {"not_a_request": 2}


def test_rejects_say_where_and_never_what(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a", "f", [row()])
    start = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"secret prompt\n")
    rejects = ingest([path], made_up("f")).frames["rejects"]
    assert rejects.drop("digest").rows() == [(0, 3, start, 13, "invalid_json", None)]
    assert "secret" not in str(rejects.rows())


def test_reader_that_loses_a_record_is_a_bug(tmp_path: Path) -> None:
    def lossy(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
        yield from ()
        for number, _record in enumerate(records):
            if number:
                context.tally.use()

    path = write_rows(tmp_path / "a", "f", [row()])
    with pytest.raises(RuntimeError, match="lost count of a: 2 records in, 1 used"):
        ingest([path], dataclasses.replace(made_up("f"), read=lossy))


def test_request_key_is_file_number_and_offset(tmp_path: Path) -> None:
    paths = [write_rows(tmp_path / name, "f", [row(turn=1)]) for name in ("a", "b")]
    (tmp_path / "b").write_text((tmp_path / "b").read_text() + "\n")  # not a copy of a
    offset = len('{"format": "f"}\n')
    keys = ingest(paths, made_up("f")).frames["requests"]["request_key"].to_list()
    assert keys == [offset, 2**44 + offset]


def test_several_rows_of_one_record_get_keys_of_their_own(tmp_path: Path) -> None:
    def twice(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
        for found in made_up("f").read(records, context):
            yield found
            yield found

    path = write_rows(tmp_path / "a", "f", [row(), row()])
    result = ingest([path], dataclasses.replace(made_up("f"), read=twice))
    first, second = 16, 16 + len('{"prompt_tokens": 10}\n')
    keys = result.frames["requests"]["request_key"].to_list()
    assert keys == [first, first + 1, second, second + 1]


def test_exact_copy_is_dropped_only_if_it_carries_an_id(tmp_path: Path) -> None:
    rows = [row(), row(), row(request_id="a"), row(request_id="a"), row(request_id="a", turn=2)]
    result = ingest([write_rows(tmp_path / "a", "f", rows)], made_up("f"))
    assert result.totals.requests == 4
    assert result.frames["requests"]["flags"].to_list() == [[], [], [], ["id_conflict"]]
    entry = result.files[0]
    assert (entry.used, entry.ignored_by_reason) == (4, {"exact_copy": 1, "not_a_request": 1})
    assert {note.code for note in result.notes} >= {"exact_copies", "id_conflicts"}


def test_exact_copies_are_found_across_the_files_of_a_source(tmp_path: Path) -> None:
    paths = [
        write_rows(tmp_path / "a", "f", [row(request_id="x")]),
        write_rows(tmp_path / "b", "f", [row(request_id="x"), row(request_id="y")]),
    ]
    result = ingest(paths, made_up("f"))
    assert result.totals.requests == 2
    assert result.files[1].ignored_by_reason["exact_copy"] == 1


def test_copied_file_is_ignored_however_it_is_packed(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a.log", "f", [row(), row()])
    (tmp_path / "b.gz").write_bytes(gzip.compress(path.read_bytes()))
    result = ingest([tmp_path], made_up("f"))
    assert result.totals.requests == 2
    copy = result.files[1]
    assert (copy.used, copy.ignored_by_reason) == (0, {"file_copy": 2, "not_a_request": 1})
    assert copy.notes[0].message == "same content as a.log"


def test_files_on_an_absolute_clock_are_one_source_and_relative_ones_are_not(
    tmp_path: Path,
) -> None:
    paths = [
        write_rows(tmp_path / name, "f", [row(arrived_at_ns=at)])
        for name, at in (("a", 5), ("b", 7))
    ]
    assert [source.files for source in ingest(paths, made_up("f")).sources] == [[0, 1]]
    relative = ingest(paths, made_up("f", clock="relative"))
    assert [source.files for source in relative.sources] == [[0], [1]]
    assert relative.totals.requests == 1
    assert relative.frames["requests"]["arrived_at_ns"].to_list() == [0, 0]


def test_headline_is_the_best_grade_then_the_most_requests(tmp_path: Path) -> None:
    write_rows(tmp_path / "a", "lengths", [row()] * 5)
    write_rows(tmp_path / "b", "cached", [row(cached_tokens=1)] * 2)
    write_rows(tmp_path / "c", "hashed", [row(block_keys=[1])])
    formats = (made_up("lengths"), made_up("cached"), made_up("hashed", block_size=10))
    result = ingest([tmp_path], *formats)
    assert [(part.evidence_grade, part.role) for part in result.sources] == [
        ("L", "beside"),
        ("B", "beside"),
        ("A", "headline"),
    ]
    (tmp_path / "c").unlink()
    assert [part.role for part in ingest([tmp_path], *formats).sources] == ["beside", "headline"]
    assert ingest([tmp_path], *formats).totals.requests == 2


def test_session_is_the_root_of_the_parent_chain(tmp_path: Path) -> None:
    rows = [
        row(request_id="a"),
        row(request_id="b", parent_id="a"),
        row(request_id="c", parent_id="b"),
        row(request_id="x", parent_id="outside"),
        row(request_id="y", parent_id="outside"),
        row(request_id="alone"),
        row(request_id="p", parent_id="q"),
        row(request_id="q", parent_id="p"),
    ]
    result = ingest([write_rows(tmp_path / "a", "f", rows)], made_up("f"))
    sessions = result.frames["requests"]["session_key"].rank("dense").to_list()
    assert sessions[0] == sessions[1] == sessions[2]
    assert sessions[3] == sessions[4]
    assert len(set(sessions)) == 5
    assert "parent_cycles" in {note.code for note in result.notes}


def test_no_session_is_made_up_where_nothing_names_one(tmp_path: Path) -> None:
    result = ingest([write_rows(tmp_path / "a", "f", [row(request_id="a")])], made_up("f"))
    assert result.frames["requests"]["session_key"].null_count() == 1


def test_ids_are_keyed_hashes_and_texts_are_gone(tmp_path: Path) -> None:
    rows = [row(request_id="same", session_id="same", tenant="same", user="same")]
    path = write_rows(tmp_path / "a", "f", rows)
    names = ["request_id_key", "session_key", "tenant_key", "user_key"]
    one = ingest([path], made_up("f"), salt=b"one").frames["requests"].select(names).row(0)
    two = ingest([path], made_up("f"), salt=b"two").frames["requests"].select(names).row(0)
    assert len({*one, *two}) == 8


@pytest.mark.parametrize(
    ("scope", "domains"), [("file", [3, 2]), ("global", [5]), ("session", [1, 2, 1, 1])]
)
def test_scope_decides_what_ids_mean(tmp_path: Path, scope: str, domains: list[int]) -> None:
    one = [row(block_keys=[1], session_id=session) for session in ("s", "t", "t")]
    two = [row(block_keys=[1], session_id="s"), row(block_keys=[1])]
    paths = [write_rows(tmp_path / "a", "f", one), write_rows(tmp_path / "b", "f", two)]
    result = ingest(paths, made_up("f", block_size=10, scope=scope))
    assert [domain.block_refs for domain in result.domains] == domains
    assert [domain.distinct_blocks for domain in result.domains] == [1] * len(domains)
    assert result.totals.block_refs == 5


def test_dense_ids_follow_arrival_then_file_order(tmp_path: Path) -> None:
    rows = [
        row(block_keys=[30], arrived_at_ns=3),
        row(block_keys=[20], arrived_at_ns=2),
        row(block_keys=[21], arrived_at_ns=2),
        row(block_keys=[99]),
        row(block_keys=[10], arrived_at_ns=1),
    ]
    path = write_rows(tmp_path / "a", "f", rows)
    result = ingest([path], made_up("f", block_size=10))
    assert result.frames["keys"]["chained_hash"].to_list() == [10, 20, 21, 30, 99]
    assert result.frames["blocks"]["start_block"].to_list() == [3, 1, 2, 4, 0]


def test_row_whose_blocks_disagree_with_its_length_keeps_no_blocks(tmp_path: Path) -> None:
    rows = [row(block_keys=[1]), row(block_keys=[1, 2]), row(block_keys=[1], prompt_tokens=7)]
    result = ingest([write_rows(tmp_path / "a", "f", rows)], made_up("f", block_size=10))
    assert result.frames["requests"]["flags"].to_list() == [[], ["block_length_mismatch"], []]
    assert result.frames["blocks"]["tail_tokens"].to_list() == [0, 7]
    assert result.totals.block_refs == 2


def test_unknown_is_null_in_totals(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [row(output_tokens=2), row(status="error"), {"status": "error"}]
    totals = ingest([write_rows(tmp_path / "a", "f", rows)], made_up("f")).totals
    assert (totals.prompt_tokens, totals.output_tokens, totals.cached_tokens) == (20, 2, None)
    assert totals.requests_by_status == {"error": 2, "ok": 1}
    assert totals.cached_tiers == {"device": None, "host": None, "disk": None, "remote": None}
    assert (totals.block_refs, totals.distinct_blocks, totals.block_size_tokens) == (None,) * 3


def test_sums_do_not_wrap(tmp_path: Path) -> None:
    rows = [row(prompt_tokens=2**62)] * 3
    result = ingest([write_rows(tmp_path / "a", "f", rows)], made_up("f"))
    assert result.totals.prompt_tokens == 3 * 2**62


def test_samples_and_transfers_are_kept_without_requests(tmp_path: Path) -> None:
    def read(records: Iterable[Record], context: ReadContext) -> Iterator[Row]:
        for record in records:
            context.tally.use()
            ratio = Metric(metric="prefix_hit_ratio", value=0.5, unit="ratio", hit_unit="tokens")
            usage = Metric(metric="kv_usage", value=None, unit="ratio")
            at = record.line * S
            yield SampleRow(
                offset=record.offset,
                line=record.line,
                observed_at_ns=at,
                engine="0",
                metrics=[ratio, usage],
            )
            yield TransferRow(
                offset=record.offset,
                line=record.line,
                request_id="r",
                started_at_ns=at,
                direction="load",
                path=None,
                moved_bytes=5,
                moved_tokens=None,
                duration_ns=None,
                ranks=None,
            )
        context.clock = "monotonic"

    path = write_rows(tmp_path / "a", "f", [row()])
    result = ingest([path], dataclasses.replace(made_up("f"), read=read))
    assert result.frames["samples"]["observed_at_ns"].to_list() == [0, 0, S, S]
    assert (result.totals.samples, result.totals.transfers, result.totals.requests) == (2, 2, 0)
    assert (result.sources[0].evidence_grade, result.sources[0].role) == ("C", "headline")
    assert result.frames["transfers"]["moved_bytes"].to_list() == [5, 5]


def test_nothing_recognised_names_each_file_and_why(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    (tmp_path / "b.log").write_text("")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError) as caught:
        ingest([tmp_path], made_up("f"))
    assert caught.value.code == "KVT-I002"
    assert (caught.value.cause or "").splitlines() == [
        "a.txt: no known format matches its first lines",
        "b.log: the file is empty",
        "pipe: left out: a FIFO; pipe it into a file first",
    ]


def test_no_usable_row_names_the_reasons(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a", "f", [])
    with pytest.raises(InputError) as caught:
        ingest([path], made_up("f"))
    assert caught.value.code == "KVT-I003"
    path.write_text(path.read_text() + "broken\n")
    with pytest.raises(InputError, match="no usable record") as caught:
        ingest([path], made_up("f"))
    assert caught.value.cause == "a: f, all 1 records rejected (invalid_json 1)"


def test_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        ingest([tmp_path], made_up("f"))
    assert caught.value.message == "there is no file to read"


def _with_broken(tmp_path: Path, good: int, broken: int) -> Path:
    path = write_rows(tmp_path / "a", "f", [row()] * good)
    path.write_text(path.read_text() + "broken\n" * broken)
    return path


def test_too_many_rejects_stop_a_big_run_and_name_the_first(tmp_path: Path) -> None:
    path = _with_broken(tmp_path, good=939, broken=60)  # 60 of 1 000 records, the head is one
    with pytest.raises(InputError) as caught:
        ingest([path], made_up("f"))
    assert caught.value.code == "KVT-I004"
    assert caught.value.message == "60 of 1,000 records (6.0%) cannot be used (limit 5.0%)"
    assert str(caught.value.where) == "a:941 (invalid_json)"
    assert "--max-reject-rate 0.06" in (caught.value.hint or "")
    accepted = IngestSettings(max_reject_rate=0.06)
    assert ingest([path], made_up("f"), settings=accepted).totals.rejected == 60


def test_too_many_rejects_in_a_small_run_are_a_note(tmp_path: Path) -> None:
    result = ingest([_with_broken(tmp_path, good=938, broken=60)], made_up("f"))
    assert [note.code for note in result.notes] == ["reject_rate_high"]


def test_unreadable_file_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    write_rows(tmp_path / "a", "f", [row()])
    (tmp_path / "b").write_bytes(b"\x1f\x8bnot gzip at all")
    result = ingest([tmp_path], made_up("f"))
    assert (result.files[1].format, result.files[1].format_reason) == (None, "the file is empty")
    assert result.files[1].notes[0].code == "damaged_archive"


def test_truncated_archive_keeps_its_whole_lines(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a", "f", [row(turn=number) for number in range(200)])
    path.write_bytes(gzip.compress(path.read_bytes())[:-20])
    result = ingest([path], made_up("f"))
    assert result.files[0].notes[0].code == "truncated_archive"
    assert 0 < result.totals.requests <= 200


def test_digest_ignores_salt_names_and_the_split_into_files(tmp_path: Path) -> None:
    rows = [
        row(request_id=f"r{n}", arrived_at_ns=n * S, session_id=f"s{n % 3}", block_keys=[n % 4])
        for n in range(12)
    ]
    whole, split, renamed = (tmp_path / name for name in ("whole", "split", "renamed"))
    for folder in (whole, split, renamed):
        folder.mkdir()
    write_rows(whole / "x", "f", rows)
    write_rows(split / "a", "f", rows[:5])
    write_rows(split / "b", "f", rows[5:])
    write_rows(renamed / "z", "f", rows[:5])
    write_rows(renamed / "y", "f", rows[5:])
    kind = made_up("f", block_size=10, scope="global")
    digests = {ingest([folder], kind).digest for folder in (whole, split, renamed)}
    digests.add(ingest([whole], kind, salt=b"another").digest)
    assert len(digests) == 1
    write_rows(whole / "x", "f", [*rows[:-1], {**rows[-1], "turn": 1}])
    assert ingest([whole], kind).digest not in digests


def test_fingerprint_changes_with_files_and_settings_only(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a", "f", [row()])
    settings = IngestSettings()
    before = fingerprint([path], settings)
    assert ingest([path], made_up("f")).fingerprint == before
    assert fingerprint([path], settings) == before
    assert fingerprint([path], dataclasses.replace(settings, year=2024)) != before
    os.utime(path, ns=(0, 1))
    assert fingerprint([path], settings) != before


def test_a_modification_time_that_is_set_back_hides_no_change(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a", "f", [row()])
    status = path.stat()
    before = fingerprint([path], IngestSettings())
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    time.sleep(0.02)  # one tick of the file system's clock
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert fingerprint([path], IngestSettings()) != before


class _Watch:
    """Progress that adds up what it is told."""

    def __init__(self) -> None:
        self.total: int | None = None
        self.byte_count = self.rejected = 0
        self.summary = ""

    def start(self, stage: str, *, total_bytes: int | None = None) -> None:
        self.total = total_bytes

    def advance(self, *, byte_count: int = 0, rows: int = 0, rejected: int = 0) -> None:
        self.byte_count += byte_count

    def finish(self, summary: str = "") -> None:
        self.summary = summary


def test_progress_reaches_the_announced_bytes(tmp_path: Path) -> None:
    from kvtrace.ingest.pipeline import ingest_paths

    path = write_rows(tmp_path / "a", "f", [row()] * 20_000)
    watch = _Watch()
    kinds = (made_up("f"),)
    ingest_paths([path], settings=IngestSettings(), salt=b"s", progress=watch, formats=kinds)
    assert watch.total == watch.byte_count == path.stat().st_size
    assert watch.summary == "20,000 requests from 1 file"


@pytest.mark.parametrize(
    ("instants", "step"),
    [
        ([], None),
        ([5, 5], None),
        ([0, 4, 10], 2),
        ([n * 3000 + (n % 3 - 1) for n in range(50)], 3000),  # jitter of one, as in Mooncake
        ([n * n * 7 for n in range(20)], 7),
    ],
)
def test_clock_resolution(instants: list[int], step: int | None) -> None:
    assert clock_resolution_ns(pl.Series(instants, dtype=pl.Int64).to_numpy()) == step


def test_file_names_and_reasons_are_json_safe(tmp_path: Path) -> None:
    write_rows(tmp_path / "a", "f", [row()])
    odd: Any = os.fsencode(tmp_path) + b"/\xff\n.log"
    with open(odd, "wb") as file:
        file.write(b"?")
    result = ingest([tmp_path], made_up("f"))
    assert json.loads(json.dumps([entry.path for entry in result.files])) == ["a", "\\xff\\n.log"]
