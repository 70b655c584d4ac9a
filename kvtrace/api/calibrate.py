"""The verb `cost calibrate`: constants of the cost model fitted to a dataset's own latencies."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from kvtrace.api.calibration_data import by_key, move_times, request_times
from kvtrace.api.opened import open_dataset, read_earlier, whole_trace, with_earlier
from kvtrace.api.outputs import write_output
from kvtrace.api.query_results import to_json
from kvtrace.api.replay_runs import Bench, Ready, make_ready
from kvtrace.api.setup import check_names, choose_deployment
from kvtrace.config import Settings, resolve_settings
from kvtrace.cost.calibration import (
    NAMES,
    Calibration,
    Fitted,
    calibrate_moves,
    calibrate_replayed,
    calibrate_requests,
    profile_text,
)
from kvtrace.cost.deployment import Deployment
from kvtrace.cost.evidence import read_user_toml
from kvtrace.cost.step import PREFILL_CHUNK_TOKENS
from kvtrace.errors import Location, ModelError, UsageError
from kvtrace.replay.engine import simulate
from kvtrace.replay.scenario import Scenario
from kvtrace.report.text.calibrate import summary_lines
from kvtrace.scenarios.document import load_scenario
from kvtrace.scenarios.load import Load
from kvtrace.scenarios.sweeps import Case
from kvtrace.schema.arrays import FloatArray, RequestTrace
from kvtrace.schema.manifest import Manifest
from kvtrace.store.dataset import Dataset

_UNSEEN: Final = "prompts have no block ids: no prefix is taken as shared"


@dataclass(frozen=True, slots=True)
class CalibrationOutcome:
    """What a calibration found, and the hardware file that holds it."""

    calibrations: tuple[Calibration, ...]
    profile: str
    """The hardware file, as text."""
    profile_path: Path | None
    """Where it was written; null: it was not asked for."""
    provenance: Mapping[str, str | int | None]

    def to_json(self) -> str:
        """Parameters with intervals or refusals, errors before and after, residuals, provenance."""
        return to_json(
            {
                "provenance": self.provenance,
                "calibrations": [_document(one) for one in self.calibrations],
                "profile": None if self.profile_path is None else self.profile_path.name,
            }
        )

    def summary(self) -> list[str]:
        """The same as lines for a person."""
        return summary_lines(self.calibrations, self.provenance, self.profile_path)


@dataclass(frozen=True, slots=True)
class CalibrationAsk:
    """How a dataset is calibrated."""

    scenario: str | None = None
    """A scenario with the settings of the scheduler: queues are then replayed."""
    parameters: tuple[str, ...] | None = None
    """Names; null: those that the data can tell."""
    chunk_tokens: int = PREFILL_CHUNK_TOKENS
    """Prompt tokens of one step, where no scenario says it."""
    assumes_no_hits: bool = False
    output: Path | None = None
    """Where the hardware file goes."""


def cost_calibrate(
    dataset: Path | str,
    *,
    asked: CalibrationAsk | None = None,
    settings: Settings | None = None,
) -> CalibrationOutcome:
    """Fit the cost model to a dataset's latencies and moves; the file is written where asked.

    Raises:
        UsageError: an unknown name, or a dataset without anything to fit.
        ModelError: the FLOPs of the LLM are not known.
        OutputError: the dataset cannot be read, or the file not be written.
    """
    asked = CalibrationAsk() if asked is None else asked
    opened = open_dataset(dataset)
    chosen = with_earlier(settings or resolve_settings(), read_earlier(opened))
    check_names(chosen)
    _check_parameters(asked)
    seed = chosen.integer("seed") or 0
    if asked.scenario is None:
        deployment, _ = choose_deployment(chosen, opened.manifest)
        base = _base_document(chosen.text("hardware"), deployment)
        found = [_direct(opened, deployment, asked, chosen)]
    else:
        trace = _trace(opened)
        case = Case(load_scenario(asked.scenario))
        ready = make_ready(Bench(opened, chosen, trace), [case], Load())[0]
        deployment = ready.setup.deployment
        base = _base_of_scenario(ready, chosen)
        found = [_replayed(opened, trace, ready, asked, seed)]
    found += [calibrate_moves(moves, deployment, seed=seed) for moves in move_times(opened)]
    if not any(one.errors for one in found):
        raise _nothing(opened, found)
    provenance = _provenance(opened.manifest, deployment, found, asked)
    text = profile_text(base, found, provenance)
    if asked.output is not None:
        write_output(asked.output, text.encode())
    return CalibrationOutcome(tuple(found), text, asked.output, provenance)


def _check_parameters(asked: CalibrationAsk) -> None:
    for name in asked.parameters or ():
        if name not in NAMES:
            raise UsageError(
                "KVT-U080", f"there is no parameter `{name}`", hint=f"one of {', '.join(NAMES)}"
            )


def _direct(
    dataset: Dataset, deployment: Deployment, asked: CalibrationAsk, settings: Settings
) -> Calibration:
    times, _ = request_times(dataset)
    caching = _told(dataset, "prefix_caching")
    engines = settings.integer("instances") or _told(dataset, "engines") or 1
    return calibrate_requests(
        times,
        deployment,
        chunk_tokens=asked.chunk_tokens,
        instances=int(engines),
        names=asked.parameters,
        kv_capacity_tokens=_capacity(deployment),
        prefix_caching=None if caching is None else bool(caching),
        assumes_no_hits=asked.assumes_no_hits,
        seed=settings.integer("seed") or 0,
    )


def _told(dataset: Dataset, fact: str) -> str | int | float | None:
    """What the first source that knows it says of its engine."""
    found = (source.engine_facts.get(fact) for source in dataset.manifest.sources)
    return next((one for one in found if one is not None), None)


def _capacity(deployment: Deployment) -> float | None:
    """Tokens of KV that an instance holds; null where the weights do not even fit."""
    try:
        return deployment.hbm_cache_bytes / deployment.kv_bytes_per_token
    except ModelError:
        return None


def _trace(dataset: Dataset) -> RequestTrace:
    """The requests that can be replayed."""
    trace = whole_trace(dataset)
    if trace is None or not trace.has_clock or not trace.output_known:
        raise UsageError(
            "KVT-U081",
            "the requests cannot be replayed: their arrivals or lengths are not known",
            where=Location(str(dataset.directory)),
            hint="leave out `--scenario`: prefill and decode are then fitted without their queue",
        )
    return trace


def _replayed(
    dataset: Dataset, trace: RequestTrace, ready: Ready, asked: CalibrationAsk, seed: int
) -> Calibration:
    """The calibration through replays of the scenario."""
    times, keys = request_times(dataset)
    wanted = trace.request_key
    ttft = by_key(keys, np.where(times.is_ttft_of_prefill, np.nan, times.ttft_s), wanted)
    tpot = by_key(keys, times.tpot_s, wanted)

    def replay(deployment: Deployment) -> dict[str, FloatArray]:
        timeline = simulate(trace, _priced(ready, deployment)).timeline
        return {"ttft": timeline.ttft_s, "tpot": timeline.tpot_s}

    return calibrate_replayed(
        ready.setup.deployment,
        replay,
        {"ttft": ttft, "tpot": tpot},
        arrived_s=by_key(keys, times.arrived_s, wanted),
        prompt_tokens=by_key(keys, times.prompt_tokens, wanted),
        names=asked.parameters,
        notes=() if trace.distinct_blocks else (_UNSEEN,),
        seed=seed,
    )


def _priced(ready: Ready, deployment: Deployment) -> Scenario:
    return replace(
        ready.scenario,
        prefill=deployment.prefill,
        decode=deployment.decode,
        step=deployment.step,
    )


def _nothing(dataset: Dataset, found: Sequence[Calibration]) -> UsageError:
    reasons = dict.fromkeys(
        one.refusal for calibration in found for one in calibration.parameters if one.refusal
    )
    return UsageError(
        "KVT-U082",
        "nothing can be calibrated: no time of a request or move can be fitted",
        where=Location(str(dataset.directory)),
        cause="; ".join(reasons),
        hint="`kvtrace formats` says which logs carry TTFT, prefill, TPOT and moves",
    )


def _provenance(
    manifest: Manifest,
    deployment: Deployment,
    found: Sequence[Calibration],
    asked: CalibrationAsk,
) -> dict[str, str | int | None]:
    moves = sum(one.fitted_rows for one in found[1:] if one.values())
    return {
        "dataset": manifest.digest,
        "requests": found[0].fitted_rows if found[0].values() else None,
        "moves": moves or None,
        "llm": deployment.llm.name,
        "gpu": deployment.hardware.gpu.name,
        "weight_dtype": deployment.weight_dtype,
        "kv_dtype": deployment.kv_dtype,
        "tp": deployment.tp,
        "method": "direct" if asked.scenario is None else "replay",
        "as_of": _today(),
    }


def _today() -> str | None:
    """From SOURCE_DATE_EPOCH; without it no date is stated, so that reruns are equal."""
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not text.isdigit():
        return None
    return datetime.fromtimestamp(int(text), tz=UTC).strftime("%Y-%m-%d")


def _base_document(named: str | None, deployment: Deployment) -> Mapping[str, object]:
    """The hardware file that was calibrated, else its GPU alone."""
    if named is not None and named.endswith(".toml"):
        return read_user_toml(Path(named))
    return {"gpu": deployment.hardware.gpu.name}


def _base_of_scenario(ready: Ready, settings: Settings) -> Mapping[str, object]:
    """The hardware that a scenario states, else that of the settings."""
    plan, deployment = ready.plan, ready.setup.deployment
    if plan.hardware is not None:
        return {"gpu": deployment.hardware.gpu.name, **plan.hardware}
    stated = plan.serving.get("hardware", settings.text("hardware"))
    return _base_document(None if stated is None else str(stated), deployment)


def _document(calibration: Calibration) -> dict[str, object]:
    return {
        "subject": calibration.subject,
        "fitted_rows": calibration.fitted_rows,
        "held_rows": calibration.held_rows,
        "parameters": [_parameter(one) for one in calibration.parameters],
        "errors": [asdict(one) for one in calibration.errors],
        "residuals": [asdict(one) for one in calibration.residuals],
        "notes": list(calibration.notes),
    }


def _parameter(one: Fitted) -> dict[str, object]:
    constant = one.parameter.constant
    return {
        "name": one.parameter.name,
        "id": constant.id,
        "title": constant.title,
        "unit": constant.unit,
        "before": constant.value,
        "value": one.value if one.refusal is None else None,
        "low": one.low,
        "high": one.high,
        "is_identified": one.refusal is None,
        "refusal": one.refusal,
    }
