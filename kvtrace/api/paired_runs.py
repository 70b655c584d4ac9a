"""`compare --paired`: the same requests with a cache off and on, from two datasets or logs."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from kvtrace.api.opened import is_dataset, open_dataset
from kvtrace.api.query_results import QueryTable, to_json
from kvtrace.audit.compare.pairing import Paired, pair_requests
from kvtrace.audit.compare.signs import MedianChange, median_change, sign_test
from kvtrace.config import Setting, Settings, resolve_settings
from kvtrace.errors import InputError, Location
from kvtrace.exec.progress import Progress, SilentProgress
from kvtrace.query.catalog import load_catalog
from kvtrace.report.text.paired import paired_lines
from kvtrace.schema.manifest import DerivedParam
from kvtrace.store.dataset import Dataset
from kvtrace.store.derived import write_derived
from kvtrace.store.lock import SALT_NAME
from kvtrace.units import NS_PER_S

TABLE: Final = "request_pairs"
SUMMARY: Final = "compare/paired_summary"
BUCKETS: Final = "compare/paired_by_prompt_bucket"
_SALT_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class PairedOutcome:
    """What the cache did to TTFT, request by request (measured)."""

    off: str
    on: str
    paired: Paired
    summary_table: QueryTable
    bucket_table: QueryTable
    median: MedianChange
    p_value: float | None
    """Of the sign test, two-sided."""
    notes: tuple[str, ...]

    def to_json(self) -> str:
        """Both tables, the interval of the median, the sign test and what was not paired."""
        return to_json(
            {
                "schema_version": 1,
                "off": self.off,
                "on": self.on,
                "paired_by": self.paired.paired_by,
                "unpaired_off": self.paired.unpaired_off,
                "unpaired_on": self.paired.unpaired_on,
                "notes": list(self.notes),
                "summary": self.summary_table.rows()[0],
                "by_prompt_bucket": self.bucket_table.rows(),
                "median_ttft_change_s": {
                    "value": self.median.value,
                    "low": self.median.low,
                    "high": self.median.high,
                    "resamples": self.median.resamples,
                    "block_pairs": self.median.block,
                },
                "sign_test_p_value": self.p_value,
            }
        )

    def summary(self, width: int = 100) -> list[str]:
        """For people: who is slower, where the change comes from, and by prompt length."""
        return paired_lines(
            self.summary_table.rows()[0],
            self.bucket_table.rows(),
            paired=self.paired,
            median=self.median,
            p_value=self.p_value,
            notes=self.notes,
            width=width,
        )


def compare_paired(
    off: Path | str,
    on: Path | str,
    *,
    output: Path | str | None = None,
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> PairedOutcome:
    """ΔTTFT of the same requests, split into compute saved, move added and queue (measured).

    Each side is a dataset (or the folder or audit.json beside it) or logs. Logs are read into
    `output`/off and `output`/on, else into a folder that is gone afterwards. The pairs stay in the
    dataset of `on` as the table `request_pairs`.

    Raises:
        InputError: a side cannot be read, or no request of the two is the same.
        OutputError: a dataset cannot be written, or another run holds it.
    """
    chosen = settings or resolve_settings()
    watch = progress or SilentProgress()
    with _both(off, on, output, chosen, watch) as (ours, theirs):
        paired = pair_requests(
            off_requests=ours.table("requests"),
            on_requests=theirs.table("requests"),
            off_transfers=ours.table("transfers"),
            on_transfers=theirs.table("transfers"),
        )
        if paired.frame.is_empty():
            raise _nothing_paired(str(off), str(on))
        written = write_derived(theirs, TABLE, paired.frame, _params(paired, ours))
        notes = tuple(_notes(paired, ours, theirs))
        return _outcome((str(off), str(on)), paired, written, chosen.integer("seed") or 0, notes)


def _outcome(
    names: tuple[str, str], paired: Paired, dataset: Dataset, seed: int, notes: tuple[str, ...]
) -> PairedOutcome:
    catalog = load_catalog()
    with dataset.session() as session:
        summary, buckets = (
            QueryTable(name, catalog.run(session, name)) for name in (SUMMARY, BUCKETS)
        )
    changes = paired.frame["ttft_change_ns"].drop_nulls().to_numpy().astype(np.float64)
    row = summary.rows()[0]
    slower, faster = (int(str(row[f"{one}_requests"])) for one in ("slower", "faster"))
    return PairedOutcome(
        off=names[0],
        on=names[1],
        paired=paired,
        summary_table=summary,
        bucket_table=buckets,
        median=median_change(changes / NS_PER_S, seed=seed),
        p_value=sign_test(slower, faster),
        notes=notes,
    )


def _params(paired: Paired, off: Dataset) -> dict[str, DerivedParam]:
    return {
        "off_dataset_digest": off.manifest.digest,
        "paired_by": paired.paired_by,
        "unpaired_off": paired.unpaired_off,
        "unpaired_on": paired.unpaired_on,
    }


def _notes(paired: Paired, off: Dataset, on: Dataset) -> Iterator[str]:
    """What a reader must know of how the requests were paired, and of what no log says."""
    if paired.paired_by == "order":
        why = (
            "; their ids were hashed with other salts: read both with one `--salt` to pair by id"
            if _salt_of(off) != _salt_of(on)
            else "; no request id is in both"
        )
        yield f"paired by order among equal prompt lengths{why}"
    if not paired.are_loads_known:
        yield (
            "the log with the cache on says of no request what was loaded: where a hit may have "
            "been loaded, compute saved and move added are not told apart (unexplained)"
        )


def _salt_of(dataset: Dataset) -> bytes | None:
    path = dataset.directory.parent / SALT_NAME
    return path.read_bytes() if path.is_file() else None


def _nothing_paired(off: str, on: str) -> InputError:
    return InputError(
        "KVT-A020",
        "no request is in both logs",
        where=Location(on),
        cause=f"neither a request id nor a prompt length of `{off}` is found there",
        hint="replay the same requests with the cache off and on, and log both",
    )


@contextmanager
def _both(
    off: Path | str, on: Path | str, output: Path | str | None, settings: Settings, watch: Progress
) -> Iterator[tuple[Dataset, Dataset]]:
    """Both datasets; logs are read with one salt, so that equal request ids stay equal."""
    known = [_known(side) for side in (off, on)]
    salt = next((_salt_of(one) for one in known if one is not None), None)
    if salt is None and settings.text("salt") is None:
        text = secrets.token_hex(_SALT_BYTES)
        settings = settings.replaced({"salt": Setting("salt", text, "one salt for both logs")})
    with _folder(output) as folder:
        made = [
            one or _ingested(side, folder / name, settings, salt, watch)
            for one, side, name in zip(known, (off, on), ("off", "on"), strict=True)
        ]
        yield made[0], made[1]


def _known(side: Path | str) -> Dataset | None:
    """The dataset of a folder, or beside an audit.json; null: the side is logs."""
    folder = Path(side)
    folder = folder.parent if folder.name == "audit.json" else folder
    return open_dataset(folder) if is_dataset(folder) else None


@contextmanager
def _folder(output: Path | str | None) -> Iterator[Path]:
    if output is not None:
        yield Path(output)
        return
    with tempfile.TemporaryDirectory(prefix="kvtrace-paired-") as name:
        yield Path(name)


def _ingested(
    side: Path | str, folder: Path, settings: Settings, salt: bytes | None, watch: Progress
) -> Dataset:
    """Logs as a dataset; with the salt of the other side where that is one already."""
    from kvtrace.api.verbs import ingest

    if salt is not None:
        folder.mkdir(parents=True, exist_ok=True)
        _write_salt(folder / SALT_NAME, salt)
    return ingest(side, output=folder, settings=settings, progress=watch).dataset


def _write_salt(path: Path, salt: bytes) -> None:
    from kvtrace.store.files import write_atomically

    write_atomically(path, salt, mode=0o600)
