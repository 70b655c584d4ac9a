"""A dataset that is there: where it lies, its requests, and what an audit of it was told."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvtrace.api.setup import FROM_LOGS, check_names, main_domain
from kvtrace.audit import jsonio
from kvtrace.audit.record import AuditRecord
from kvtrace.config import Setting, Settings
from kvtrace.errors import InputError, OutputError, UsageError
from kvtrace.exec.progress import Progress
from kvtrace.reuse.trace import build_trace
from kvtrace.schema.arrays import RequestTrace
from kvtrace.schema.manifest import CacheDomain
from kvtrace.store.dataset import MANIFEST_NAME, Dataset

DATASET_FOLDER: Final = "dataset"
AUDIT_FILE: Final = "audit.json"
COMPRESSED_SUFFIXES: Final = (".gz", ".zst", ".bz2", ".xz")
SERVING_SETTINGS: Final = ("llm", "hardware", "tp", "instances", "weight_dtype", "kv_dtype")
"""Settings that say what serves the traffic."""


def is_dataset(path: Path | str) -> bool:
    """Whether a dataset is there: in an output folder, or the folder itself."""
    folder = Path(path)
    return any((one / MANIFEST_NAME).is_file() for one in (folder / DATASET_FOLDER, folder))


def open_dataset(path: Path | str) -> Dataset:
    """The dataset of an output folder, or the dataset folder itself.

    Raises:
        InputError: there is none, it is damaged, or a newer kvtrace wrote it.
    """
    folder = Path(path)
    inner = folder / DATASET_FOLDER
    try:
        return Dataset.open(inner if inner.is_dir() else folder)
    except OutputError as error:
        raise InputError(
            error.code, error.message, where=error.where, cause=error.cause, hint=error.hint
        ) from error


def open_or_read(
    path: Path | str, output: Path | str | None, settings: Settings, watch: Progress
) -> Dataset:
    """The dataset of an output folder; of logs, that which is made of them in `output`.

    Raises:
        InputError: there is none, or nothing usable.
        OutputError: the output cannot be written or another run holds it.
    """
    given = Path(path)
    if not given.exists() or is_dataset(given) or (given / DATASET_FOLDER).exists():
        return open_dataset(given)
    # Readers of logs take longer to load than all else that a replay of a dataset needs.
    from kvtrace.api.stages import claimed, ingest_into

    folder = output_folder([given], output)
    with claimed(folder) as lock:
        return ingest_into([given], folder, settings, watch, lock).dataset


def output_folder(inputs: Sequence[str | Path], output: Path | str | None) -> Path:
    """Where results go: as stated, else `reports/<name of the first input>`."""
    if output is not None:
        return Path(output)
    first = Path(inputs[0])
    name = first.resolve().name if first.name in {"", ".", ".."} else first.name
    if not first.is_dir():
        for suffix in COMPRESSED_SUFFIXES:
            name = name.removesuffix(suffix)
        name = Path(name).stem
    return Path("reports") / ("".join("_" if c in "*?[]" else c for c in name) or "kvtrace")


def whole_trace(dataset: Dataset) -> RequestTrace | None:
    """The headline's requests; of several cache domains the largest."""
    manifest = dataset.manifest
    chosen = main_domain(manifest)
    headline = next((one for one in manifest.sources if one.role == "headline"), None)
    if headline is None or headline.requests == 0:
        return None
    domain = next((one for one in manifest.domains if one.cache_domain == chosen), None)
    if domain is None:
        domain = CacheDomain(
            cache_domain=-1,
            source_id=headline.source_id,
            scope="file",
            block_size_tokens=1,
            block_size_reason="the source has no blocks",
            partial_tail="none",
            ids="chained",
            block_refs=0,
            distinct_blocks=0,
        )
    trace = build_trace(dataset.table("requests"), dataset.table("blocks"), domain)
    return trace if trace.requests else None


def read_earlier(dataset: Dataset) -> AuditRecord | None:
    """The audit beside a dataset, if it was made of exactly this dataset."""
    path = dataset.directory.parent / AUDIT_FILE
    try:
        record = jsonio.load(path.read_bytes(), path=str(path))
    except (OSError, OutputError):
        return None
    return record if record.data.dataset_digest == dataset.manifest.digest else None


def with_earlier(settings: Settings, earlier: AuditRecord | None) -> Settings:
    """Settings that nobody states now, as somebody stated them for the audit.

    Raises:
        UsageError: the audit's LLM or hardware came from a file, which it does not hold.
    """
    if earlier is None:
        return settings
    stated = {
        one.id: Setting(one.id, one.value, f"{AUDIT_FILE}: {one.origin}")
        for one in earlier.assumptions
        if one.id in SERVING_SETTINGS and one.is_confirmed and one.origin != FROM_LOGS
    }
    taken = {name: setting for name, setting in stated.items() if settings[name].is_default}
    merged = settings.replaced(taken)
    try:
        check_names(merged)
    except UsageError as error:
        files = [name for name in ("llm", "hardware") if name in taken]
        if not files:
            raise
        flags = " ".join(f"--{name} FILE" for name in files)
        raise UsageError(
            "KVT-U022",
            "the audit took its LLM or hardware from a file that is not at hand here",
            cause=error.message,
            hint=f"state it again: `{flags}`",
        ) from error
    return merged
