"""The verb `doctor`: what is installed, set and free on this machine, and what is missing."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Final, Literal

from kvtrace.config import SETTINGS, Settings, resolve_settings
from kvtrace.errors import UsageError
from kvtrace.units import GIB, MIB
from kvtrace.version import __version__

Standing = Literal["ok", "note", "broken"]
"""ok: as it should be; note: works, with less; broken: kvtrace cannot work so."""

CORE: Final[Mapping[str, str]] = {
    "backports-zstd": "1.8",
    "duckdb": "2.0.1",
    "filelock": "4.3",
    "jinja2": "3.1",
    "msgspec": "0.23",
    "numba": "0.68",
    "numpy": "2.3",
    "platformdirs": "4.14",
    "plotly": "7.1",
    "polars": "2.1",
    "rich": "15",
    "scipy": "1.17",
    "typer": "0.29",
    "xxhash": "4.1",
}
"""Libraries that kvtrace needs, with the lowest version that does (as in pyproject.toml)."""
EXTRAS: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "aiconfigurator": (("aiconfigurator-core",), "`--cost-provider aiconfigurator`"),
    "tokenizers": (
        ("tokenizers", "tiktoken"),
        "`--tokenizer FILE`: prompts that are text become token blocks",
    ),
}
"""By extra: its libraries, and what it is for."""
_LEAST_PYTHON: Final = (3, 11)
_LEAST_DISK: Final = 2 * GIB
_LEAST_MEMORY: Final = 1 * GIB
_IN_STDLIB: Final[Mapping[str, tuple[int, int]]] = {"backports-zstd": (3, 14)}
"""Libraries that Python itself has from that version on."""
_PROBE: Final = """
import importlib, sys
for name in sys.argv[1:]:
    print("start", name, flush=True)
    try:
        importlib.import_module(name)
    except Exception as error:
        print("failed", name, type(error).__name__, str(error).splitlines()[:1], flush=True)
    else:
        print("loaded", name, flush=True)
"""
_PROBED: Final = ("polars", "duckdb", "numpy", "scipy", "msgspec", "plotly", "jinja2")
"""Libraries that are really loaded, in a process of their own: machine code may not run."""
_PROBE_SECONDS: Final = 120


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at."""

    section: str
    name: str
    standing: Standing
    said: str
    hint: str = ""
    """What to type, where something is missing."""


