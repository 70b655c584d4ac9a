"""The part of a user's hardware TOML that `kvtrace cost calibrate` writes: fitted constants.

[calibration]
dataset = "1f3c…"
requests = 150
llm = "Llama-3.1-8B"
gpu = "RTX-4090"

[[calibration.constant]]
id = "efficiency.hbm_read"
value = 0.81
low = 0.78
high = 0.84
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kvtrace.cost.efficiency import EfficiencyTable, efficiency_table
from kvtrace.cost.evidence import Constant
from kvtrace.cost.hardware import HardwareProfile
from kvtrace.cost.llms import load_llm
from kvtrace.cost.toml_reader import TomlReader
from kvtrace.cost.walk import collect_constants, replaced_constants
from kvtrace.errors import UsageError

PROVENANCE: Final = (
    "dataset", "requests", "moves", "llm", "gpu", "weight_dtype", "kv_dtype", "tp", "method",
    "as_of",
)  # fmt: skip
CALIBRATED: Final = "calibration"
"""How the source of a fitted constant begins."""
_CONSTANT: Final = ("id", "title", "unit", "value", "low", "high", "source", "as_of")


def with_calibration(profile: HardwareProfile, document: TomlReader) -> HardwareProfile:
    """The profile, and the efficiencies of its engine, with what `[calibration]` states.

    Raises:
        UsageError: an unknown key or constant (with the close ones), or a value outside its range.
    """
    reader = document.section("calibration", (*PROVENANCE, "constant"))
    rows = reader.table.get("constant", [])
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise document.fault("`calibration.constant` is not a list of tables")
    if not rows:
        return profile
    table = profile.efficiencies or efficiency_table()
    known = {one.id: one for one in collect_constants(profile, table)}
    source, as_of = source_of(reader.table), reader.word("as_of") or ""
    change = {}
    for row in rows:
        inner = TomlReader(row, document.path, "calibration.constant")
        inner.check(_CONSTANT)
        base = _known(inner, known)
        change[base.id] = _fitted(base, inner, source, as_of)
    gpu = reader.word("gpu")
    if gpu is not None and gpu != profile.gpu.name:
        change = {
            ident: borrowed(one, f"GPU {gpu}, not {profile.gpu.name}")
            for ident, one in change.items()
        }
    return replace(
        replaced_constants(profile, change),
        efficiencies=replaced_constants(table, change),
        calibrated_llm=reader.word("llm"),
    )


def borrowed(constant: Constant, of: str) -> Constant:
    """A fitted constant that is used for something else than it was fitted `of`: an assumption."""
    return replace(constant, kind="assumed", source=f"{constant.source}, fitted for {of}")


def with_llm_told(table: EfficiencyTable, fitted_for: str | None, llm: str) -> EfficiencyTable:
    """The efficiencies; what a calibration fitted for another LLM is an assumption that says so."""
    if fitted_for is None or _known_llm(fitted_for) == llm:
        return table
    change = {
        one.id: borrowed(one, f"{fitted_for}, not {llm}")
        for one in collect_constants(table)
        if one.source.startswith(CALIBRATED)
    }
    return replaced_constants(table, change)


def _known_llm(name: str) -> str:
    """The name of a built-in shape as it stands there; any other as it is."""
    try:
        return load_llm(name).name
    except UsageError:
        return name


def source_of(provenance: Mapping[str, object]) -> str:
    """Where constants of a `[calibration]` come from, in words; it begins with `CALIBRATED`."""
    parts = [CALIBRATED]
    for key in ("requests", "moves"):
        rows = provenance.get(key)
        if isinstance(rows, int) and rows:
            parts.append(f"{rows:,} {key}")
    dataset = provenance.get("dataset")
    if isinstance(dataset, str):
        parts.append(f"dataset {dataset[:12]}")
    return ", ".join(parts)


def _known(reader: TomlReader, known: Mapping[str, Constant]) -> Constant:
    name = reader.word("id")
    if name is None:
        raise reader.fault("a `[[calibration.constant]]` has no `id`")
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3)
        meant = f"; did you mean {', '.join(f'`{one}`' for one in close)}?" if close else ""
        raise reader.fault(f"there is no constant `{name}`{meant}")
    return known[name]


def _fitted(base: Constant, reader: TomlReader, source: str, as_of: str) -> Constant:
    value, low, high = reader.number("value"), reader.number("low"), reader.number("high")
    if value is None:
        raise reader.fault(f"`{base.id}` has no `value`")
    if (low is not None and low > value) or (high is not None and high < value):
        raise reader.fault(f"the value of `{base.id}` lies outside its low and high")
    return replace(
        base,
        value=value,
        low=low,
        high=high,
        kind="fitted",
        source=reader.word("source") or source,
        as_of=reader.word("as_of") or as_of,
    )
