"""Files by a mapping: whether it fits a file, and the format that it makes for that file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvtrace.errors import Location, UsageError
from kvtrace.ingest.contract import Format
from kvtrace.ingest.mapping.file import MappedFile
from kvtrace.ingest.mapping.head import Fit, fit, look_at
from kvtrace.ingest.mapping.names import is_name
from kvtrace.ingest.mapping.spec import Mapping, SourceSpec
from kvtrace.ingest.sniff import Recognition
from kvtrace.units import MIB

_MAX_DOCUMENT_BYTES: Final = 256 * MIB
_MAX_NAMED: Final = 10
_FITS_FROM: Final = 0.5
"""Share of its fields that a file must have before a mapping without `match` is taken for it."""


def recognise_mapped(mapping: Mapping, data: bytes, name: str) -> Recognition:
    """The format that the mapping makes for a file, or the reason why it does not fit.

    Raises:
        UsageError: the mapping names the file, or fits it, and contradicts what is in it.
    """
    reasons = []
    for source in mapping.sources:
        if not source.matches(name):
            reasons.append(f'its name does not match "{source.match}"')
            continue
        head = look_at(data, name, source)
        if head is None:
            reasons.append("it does not begin with JSON objects or CSV rows")
            continue
        found = fit(source, head)
        share = 1 - len(found.missing) / len(found.paths)
        if source.match is None and share < _FITS_FROM:
            reasons.append(_misfit(found))
            continue
        if head.header:
            _check_columns(mapping, found, name)
        return Recognition(_format(mapping, found, name), head.framing, 1.0, _why(mapping, found))
    why = "; ".join(dict.fromkeys(reasons))
    return Recognition(None, "lines", 0.0, f"the mapping does not fit: {why}")


def unused_mapping(mapping: Mapping, misfits: Sequence[tuple[str, str]]) -> UsageError:
    """The error of a mapping that fits none of the files; `misfits` are their names and why."""
    named = [f"{name}: {why}" for name, why in misfits[:_MAX_NAMED]]
    more = len(misfits) - _MAX_NAMED
    return UsageError(
        "KVT-U036",
        "the mapping fits none of the files",
        where=Location(mapping.path),
        cause="\n".join([*named, *([f"and {more} more"] if more > 0 else [])]),
        hint=f"`kvtrace sniff {misfits[0][0] if misfits else 'FILE'} --suggest-mapping` shows what"
        " its fields are called",
    )


def _why(mapping: Mapping, found: Fit) -> str:
    had = len(found.paths) - len(found.missing)
    how = f'its name matches "{found.source.match}"' if found.source.match else "it has them"
    return f"{Path(mapping.path).name}: {had} of {len(found.paths)} fields at its start ({how})"


def _misfit(found: Fit) -> str:
    named = ", ".join(f"`{one}`{found.head.meant(one)}" for one in found.missing[:4])
    return f"no record at its start has {named}"


def _check_columns(mapping: Mapping, found: Fit, name: str) -> None:
    if not found.missing:
        return
    columns = ", ".join(f"`{one}`{found.head.meant(one)}" for one in found.missing)
    known = ", ".join(one for one in found.head.header if is_name(one))
    raise UsageError(
        "KVT-U035",
        f"{name} has no column {columns}",
        where=Location(mapping.path),
        cause=f"its columns: {known}",
        hint="name the column as the file does, or take the line out;"
        f" `kvtrace sniff {name} --suggest-mapping` writes a mapping for it",
    )


def _format(mapping: Mapping, found: Fit, name: str) -> Format:
    source = found.source
    reader = MappedFile(mapping, found, name)
    reader.check()
    return Format(
        name=mapping.format_name(source),
        title=f"Records by the mapping {Path(mapping.path).name}",
        framing=found.head.framing,
        best_grade="A",
        supplies=tuple(sorted({*source.texts, *source.counts})),
        missing=_open_questions(source),
        versions="as the mapping says",
        sniff=lambda head: None,
        read=reader.read,
        is_benchmark=source.is_benchmark,
        max_record_bytes=None if source.records is None else _MAX_DOCUMENT_BYTES,
    )


def _open_questions(source: SourceSpec) -> dict[str, str]:
    """What the mapping leaves open → the line that would map it."""
    has_blocks = source.block_hashes or source.token_ids or source.prompt
    has_session = {"session_id", "parent_id"} & set(source.texts)
    checks = (
        ("arrivals", source.time, '`[time] field = "…"`'),
        ("prompt_tokens", source.usage or source.counts.get("prompt_tokens"),
         "`fields.prompt_tokens`, or `fields.usage` for a usage object"),
        ("output_tokens", source.usage or source.counts.get("output_tokens"),
         "`fields.output_tokens`"),
        ("cached_tokens", source.usage or source.counts.get("cached_tokens"),
         "`fields.cached_tokens`; vLLM writes it with --enable-prompt-tokens-details, SGLang with"
         " --enable-cache-report"),
        ("reuse", has_blocks, "`fields.block_hashes`, `fields.token_ids` or `fields.prompt`"),
        ("sessions", has_session, "`fields.session`"),
        ("ttft", source.durations.get("ttft") or source.first_token_at,
         "`fields.ttft` or `fields.first_token_at`"),
        ("e2e", source.durations.get("e2e") or source.finished_at,
         "`fields.e2e` or `fields.finished_at`"),
    )  # fmt: skip
    return {name: f"in the mapping: {line}" for name, spec, line in checks if not spec}
