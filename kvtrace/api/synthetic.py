"""`kvtrace synth`: the samples, a story of a profile, or one like a dataset and how like it is."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kvtrace.api.query_results import to_json
from kvtrace.duckdb_session import Session
from kvtrace.errors import UsageError
from kvtrace.ingest.pipeline import ingest_paths
from kvtrace.ingest.readfile import IngestSettings
from kvtrace.query.catalog import load_catalog
from kvtrace.reuse.continuations import build_continuations
from kvtrace.reuse.facts import build_reuse_of
from kvtrace.reuse.trace import order_requests
from kvtrace.store.dataset import Dataset
from kvtrace.store.lock import unwritable
from kvtrace.synth import (
    Derived,
    Loaded,
    Order,
    derive_profile,
    dump_profile,
    load_profile,
    read_profile,
    sample_order,
    write_samples,
    write_story,
)
from kvtrace.synth.samples import SAMPLE_SEED

PROFILE_FILE: Final = "profile.toml"
DEFAULT_FORMAT: Final = "mooncake"
_CHECKED_REQUESTS: Final = 50_000
"""Requests of the story that are compared with the dataset."""
_CHECK_SALT: Final = bytes(32)
_QUANTILES: Final = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Synthesised:
    """What was written, and what is to be known of it."""

    paths: list[Path]
    notes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The files and the notes, for scripts."""
        document = {
            "schema_version": 1,
            "paths": [str(path) for path in self.paths],
            "notes": list(self.notes),
        }
        return to_json(document)


def synthesise(
    output: Path | str,
    *,
    seed: int | None = None,
    profile: Path | str | None = None,
    like: Dataset | None = None,
    formats: Sequence[str] = (),
    requests: int | None = None,
) -> Synthesised:
    """Write synthetic traces and logs into a folder; the same arguments give the same bytes.

    Without profile, dataset, formats and requests: the sample logs. `like` is a dataset whose own
    statistics become the profile, which is written beside the files.

    Raises:
        UsageError: a profile, format or combination that cannot be used.
        InputError: no profile can be made of the dataset.
        OutputError: the folder cannot be written.
    """
    folder = Path(output)
    if profile is None and like is None and not formats and requests is None:
        return Synthesised(_samples(folder, SAMPLE_SEED if seed is None else seed))
    if profile is not None and like is not None:
        raise UsageError(
            "KVT-U065", "a profile and a dataset are both given", hint="give --profile or --from"
        )
    order = Order(tuple(formats) or (DEFAULT_FORMAT,), requests)
    if like is not None:
        return _like(folder, like, order, SAMPLE_SEED if seed is None else seed)
    if profile is not None:
        loaded = load_profile(read_profile(Path(profile)), seed=seed)
    else:
        loaded = sample_order(SAMPLE_SEED if seed is None else seed)
    return Synthesised(write_story(folder, loaded, order))


def _samples(folder: Path, seed: int) -> list[Path]:
    try:
        return write_samples(folder, seed)
    except OSError as error:
        raise unwritable(folder, error) from error


def _like(folder: Path, dataset: Dataset, order: Order, seed: int) -> Synthesised:
    derived = derive_profile(dataset, seed=seed)
    loaded = replace(load_profile(derived.table), takes_nearest=True)
    compared = _compare(dataset, derived, loaded)
    comments = (
        f"Made from the statistics of {derived.requests} requests by `kvtrace synth --from`.",
        *derived.notes,
        *compared,
    )
    paths = write_story(folder, loaded, order)
    path = folder / PROFILE_FILE
    try:
        path.write_text(dump_profile(derived.table, comments), encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error) from error
    return Synthesised([*paths, path], (*derived.notes, *compared))


# How like the dataset the story is: both are read by the same queries.


def _compare(dataset: Dataset, derived: Derived, loaded: Loaded) -> tuple[str, ...]:
    limit = _CHECKED_REQUESTS if derived.requests > _CHECKED_REQUESTS else None
    with tempfile.TemporaryDirectory(prefix="kvtrace-synth-") as scratch:
        write_story(Path(scratch), loaded, Order((DEFAULT_FORMAT,), limit))
        read = ingest_paths(
            [scratch],
            salt=_CHECK_SALT,
            settings=IngestSettings(block_size_tokens=loaded.profile.block_size_tokens),
        )
    ordered = order_requests(read.frames["requests"], read.frames["blocks"])
    made = {
        "reuse": build_reuse_of(ordered, read.domains),
        "continuations": build_continuations(ordered, read.domains),
    }
    with Session() as story, dataset.session() as source:
        for name, frame in {**read.frames, **made}.items():
            story.create_table(name, frame)
        lines = [_lengths(source, story, "prompt_tokens"), _lengths(source, story, "output_tokens")]
        if derived.has_blocks:
            lines += _reuse(source, story)
    return tuple(line for line in lines if line)


def _lengths(source: Session, story: Session, column: str) -> str:
    shares = ", ".join(map(str, _QUANTILES))
    sql = (
        f"select unnest(quantile_cont({column}, [{shares}])) as value from requests"
        " where is_headline and status = 'ok'"
    )
    pairs = zip(_column(source, sql, "value"), _column(story, sql, "value"), strict=False)
    told = [
        f"p{share * 100:.0f} {made:,.0f} (dataset {real:,.0f})"
        for share, (real, made) in zip(_QUANTILES, pairs, strict=False)
    ]
    return f"{column.replace('_', ' ')}: {', '.join(told)}" if told else ""


def _column(session: Session, sql: str, name: str) -> list[float]:
    values = [row[name] for row in session.rows(sql)]
    return [float(value) for value in values if isinstance(value, int | float)]


def _reuse(source: Session, story: Session) -> list[str]:
    catalog = load_catalog()
    both = []
    for session in (source, story):
        summary = catalog.run(session, "reuse/summary", {}).frame
        both.append(float(summary["reusable_ratio_tokens"][0] or 0.0))
    lines = [f"reuse, unlimited cache: {both[1]:.1%} of prompt tokens (dataset {both[0]:.1%})"]
    real = catalog.run(source, "reuse/capacity_curve", {}).frame
    capacities = real["capacity_blocks"].to_list()
    made = catalog.run(story, "reuse/capacity_curve", {"capacities": capacities}).frame
    gaps = [
        (abs(b - a), capacity)
        for a, b, capacity in zip(
            real["hit_ratio_tokens"], made["hit_ratio_tokens"], capacities, strict=True
        )
    ]
    if gaps:
        gap, capacity = max(gaps)
        lines.append(
            f"capacity curve: at most {gap * 100:.1f} points from the dataset's,"
            f" at {capacity:,} blocks"
        )
    return lines
