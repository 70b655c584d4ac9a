"""Discovery: which files the inputs mean, in which order, and what is left out and why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kvtrace.errors import InputError
from kvtrace.ingest.files.discover import discover, printable


def names(*inputs: Path | str) -> list[str]:
    return [file.name for file in discover(inputs).files]


def skipped(*inputs: Path | str) -> dict[str | None, str]:
    return {note.path: note.code for note in discover(inputs).skipped}


def touch(root: Path, *relative: str) -> None:
    for name in relative:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")


def test_folder_is_read_recursively_in_order_of_names(tmp_path: Path) -> None:
    touch(tmp_path, "b.log", "a/z.log", "a/b/c.log", "a.log")
    assert names(tmp_path) == ["a.log", "a/b/c.log", "a/z.log", "b.log"]
    assert [file.file_id for file in discover([tmp_path]).files] == [0, 1, 2, 3]


def test_order_of_inputs_changes_nothing(tmp_path: Path) -> None:
    touch(tmp_path, "x/b.log", "y/a.log")
    assert names(tmp_path / "x", tmp_path / "y") == names(tmp_path / "y", tmp_path / "x")


def test_same_name_in_two_folders_is_told_apart_by_the_folder(tmp_path: Path) -> None:
    touch(tmp_path, "x/app.log", "y/app.log")
    assert names(tmp_path / "x", tmp_path / "y") == ["x/app.log", "y/app.log"]


def test_folder_named_by_dots_is_told_by_its_real_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path, "x/app.log", "y/z/app.log")
    monkeypatch.chdir(tmp_path / "y" / "z")
    assert names(".", "../../x") == ["x/app.log", "z/app.log"]


def test_hidden_swap_and_document_files_are_left_out_with_a_note(tmp_path: Path) -> None:
    touch(tmp_path, "app.log", ".cache", "app.log.swp", "app.log~", "README.txt", "notes.md")
    assert names(tmp_path) == ["app.log"]
    assert skipped(tmp_path) == {
        ".cache": "skipped_hidden",
        "app.log.swp": "skipped_swap",
        "app.log~": "skipped_swap",
        "README.txt": "skipped_document",
        "notes.md": "skipped_document",
    }


def test_a_named_file_is_taken_whatever_its_name(tmp_path: Path) -> None:
    touch(tmp_path, ".hidden.md")
    assert names(tmp_path / ".hidden.md") == [".hidden.md"]


def test_own_output_is_not_input(tmp_path: Path) -> None:
    touch(tmp_path, "out/audit.json", "out/report.html", "out/dataset/manifest.json")
    touch(tmp_path, "out/dataset/open.sql", "app.log")
    assert names(tmp_path) == ["app.log"]
    assert skipped(tmp_path)["out/dataset"] == "skipped_own_output"
    assert skipped(tmp_path)["out/audit.json"] == "skipped_own_output"


def test_glob_finds_files_and_folders(tmp_path: Path) -> None:
    touch(tmp_path, "a.log", "b.log", "b.txt", "d.log/x.jsonl")
    assert names(str(tmp_path / "*.log")) == ["a.log", "b.log", "x.jsonl"]


def test_a_name_that_exists_is_no_pattern(tmp_path: Path) -> None:
    touch(tmp_path, "a[1].log", "a1.log")
    assert names(tmp_path / "a[1].log") == ["a[1].log"]


def test_pattern_without_match_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        discover([str(tmp_path / "*.log")])
    assert caught.value.code == "KVT-I001"


def test_missing_path_names_close_matches(tmp_path: Path) -> None:
    touch(tmp_path, "conversation.jsonl")
    with pytest.raises(InputError) as caught:
        discover([tmp_path / "conversatoin.jsonl"])
    assert caught.value.code == "KVT-I001"
    assert "conversation.jsonl" in (caught.value.hint or "")


def test_each_inode_is_read_once(tmp_path: Path) -> None:
    touch(tmp_path, "a.log")
    os.link(tmp_path / "a.log", tmp_path / "b.log")
    (tmp_path / "c.log").symlink_to(tmp_path / "a.log")
    assert names(tmp_path, tmp_path / "a.log") == ["a.log"]
    assert skipped(tmp_path) == {"b.log": "skipped_same_file", "c.log": "skipped_same_file"}


def test_symlink_loop_ends(tmp_path: Path) -> None:
    touch(tmp_path, "a/x.log")
    (tmp_path / "a" / "up").symlink_to(tmp_path, target_is_directory=True)
    assert names(tmp_path) == ["a/x.log"]


def test_dangling_link_is_left_out(tmp_path: Path) -> None:
    touch(tmp_path, "a.log")
    (tmp_path / "gone.log").symlink_to(tmp_path / "nowhere")
    assert names(tmp_path) == ["a.log"]
    assert skipped(tmp_path) == {"gone.log": "skipped_unreadable"}


def test_fifo_and_device_are_refused_with_a_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    found = discover([tmp_path, "/dev/null"])
    assert found.files == ()
    assert {note.path: note.message for note in found.skipped} == {
        "pipe": "left out: a FIFO; pipe it into a file first",
        "null": "left out: a character device",
    }


def test_hostile_names_are_made_printable() -> None:
    assert printable("a\x1b[31m\nb.log") == "a\\x1b[31m\\nb.log"
    assert printable(os.fsdecode(b"caf\xe9.log")) == "caf\\xe9.log"


def test_pattern_without_match_says_what_is_there_instead(tmp_path: Path) -> None:
    touch(tmp_path, "logs/a.log", "logs/b.log")
    with pytest.raises(InputError) as caught:
        discover([str(tmp_path / "logs" / "*.jsonl")])
    assert caught.value.hint == f"`{tmp_path / 'logs'}` holds `a.log`, `b.log`"
    with pytest.raises(InputError) as caught:
        discover([str(tmp_path / "lgs" / "*.log")])
    assert caught.value.hint == (
        f"`{tmp_path / 'lgs'}` does not exist; did you mean `{tmp_path / 'logs'}`"
    )
