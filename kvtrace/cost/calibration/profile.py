"""What a calibration found, as a hardware TOML that every command takes with `--hardware`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from kvtrace.cost.calibration.fit import Fitted
from kvtrace.cost.calibration.moves import CONTENTION_ID
from kvtrace.cost.calibration.outcome import Calibration
from kvtrace.cost.hardware_file.calibration import source_of

Scalar = str | int | float | bool


def profile_text(
    base: Mapping[str, object],
    calibrations: Sequence[Calibration],
    provenance: Mapping[str, Scalar | None],
) -> str:
    """The hardware file `base` with a `[calibration]` of all identified constants.

    What an earlier calibration put into `base`, and this one does not tell, stays as it is.
    """
    kept = {key: value for key, value in base.items() if key != "calibration"}
    lines = ["# Written by `kvtrace cost calibrate`. Use it with `--hardware FILE`."]
    lines += _table(kept, ())
    lines += ["", "[calibration]"]
    lines += [f"{key} = {_value(value)}" for key, value in provenance.items() if value is not None]
    found = identified(calibrations)
    for one in found:
        lines += ["", "[[calibration.constant]]", *_constant(one)]
    for row in _earlier(base, {one.parameter.constant.id for one in found}):
        lines += ["", "[[calibration.constant]]"]
        lines += [f"{key} = {_value(value)}" for key, value in row.items()]
    return "\n".join(lines) + "\n"


def _earlier(base: Mapping[str, object], fitted: Set[str]) -> list[Mapping[str, object]]:
    """Rows of the calibration in `base` that are not fitted now, each with its own source."""
    calibration = base.get("calibration")
    if not isinstance(calibration, Mapping):
        return []
    source = {"source": source_of(calibration)}
    if "as_of" in calibration:
        source["as_of"] = str(calibration["as_of"])
    rows = calibration.get("constant", [])
    return [{**source, **row} for row in rows if row.get("id") not in fitted]


def identified(calibrations: Sequence[Calibration]) -> list[Fitted]:
    """Constants of the model that some calibration identified, each once, the first one found."""
    found: dict[str, Fitted] = {}
    for calibration in calibrations:
        for one in calibration.parameters:
            ident = one.parameter.constant.id
            if one.refusal is None and ident != CONTENTION_ID:
                found.setdefault(ident, one)
    return list(found.values())


def _constant(one: Fitted) -> list[str]:
    constant = one.parameter.constant
    rows: dict[str, Scalar | None] = {
        "id": constant.id,
        "title": constant.title,
        "unit": constant.unit,
        "value": _rounded(one.value),
        "low": None if one.low is None else min(_rounded(one.low), _rounded(one.value)),
        "high": None if one.high is None else max(_rounded(one.high), _rounded(one.value)),
    }
    return [f"{key} = {_value(value)}" for key, value in rows.items() if value is not None]


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _table(table: Mapping[str, object], path: tuple[str, ...]) -> list[str]:
    """A TOML table: its plain values, then its tables."""
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    lines = [f"{key} = {_value(value)}" for key, value in table.items() if key not in inner]
    for key, value in inner.items():
        here = (*path, key)
        lines += ["", f"[{'.'.join(here)}]", *_table(value, here)]
    return lines


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(one) for one in value)}]"
    return repr(value)
