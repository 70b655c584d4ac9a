"""The verbs as typed functions; the command line can do nothing that is not here."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Unpack

from kvtrace.api.opened import AUDIT_FILE, output_folder
from kvtrace.api.opened import open_dataset as open_dataset
from kvtrace.api.outputs import write_output
from kvtrace.api.results import (
    Audit,
    FormatListing,
    IngestOutcome,
    Sniffed,
)
from kvtrace.api.setup import check_names
from kvtrace.api.stages import Inputs, audit_input, claimed, ingest_into
from kvtrace.api.stated import Stated, settings_with
from kvtrace.api.synthetic import Synthesised
from kvtrace.api.synthetic import synthesise as make_synthetic
from kvtrace.audit import jsonio
from kvtrace.audit.build import build_audit
from kvtrace.config import Settings
from kvtrace.errors import Location, UsageError
from kvtrace.exec.progress import Progress, Told, watched
from kvtrace.export import Exported, export_trace
from kvtrace.ingest.inspect import inspect_paths
from kvtrace.ingest.mapping import load_mapping, offer_mapping
from kvtrace.ingest.readfile import IngestSettings
from kvtrace.ingest.registry import all_formats
from kvtrace.report.html import render_bilingual
from kvtrace.report.texts import Lang
from kvtrace.store.packed import Sink

REPORT_FILE: Final = "report.html"


def ingest(
    inputs: Inputs | str | Path,
    *,
    output: Path | str | None = None,
    settings: Settings | None = None,
    progress: Progress | Told | None = None,
    **stated: Unpack[Stated],
) -> IngestOutcome:
    """Logs as a dataset in `output`/dataset; an unchanged input reuses what is there.

    Settings may be stated by name, over `settings` or over environment and files.

    Raises:
        InputError: nothing usable, or too much rejected.
        OutputError: the output cannot be written or another run holds it.
    """
    paths = each_path(inputs)
    folder = output_folder(paths, output)
    with claimed(folder) as lock:
        return ingest_into(
            paths,
            folder,
            settings_with(settings, stated),
            watched(progress),
            lock,
        )


def analyze(
    inputs: Inputs | str | Path,
    *,
    output: Path | str | None = None,
    settings: Settings | None = None,
    workers: int | None = None,
    progress: Progress | Told | None = None,
    **stated: Unpack[Stated],
) -> Audit:
    """Logs as a verdict: writes report.html, audit.json and dataset/ into `output`.

    Settings may be stated by name, `analyze("logs/", llm="Llama-3.1-70B")`, over `settings` or over
    environment and files. Nothing is printed; `progress` may be a function of (stage, share done).
    `workers` processes replay; None: as many as are worth their start. The audit is the same.

    Raises:
        UsageError: an unknown name or setting.
        InputError: nothing usable, or too much rejected.
        ModelError: a query or model failed.
        OutputError: the output cannot be written or another run holds it.
    """
    chosen = settings_with(settings, stated)
    check_names(chosen)
    watch = watched(progress)
    paths = each_path(inputs)
    folder = output_folder(paths, output)
    with claimed(folder) as lock:
        outcome = ingest_into(paths, folder, chosen, watch, lock)
        record = build_audit(
            audit_input(outcome.dataset, paths, chosen, watch, lock, workers=workers)
        )
        audit = Audit(record, folder, outcome.is_reused)
        watch.start("report")
        lang: Lang = "zh" if chosen.text("lang") == "zh" else "en"
        write_output(folder / AUDIT_FILE, jsonio.dump(record))
        write_output(folder / REPORT_FILE, render_bilingual(record, lang=lang).encode())
        watch.finish("report.html and audit.json written")
    return audit


def describe_formats(name: str | None = None) -> FormatListing:
    """All formats that can be read, or one in detail.

    Raises:
        UsageError: no such format; close matches are named.
    """
    formats = all_formats()
    if name is None:
        return FormatListing(formats, is_detailed=False)
    found = tuple(one for one in formats if one.name == name)
    if not found:
        known = [one.name for one in formats]
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known
        hint = f"one of {', '.join(f'`{one}`' for one in close)}; `kvtrace formats` lists all"
        raise UsageError("KVT-U012", f"there is no format `{name}`", hint=hint)
    return FormatListing(found, is_detailed=True)


def sniff(inputs: Inputs | str | Path, *, mapping: Path | str | None = None) -> Sniffed:
    """What each file is, by its start, and which flag would make it say more.

    Raises:
        InputError: KVT-I001, an input does not exist.
        UsageError: the mapping cannot be used, or contradicts a file that it names.
    """
    read_by = None if mapping is None else load_mapping(mapping)
    paths = each_path(inputs)
    found = tuple(inspect_paths(paths, settings=IngestSettings(mapping=read_by)))
    flags = () if mapping is None else ("--mapping", str(mapping))
    return Sniffed(found, (*map(str, paths), *flags))


def suggest_mapping(inputs: Inputs | str | Path, *, output: Path | str | None = None) -> str:
    """A first mapping, as TOML, for JSON and CSV files that no format knows; written if asked.

    Raises:
        InputError: KVT-I001, an input does not exist.
        UsageError: nothing can be mapped, or the output exists.
        OutputError: the output cannot be written.
    """
    target = None if output is None else Path(output)
    if target is not None and target.exists():
        raise UsageError(
            "KVT-U023",
            "the mapping is not written over another file",
            where=Location(str(target)),
            hint=f"name another file, as `-o {target.stem}-new.toml`",
        )
    text = offer_mapping(each_path(inputs), all_formats())
    if target is not None:
        write_output(target, text.encode())
    return text


def export(dataset: Path | str, *, to: str, output: Path | str | Sink) -> Exported:
    """A dataset as an anonymised trace for another tool, in a file or a stream of bytes.

    Raises:
        UsageError: no such format.
        InputError: the dataset does not know what the format needs.
        OutputError: the dataset cannot be read, or the file not be written.
    """
    target = Path(output) if isinstance(output, str) else output
    return export_trace(open_dataset(dataset), to, target)


def synthesise(
    output: Path | str,
    *,
    seed: int | None = None,
    profile: Path | str | None = None,
    like: Path | str | None = None,
    formats: Sequence[str] = (),
    requests: int | None = None,
) -> Synthesised:
    """Write synthetic traces and logs: the samples, a profile's story, or one like a dataset's.

    `like` is a dataset whose statistics become the profile. The same arguments give the same bytes.

    Raises:
        UsageError: a profile, format or combination that cannot be used.
        InputError: no profile can be made of the dataset.
        OutputError: the folder cannot be written, or the dataset not be read.
    """
    return make_synthetic(
        output,
        seed=seed,
        profile=profile,
        like=None if like is None else open_dataset(like),
        formats=formats,
        requests=requests,
    )


def each_path(inputs: Inputs | str | Path) -> Inputs:
    """The inputs as a list, where one path was given alone."""
    return [inputs] if isinstance(inputs, str | Path) else inputs