@dataclass(frozen=True, slots=True)
class StatedSetting:
    """A setting as the next command would see it, and where it comes from."""

    name: str
    value: str | int | float | bool | None
    origin: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What `kvtrace doctor` found."""

    checks: tuple[Check, ...]
    settings: tuple[StatedSetting, ...]

    @property
    def is_broken(self) -> bool:
        """Whether kvtrace cannot work here."""
        return any(one.standing == "broken" for one in self.checks)

    def to_json(self) -> str:
        """The document of `kvtrace doctor --json`."""
        from kvtrace.api.query_results import to_json

        return to_json(
            {
                "kvtrace": __version__,
                "is_broken": self.is_broken,
                "checks": [asdict(one) for one in self.checks],
                "settings": [asdict(one) for one in self.settings],
            }
        )

    def lines(self) -> list[str]:
        """What was found, section by section; ends with what to do."""
        marks = {"ok": "ok  ", "note": "note", "broken": "BAD "}
        lines: list[str] = []
        section = ""
        for one in self.checks:
            if one.section != section:
                section = one.section
                lines += ["", section] if lines else [section]
            lines.append(f"  {marks[one.standing]} {one.name}: {one.said}")
            if one.hint:
                lines.append(f"       {one.hint}")
        lines += ["", "settings (docs/settings.md)"]
        width = max((len(one.name) for one in self.settings), default=0)
        lines += [
            f"  {one.name:<{width}}  {_shown(one.value)}  ({one.origin})" for one in self.settings
        ]
        broken = sum(one.standing == "broken" for one in self.checks)
        notes = sum(one.standing == "note" for one in self.checks)
        last = f"{notes:,} to know, nothing is broken; next: kvtrace analyze logs/"
        return [*lines, "", f"{broken:,} broken: see BAD above" if broken else last]


def doctor(*, config: Path | None = None) -> Diagnosis:
    """What is installed, set and free here. Bad settings are a finding, not an exception."""
    checks = [*_environment(), *_libraries(), *_extras(), *_ingesters(), *_machine()]
    try:
        settings = resolve_settings(config=config)
    except UsageError as error:
        where = "" if error.where is None else f" ({error.where})"
        bad = Check(
            "configuration", error.code, "broken", f"{error.message}{where}", error.hint or ""
        )
        return Diagnosis((*checks, bad), ())
    return Diagnosis((*checks, _configuration(settings)), tuple(_stated(settings)))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "not set" if value is None else str(value)


def _stated(settings: Settings) -> Iterator[StatedSetting]:
    public = {one.name for one in settings.public()}
    for one in settings:
        is_hidden = one.name not in public and one.value is not None
        yield StatedSetting(one.name, "(hidden)" if is_hidden else one.value, one.origin)


def _configuration(settings: Settings) -> Check:
    stated = sum(not one.is_default for one in settings)
    said = f"{stated} of {len(SETTINGS)} settings are stated, the others are defaults"
    return Check("configuration", "settings", "ok", said)


def _environment() -> Iterator[Check]:
    python = platform.python_version()
    is_new = sys.version_info[:2] >= _LEAST_PYTHON
    least = ".".join(map(str, _LEAST_PYTHON))
    place = Path(__file__).resolve().parents[1]
    yield Check("environment", "kvtrace", "ok", f"{__version__} in {place}")
    yield Check(
        "environment",
        "Python",
        "ok" if is_new else "broken",
        f"{python} at {sys.executable or 'an unknown place'}",
        "" if is_new else f"install Python {least} or newer",
    )
    yield Check("environment", "system", "ok", f"{platform.system()} {platform.machine()}")
    is_utf8 = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    yield Check(
        "environment",
        "encoding of stdout",
        "ok" if is_utf8 else "note",
        sys.stdout.encoding or "unknown",
        "" if is_utf8 else "export PYTHONUTF8=1",
    )


def _libraries() -> Iterator[Check]:
    loaded = _load(_PROBED)
    for name, least in CORE.items():
        if sys.version_info[:2] >= _IN_STDLIB.get(name, (99, 0)):
            continue
        found = _version(name)
        hint = f"python -m pip install '{name}>={least}'"
        fault = loaded.get(name)
        if found is None:
            yield Check("libraries", name, "broken", "not installed", hint)
        elif _numbers(found) < _numbers(least):
            yield Check("libraries", name, "broken", f"{found}, needs {least} or newer", hint)
        elif fault is not None:
            yield Check("libraries", name, "broken", f"{found} cannot be loaded: {fault}", hint)
        else:
            yield Check("libraries", name, "ok", found)


def _load(names: tuple[str, ...]) -> dict[str, str]:
    """Why a library cannot be loaded, of those that cannot; each is tried in another process."""
    faults: dict[str, str] = {}
    left = list(names)
    while left:
        done = _probe(left)
        told = [line.split(maxsplit=2) for line in done.splitlines()]
        faults |= {words[1]: words[2] for words in told if words[0] == "failed"}
        ended = {words[1] for words in told if words[0] in {"failed", "loaded"}}
        crashed = [words[1] for words in told if words[0] == "start" and words[1] not in ended]
        faults |= dict.fromkeys(crashed, "the process ended while it was loaded")
        rest = [name for name in left if name not in ended and name not in crashed]
        left = rest if len(rest) < len(left) else []
    return faults


def _probe(names: list[str]) -> str:
    command = [sys.executable, "-c", _PROBE, *names]
    try:
        done = subprocess.run(  # noqa: S603 (our own program)
            command, capture_output=True, text=True, check=False, timeout=_PROBE_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version, comparable."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _extras() -> Iterator[Check]:
    for extra, (names, purpose) in EXTRAS.items():
        versions = {name: _version(name) for name in names}
        missing = [name for name, found in versions.items() if found is None]
        if missing:
            said = f"without {', '.join(missing)}; it is for {purpose}"
            hint = f"python -m pip install 'kvtrace[{extra}]'"
            yield Check("extras", extra, "note", said, hint)
        else:
            shown = ", ".join(f"{name} {found}" for name, found in versions.items())
            yield Check("extras", extra, "ok", shown)
    if shutil.which("duckdb") is None:
        said = "not found; it opens a dataset by hand: `duckdb -init open.sql`"
        yield Check("extras", "duckdb CLI", "note", said, "python -m pip install duckdb-cli")
    else:
        yield Check("extras", "duckdb CLI", "ok", str(shutil.which("duckdb")))


def _ingesters() -> Iterator[Check]:
    """Formats that other packages bring."""
    from kvtrace.ingest.registry import plugins

    for one in plugins():
        if one.fault is not None:
            fault = one.fault
            said = " ".join(filter(None, (fault.message, fault.cause)))
            yield Check("formats", one.name, "broken", f"{fault.code}: {said}", fault.hint or "")
        else:
            names = ", ".join(entry.name for entry in one.formats)
            yield Check("formats", one.name, "ok", f"{names} (package {one.distribution})")


def _machine() -> Iterator[Check]:
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    yield Check("machine", "processors", "ok", f"{cores} may be used")
    yield _memory()
    for name, folder in (
        ("output folder", Path("reports")),
        ("temporary folder", Path(tempfile.gettempdir())),
    ):
        yield _disk(name, folder)


def _memory() -> Check:
    try:
        page = os.sysconf("SC_PAGE_SIZE")
        total, free = (os.sysconf(one) * page for one in ("SC_PHYS_PAGES", "SC_AVPHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return Check("machine", "memory", "note", "the system does not say how much there is")
    limit = _memory_limit()
    said = f"{total / GIB:.1f} GiB, {free / GIB:.1f} GiB free"
    if limit is not None and limit < total:
        said = f"{said}; this container may use {limit / GIB:.1f} GiB"
    is_enough = min(total, limit or total) >= _LEAST_MEMORY
    hint = "" if is_enough else f"give it {_LEAST_MEMORY / GIB:.0f} GiB or more"
    return Check("machine", "memory", "ok" if is_enough else "note", said, hint)


def _memory_limit() -> int | None:
    """What a control group lets this process use, in bytes; None: all, or it does not say."""
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            continue
        return int(text) if text.isdigit() else None
    return None


def _disk(name: str, folder: Path) -> Check:
    """Room in a folder, or in the nearest one above it that is there."""
    there = next(one for one in (folder, *folder.resolve().parents) if one.is_dir())
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Check("machine", name, "note", f"{there}: {error.strerror}")
    shown = f"{free / GIB:.1f} GiB" if free >= GIB else f"{free / MIB:.0f} MiB"
    said = f"{there.resolve()}, {shown} free"
    if not os.access(there, os.W_OK):
        return Check("machine", name, "note", f"{said}, not writable", "name another: `-o FOLDER`")
    standing: Standing = "ok" if free >= _LEAST_DISK else "note"
    hint = "" if standing == "ok" else "a dataset takes about as much as its logs, packed"
    return Check("machine", name, standing, said, hint)
