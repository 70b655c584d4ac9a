"""data/efficiency.toml with fitted values, their intervals and where they come from."""

from __future__ import annotations

import math
import tomllib
from pathlib import Path
from typing import Final

from costfit.parameters import PARAMETERS
from costfit.solve import Fit
from kvtrace.cost.efficiency import EfficiencyTable

_HEAD: Final = """\
# Efficiencies of prefill and decode: what of a peak an engine reaches. Written by
# scripts/fit_cost.py; docs/model/validation.md has the command and the errors on (LLM, GPU) pairs
# that were left out. `fitted`: value and 90 % interval of the fit. Families that no run measured
# take their GEMM and attention from measured kernels, times the loss between kernels and runs of a
# family that has both. `assumed`: nothing public was used.
"""


def write_table(path: Path, fit: Fit, table: EfficiencyTable, *, as_of: str, text: str) -> None:
    """Rewrite the file with the fit; constants that it does not cover stay as they are."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    document["sources"]["fit"] = {"text": text, "as_of": as_of}
    document["sources"]["kernels"] = {
        "text": "large kernels in aiconfigurator-core's tables, times the loss between kernels and "
        "runs of a family that has both",
        "as_of": as_of,
    }
    _set_kernels(document, table)
    for index, parameter in enumerate(PARAMETERS):
        owner, key = parameter.name.split(".", 1)
        value = {
            "value": _rounded(fit.values[index]),
            "low": min(_rounded(fit.low[index]), _rounded(fit.values[index])),
            "high": max(_rounded(fit.high[index]), _rounded(fit.values[index])),
            "kind": "fitted",
        }
        if owner == "shared":
            entry = document["shared"][key]
            document["shared"][key] = {**value, "source": "fit", **_kept(entry)}
        else:
            document["families"][owner][key] = value
            document["families"][owner]["source"] = "fit"
    path.write_text(_text(document), encoding="utf-8")


def _set_kernels(document: dict[str, dict[str, dict[str, object]]], table: EfficiencyTable) -> None:
    families = document["families"]
    for name, family in table.families.items():
        entry = families.setdefault(name, {"source": "kernels"})
        constants = {f"gemm_{key}": constant for key, constant in family.gemm.items()}
        constants |= {"attention": family.attention, "half_tokens": family.half_tokens}
        for key, constant in constants.items():
            if constant.low is None and constant.high is None:
                value = _rounded(constant.value)
                spread, most = (2.0, math.inf) if key == "half_tokens" else (1.3, 1.0)
                entry[key] = {
                    "value": value,
                    "low": _rounded(value / spread),
                    "high": _rounded(min(value * spread, most)),
                    "kind": "fitted",
                }
                entry["source"] = "kernels"


def _kept(entry: dict[str, object]) -> dict[str, object]:
    return {key: entry[key] for key in ("unit", "title")}


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def _text(document: dict[str, dict[str, dict[str, object]]]) -> str:
    lines = [_HEAD]
    for name, source in document["sources"].items():
        lines += [f"[sources.{name}]", f"text = {_value(source['text'])}"]
        lines += [f"as_of = {_value(source['as_of'])}"]
    for name in sorted(document["families"], key=lambda one: (one == "other", len(one), one)):
        lines += ["", f"[families.{name}]"]
        entry = document["families"][name]
        lines += [f"{key} = {_value(value)}" for key, value in entry.items() if key != "source"]
        lines += [f"source = {_value(entry['source'])}"]
    lines += ["", "[shared]"]
    lines += [f"{key} = {_value(value)}" for key, value in document["shared"].items()]
    return "\n".join(lines) + "\n"


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + " }"
    return f'"{value}"' if isinstance(value, str) else repr(value)
