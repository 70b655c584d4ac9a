"""Writes a story in the formats that are asked for."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvtrace.errors import Location, OutputError, UsageError
from kvtrace.store.packed import write_lines
from kvtrace.synth.formats import FORMATS, WRITERS, Scene, Writer
from kvtrace.synth.formats.unwritten import UNWRITTEN
from kvtrace.synth.profile import Profile, sample_profile
from kvtrace.synth.profilefile import Loaded
from kvtrace.synth.reuse import with_reuse
from kvtrace.synth.story import Story, StoryEngine

ALL = "all"


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be written."""

    formats: tuple[str, ...]
    """Names of the registry, or `all`."""
    requests: int | None = None
    """Exactly so many requests, with workloads that go on for ever; None: as the profile says."""


def sample_order(seed: int) -> Loaded:
    """The service of the sample traces."""
    return Loaded(sample_profile(seed), StoryEngine(), None)


def write_story(folder: Path, loaded: Loaded, order: Order) -> list[Path]:
    """The paths of the files, which all tell the same story.

    Raises:
        UsageError: KVT-U062 the reuse cannot be reached; KVT-U063 a format has other blocks;
            KVT-U064 no such format.
        OutputError: KVT-O011, a file cannot be written.
    """
    profile = loaded.profile
    writers = chosen_writers(order.formats, profile, loaded.engine)
    if loaded.reuse is not None:
        profile = with_reuse(
            profile, loaded.reuse, order.requests, takes_nearest=loaded.takes_nearest
        )
    scene = Scene(Story(profile, loaded.engine, order.requests))
    paths = []
    for writer in writers:
        path = folder / writer.file
        try:
            write_lines(path, writer.lines(scene))
        except OSError as error:
            raise OutputError(
                "KVT-O011",
                "a synthetic file cannot be written",
                where=Location(path=str(path)),
                cause=error.strerror,
                hint="choose a folder that can be written: kvtrace synth -o DIR",
            ) from error
        paths.append(path)
    return paths


def chosen_writers(
    names: Sequence[str], profile: Profile, engine: StoryEngine
) -> tuple[Writer, ...]:
    """The writers of these formats; of all that the block size allows where `all` is asked."""
    for name in names:
        if name != ALL and name not in FORMATS:
            raise _cannot_be_written(name)
    if ALL in names:
        return tuple(one for one in WRITERS if _fits(one, profile, engine))
    wanted = tuple(one for one in WRITERS if one.format in names)
    for one in wanted:
        if not _fits(one, profile, engine):
            multiple = (
                f"parts of a chunk of {engine.pool_chunk_tokens} tokens"
                if one.by_chunk
                else f"multiples of {one.blocks_of} tokens"
            )
            raise UsageError(
                "KVT-U063",
                f"`{one.format}` cannot be written with {profile.block_size_tokens}-token blocks",
                cause=f"its blocks are {multiple}",
                hint="set `block_size_tokens = 64` in the profile",
            )
    return wanted


def _cannot_be_written(name: str) -> UsageError:
    """Why not, the formats that are close to it, and where all of them stand."""
    close = difflib.get_close_matches(name, FORMATS, n=3, cutoff=0.4)
    instead = f"--format {'|'.join(close)}; " if close else ""
    return UsageError(
        "KVT-U064",
        f"`{name}` cannot be written",
        cause=UNWRITTEN.get(name, "it is no format of `kvtrace formats`"),
        hint=f"{instead}all that can be written: kvtrace synth --help",
    )


def _fits(writer: Writer, profile: Profile, engine: StoryEngine) -> bool:
    size = profile.block_size_tokens
    fits_chunk = not writer.by_chunk or engine.pool_chunk_tokens % size == 0
    return size % writer.blocks_of == 0 and fits_chunk
