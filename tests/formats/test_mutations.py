"""Every fixture of every format, hurt in many ways: no exception, and no record without outcome."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kvtrace.exec.progress import SilentProgress
from kvtrace.ingest.files.discover import discover
from kvtrace.ingest.hashing import KeyedHasher
from kvtrace.ingest.readfile import FileReader, IngestSettings, check_conservation
from kvtrace.ingest.registry import all_formats
from kvtrace.ingest.sniff import HEAD_BYTES, build_head, recognise
from kvtrace.ingest.textlog.formats import vote
from tests.formats.reading import DATA, decoded

FIXTURES = sorted(path for path in DATA.rglob("*") if path.is_file())
_LARGEST = 200_000
_ROUNDS = 3
_ODD = (b"NaN", b"-1", b"1e999", b"null", b"99999999999999999999999", b'"', b"{", b"\x00", b"\xff")


def _cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def _splice(data: bytes, rng: random.Random) -> bytes:
    """A piece taken out of the middle, as a terminal's scroll-back does."""
    start = rng.randrange(len(data))
    return data[:start] + data[start + rng.randrange(1, 80) :]


def _flip(data: bytes, rng: random.Random) -> bytes:
    hurt = bytearray(data)
    for _ in range(1 + len(hurt) // 200):
        hurt[rng.randrange(len(hurt))] = rng.randrange(256)
    return bytes(hurt)


def _insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + rng.choice(_ODD) + data[at:]


def _numbers(data: bytes, rng: random.Random) -> bytes:
    """Digits exchanged for things that are no counts."""
    parts = data.split(b": ")
    for _ in range(1 + len(parts) // 10):
        at = rng.randrange(len(parts))
        parts[at] = rng.choice(_ODD) + parts[at].lstrip(b"0123456789")
    return b": ".join(parts)


def _shuffle(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)


def _interleave(data: bytes, rng: random.Random) -> bytes:
    """Two writers on one pipe: lines cut by others."""
    lines = data.split(b"\n")
    at, other = rng.randrange(len(lines)), rng.choice(lines)
    cut = rng.randrange(len(lines[at]) + 1)
    lines[at] = lines[at][:cut] + other + b"\n" + lines[at][cut:]
    return b"\n".join(lines)


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _cut,
    _splice,
    _flip,
    _insert,
    _numbers,
    _shuffle,
    _interleave,
)


def test_there_are_fixtures_of_every_format() -> None:
    covered: set[str] = set()
    for path in FIXTURES:
        head = decoded(path)[:HEAD_BYTES]
        formats = [entry for entry in all_formats() if entry.name not in covered]
        found = recognise(head, "sample", formats=all_formats(), allow_inert_pickle=True).format
        covered |= {found.name} if found is not None else set()
        logs = [entry for entry in formats if entry.dialect is not None]
        covered |= {entry.name for _guess, entry in vote(build_head(head, "sample"), logs)}
    # the fixtures of the trace formats are written in their tests
    assert {entry.name for entry in all_formats()} - covered <= {"mooncake"}


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: str(path.relative_to(DATA)))
def test_hurt_files_are_read_without_a_traceback_and_counted(path: Path, tmp_path: Path) -> None:
    data = decoded(path)[:_LARGEST]
    if not data:
        pytest.skip("an empty fixture")
    rng = random.Random(str(path.relative_to(DATA)))
    for number in range(_ROUNDS):
        for mutate in MUTATIONS:
            (tmp_path / f"{number}-{mutate.__name__}{path.suffix}").write_bytes(mutate(data, rng))
    reader = FileReader(
        IngestSettings(allow_inert_pickle=True),
        KeyedHasher(b"salt"),
        SilentProgress(),
        all_formats(),
    )
    for file in discover([tmp_path]).files:
        for part in reader.read(file):
            check_conservation(part.entry)
