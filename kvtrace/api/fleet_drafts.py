"""`kvtrace init`: a fleet file with what the logs say, what a person says, and what is assumed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kvtrace.api.observed import with_observed
from kvtrace.api.opened import AUDIT_FILE, is_dataset, open_dataset, whole_trace, with_earlier
from kvtrace.api.outputs import read_audit, write_output
from kvtrace.api.query_results import to_json
from kvtrace.api.setup import FROM_LOGS, Sourced, choose_deployment, choose_fleet, told_by_logs
from kvtrace.audit import jsonio
from kvtrace.audit.inputs import SettingValue
from kvtrace.audit.record import AuditRecord
from kvtrace.audit.thresholds import BUSY_DAY
from kvtrace.config import Setting, Settings, resolve_settings
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.fleet import Fleet
from kvtrace.cost.fleet.draft import FleetDraft, Said, bytes_text, said_in
from kvtrace.cost.fleet.file import FleetFile, read_fleet_file
from kvtrace.errors import Location, OutputError, UsageError
from kvtrace.exec.progress import Progress
from kvtrace.schema.arrays import RequestTrace
from kvtrace.schema.manifest import SourceEntry
from kvtrace.store.dataset import Dataset
from kvtrace.units import NS_PER_S, format_bytes, format_seconds

Source = str | Path | Sequence[str | Path]
"""Logs, a dataset, or an audit.json; empty: nothing."""
DEFAULT_FILE: Final = "fleet.toml"
_RANKS: Final = (
    ("instances.tp", "tensor_parallel", "tensor parallel size"),
    ("instances.pp", "pipeline_parallel", "pipeline parallel size"),
)


@dataclass(frozen=True, slots=True)
class _Nothing:
    """No log was given."""

    sources: Sequence[SourceEntry] = field(default=())


@dataclass(frozen=True, slots=True)
class _Known:
    """What the answers are guessed from."""

    sources: Sourced
    trace: RequestTrace | None
    span_s: float | None
    settings: Settings
    dataset: Dataset | None = None
    """Null: the source is an audit, or nothing."""
    file: FleetFile | None = None
    """The fleet file that the audit was made with."""
    absent: str = ""
    """Its path, where it is not at hand."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """A fleet file that was written."""

    path: Path
    text: str
    from_logs: int
    stated: int
    unconfirmed: int
    absent: str = ""
    """Fleet file of the audit that is not at hand, so that its answers are not in here."""

    def to_json(self) -> str:
        """The document of `kvtrace init --json`."""
        counts = {"from_logs": self.from_logs, "stated": self.stated}
        return to_json(
            {
                "path": str(self.path),
                **counts,
                "unconfirmed": self.unconfirmed,
                "absent_fleet_file": self.absent or None,
                "text": self.text,
            }
        )

    def summary(self) -> list[str]:
        """What stands in it, and what to do with it."""
        lost = (
            f"the audit was made with `{self.absent}`, which is not at hand: its answers are not "
            "in this file"
        )
        return [
            f"{self.path}: {self.from_logs} answers from the logs, {self.stated} of yours, "
            f"{self.unconfirmed} unconfirmed",
            *([lost] if self.absent else []),
            f"edit it, then: kvtrace analyze … --fleet {self.path}",
        ]


def draft_fleet(
    source: Source = (),
    *,
    settings: Settings | None = None,
    progress: Progress | None = None,
) -> FleetDraft:
    """A draft with what logs, a dataset or an audit.json say; without one, with defaults alone.

    Raises:
        InputError: the source cannot be read.
        UsageError: an LLM or GPU that is not known.
        ModelError: the weights do not fit.
    """
    base = (settings or resolve_settings()).replaced({"fleet": Setting("fleet", None, "default")})
    known = _known(source, base, progress)
    deployment, chosen = choose_deployment(known.settings, known.sources)
    setup = choose_fleet(chosen, deployment, known.trace, known.sources)
    if known.dataset is not None:
        setup = with_observed(setup, known.dataset)
    said = {
        **_ranks(known.sources, deployment, chosen),
        **_count(next(one for one in setup.settings if one.name == "instances")),
        **_host_memory(known.sources, deployment),
        **_below_hbm(setup.fleet),
        **_coverage(known),
        **({} if known.file is None else said_in(known.file)),
    }
    return FleetDraft(setup.fleet, said, known.absent)


def check_free(output: str | Path, *, force: bool) -> Path:
    """The file to write.

    Raises:
        UsageError: KVT-U091, it is there and `force` is not set.
    """
    path = Path(output)
    if path.exists() and not force:
        raise UsageError(
            "KVT-U091",
            "the fleet file is not written over another one",
            where=Location(str(path)),
            hint="`--force` replaces it; or name another file by `-o`",
        )
    return path


def init(
    source: Source = (),
    *,
    output: str | Path = DEFAULT_FILE,
    force: bool = False,
    answers: Mapping[str, str] | None = None,
    settings: Settings | None = None,
) -> Drafted:
    """Write a fleet file; `answers` by the paths of their keys, as `{"pool.nodes": "4"}`.

    Raises:
        UsageError: the file exists, an unknown key, or an answer that cannot be used.
        InputError: the source cannot be read.
        OutputError: the file cannot be written.
    """
    path = check_free(output, force=force)
    draft = draft_fleet(source, settings=settings)
    for key, text in (answers or {}).items():
        draft = answer(draft, key, text)
    return write_draft(draft, path)


def answer(draft: FleetDraft, key: str, text: str) -> FleetDraft:
    """The draft with one answer.

    Raises:
        UsageError: KVT-U092, there is no such key, or it does not take this.
    """
    try:
        return draft.answered(key, text)
    except (KeyError, ValueError) as error:
        cause = "there is no such key" if isinstance(error, KeyError) else str(error)
        raise UsageError(
            "KVT-U092",
            f"`{key} = {text}` cannot be used",
            cause=cause,
            hint="docs/settings.md lists the keys of a fleet file",
        ) from error


def write_draft(draft: FleetDraft, path: Path) -> Drafted:
    """The draft as a file, whole or not at all.

    Raises:
        OutputError: the folder cannot be written.
    """
    text = draft.text()
    write_output(path, text.encode())
    return Drafted(
        path=path,
        text=text,
        from_logs=draft.count("logs"),
        stated=draft.count("stated"),
        unconfirmed=draft.count("unconfirmed"),
        absent=draft.absent,
    )


def _known(source: Source, settings: Settings, progress: Progress | None) -> _Known:
    paths = [Path(one) for one in ([source] if isinstance(source, str | Path) else source)]
    if not paths:
        return _Known(_Nothing(), None, None, settings)
    record = _audit(paths[0]) if len(paths) == 1 else None
    if record is not None:
        file, absent = _fleet_file(record)
        audited = _as_audited(settings, record)
        if file is not None:
            audited = audited.replaced({"fleet": Setting("fleet", str(file.path), AUDIT_FILE)})
        return _Known(record.data, None, record.data.span_s, audited, file=file, absent=absent)
    if len(paths) == 1 and is_dataset(paths[0]):
        dataset = open_dataset(paths[0])
    else:
        from kvtrace.api.verbs import ingest

        dataset = ingest(paths, settings=settings, progress=progress).dataset
    trace = whole_trace(dataset)
    return _Known(dataset.manifest, trace, _span_s(trace), settings, dataset)


def _as_audited(settings: Settings, record: AuditRecord) -> Settings:
    """What the audit was told, and the number of instances that it worked with."""
    merged = with_earlier(settings, record)
    sized = next((one.value for one in record.assumptions if one.id == "instances"), None)
    if not merged["instances"].is_default or not isinstance(sized, int):
        return merged
    return merged.replaced({"instances": Setting("instances", sized, "default")})


def _fleet_file(record: AuditRecord) -> tuple[FleetFile | None, str]:
    """The fleet file of the audit; its path alone, where it is not at hand."""
    stated = next((one.value for one in record.assumptions if one.id == "fleet"), None)
    if not isinstance(stated, str):
        return None, ""
    return (read_fleet_file(stated), "") if Path(stated).is_file() else (None, stated)


def _audit(path: Path) -> AuditRecord | None:
    """The record, where the source is one."""
    if path.suffix != ".json" or not path.is_file():
        return None
    try:
        return jsonio.load(read_audit(path), path=str(path))
    except OutputError:
        return None


def _span_s(trace: RequestTrace | None) -> float | None:
    if trace is None or not trace.has_clock or not trace.requests:
        return None
    return float(trace.arrived_at_ns[-1] - trace.arrived_at_ns[0]) / NS_PER_S


def _ranks(sources: Sourced, deployment: Deployment, chosen: Settings) -> dict[str, Said]:
    """What the logs say of the layout, where the deployment is as they say."""
    told = told_by_logs(sources)
    ranks = {"instances.tp": deployment.tp, "instances.pp": deployment.pp}
    found = {
        path: Said(str(told[fact]), "logs", f"{words} {told[fact]}")
        for path, fact, words in _RANKS
        if told.get(fact) == ranks[path]
    }
    tp = chosen["tp"]
    if tp.origin != FROM_LOGS:
        found["instances.tp"] = Said(
            str(deployment.tp), "unconfirmed" if tp.is_default else "stated"
        )
    return found


def _count(instances: SettingValue) -> dict[str, Said]:
    text = str(instances.value)
    if instances.origin == FROM_LOGS:
        return {"instances.count": Said(text, "logs", f"{text} engines print")}
    if not instances.is_confirmed:
        return {}
    return {"instances.count": Said(text, "stated")}


def _host_memory(sources: Sourced, deployment: Deployment) -> dict[str, Said]:
    """Host memory that an engine already keeps KV in."""
    of_rank = told_by_logs(sources).get("hicache_host_bytes_per_rank")
    if not isinstance(of_rank, int | float) or of_rank <= 0:
        return {}
    whole = of_rank * deployment.kv_ranks
    why = f"HiCache holds {format_bytes(of_rank)} of host memory a rank"
    return {"instances.dram_free": Said(bytes_text(whole), "logs", why)}


def _below_hbm(fleet: Fleet) -> dict[str, Said]:
    """Where the running system keeps KV, and how much of it in host DRAM, where logs say it."""
    below, used = fleet.below_hbm, fleet.dram_used_bytes_per_instance
    found = {}
    if below.kind == "given":
        why = below.source.removeprefix("logs: ")
        found["instances.below_hbm"] = Said(f'"{below.value}"', "logs", why)
    if used is not None:
        why = used.source.removeprefix("logs: ")
        found["instances.dram_used"] = Said(bytes_text(used.value), "logs", why)
    return found


def _coverage(known: _Known) -> dict[str, Said]:
    """A log of a day shows its own busiest hour."""
    if known.span_s is None or known.span_s < BUSY_DAY.value:
        return {}
    why = f"they cover {format_seconds(known.span_s)}, a day or more"
    return {"load.peak_factor": Said("1.0", "logs", why)}
