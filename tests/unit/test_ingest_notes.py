"""Notes of a run: one a code, with counts and names; unrecognised files and shares left out."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from kvtrace.ingest.notes import merged
from kvtrace.schema.manifest import Note
from tests.unit.ingest_formats import ingest, made_up, write_rows


def note(path: str | None, message: str = "odd", code: str = "c") -> Note:
    return Note(code=code, message=message, path=path)


def test_equal_notes_become_one_with_count_and_names() -> None:
    (one,) = merged([note(name) for name in ("a", "b", "c", "d")])
    assert one.message == "odd (4 files: a, b, c …)"
    assert one.path is None


def test_unequal_notes_of_a_code_keep_the_first_and_name_the_others() -> None:
    (one,) = merged([note("a", "3 rows"), note("b", "7 rows")])
    assert one.message == "a: 3 rows (and 1 more file: b in their own words)"


def test_a_single_note_stays_as_it_is_and_codes_keep_their_order() -> None:
    notes = [note("a"), note("b", code="d"), note("c")]
    assert [(one.code, one.path) for one in merged(notes)] == [("c", None), ("d", "b")]


def test_one_warning_makes_the_merged_note_a_warning() -> None:
    warning = Note(code="c", message="odd", path="b", severity="warning")
    assert [one.severity for one in merged([note("a"), warning])] == ["warning"]


def test_unrecognised_files_are_counted_and_say_why_in_their_entry(tmp_path: Path) -> None:
    write_rows(tmp_path / "a", "f", [{"prompt_tokens": 1}])
    (tmp_path / "b").write_text("hello\n")
    (tmp_path / "c").write_bytes(b"PK\x03\x04")
    result = ingest([tmp_path], made_up("f"))
    (of_run,) = [one for one in result.notes if one.code == "not_recognised"]
    assert of_run.message == "2 of 3 files were not recognised: b, c"
    (of_file,) = result.files[2].notes
    assert (of_file.code, of_file.path) == ("not_recognised", "c")
    assert of_file.message.startswith("a zip archive; unpack it first")


def test_share_that_stands_beside_is_a_warning_with_its_numbers(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"prompt_tokens": 1}] * 3
    write_rows(tmp_path / "big", "f", rows)
    write_rows(tmp_path / "small", "f", rows[:1])
    result = ingest([tmp_path], made_up("f", clock="relative"))
    (beside,) = [one for one in result.notes if one.code == "sources_beside"]
    assert beside.severity == "warning"
    assert beside.message.startswith("1 of 4 requests (25%) stand beside the totals")
    assert beside.message.endswith("small")


def test_implausible_lengths_are_kept_flagged_and_named_by_line(tmp_path: Path) -> None:
    long: dict[str, object] = {"prompt_tokens": 9, "output_tokens": 16_000_001}
    rows: list[dict[str, object]] = [{"prompt_tokens": 16_000_000}, long]
    result = ingest([write_rows(tmp_path / "a", "f", rows)], made_up("f"))
    assert result.frames["requests"]["flags"].to_list() == [[], ["implausible_length"]]
    assert result.totals.output_tokens == 16_000_001
    (one,) = [one for one in result.notes if one.code == "implausible_length"]
    assert (one.severity, one.path) == ("warning", "a")
    assert one.message.startswith("1 requests have more than 16,000,000 prompt or output tokens")
    assert "(line 3)" in one.message


def test_what_is_kept_of_a_file_does_not_depend_on_when_it_was_written(tmp_path: Path) -> None:
    path = write_rows(tmp_path / "a", "f", [{"prompt_tokens": 1}])
    encoded = []
    for at_s in (1_700_000_000, 1_800_000_000):
        os.utime(path, (at_s, at_s))
        result = ingest([path], made_up("f"))
        encoded.append(msgspec.json.encode([result.files, result.sources, result.totals]))
    assert encoded[0] == encoded[1]
