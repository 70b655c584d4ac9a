#!/usr/bin/env python3
"""Published vLLM runs against their replays, before and after a fit to their first half.

scripts/vllm_runs.py TRACES

TRACES holds `vllm_requests_*.jsonl.gz` and `vllm_timeseries_*.csv.gz` of the runs below. Prints the
table of docs/model/calibration.md.
"""

from __future__ import annotations

import csv
import gzip
import shutil
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kvtrace import api
from kvtrace.api.calibrate import CalibrationAsk, cost_calibrate
from kvtrace.api.calibration_data import request_times
from kvtrace.api.opened import whole_trace
from kvtrace.api.replay_runs import Bench, Ready, make_ready
from kvtrace.config import resolve_settings
from kvtrace.cost.deployment import build_deployment
from kvtrace.replay.engine import simulate
from kvtrace.replay.occupancy import occupancy
from kvtrace.replay.result import ReplayResult
from kvtrace.scenarios.document import load_scenario
from kvtrace.scenarios.load import Load
from kvtrace.scenarios.sweeps import Case
from kvtrace.schema.arrays import FloatArray, RequestTrace
from kvtrace.units import NS_PER_S

SCHEDULER = """\
base = "hbm_only"
llm = "Llama-3.1-8B"
hardware = "{hardware}"
tp = 1
instances = 1
weight_dtype = "bf16"
kv_dtype = "bf16"
hbm_blocks = {kv_tokens}
prefill_chunk_tokens = 2048
decode_in_chunk = true
running_requests = {running}
kv_admission = "as_needed"
kv_block_tokens = 16
"""


@dataclass(frozen=True, slots=True)
class Run:
    """One published run: its files, its GPU and the settings of its scheduler."""

    name: str
    hardware: str
    running: int
    kv_tokens: int


RUNS = (
    Run("rtx4090", "RTX-4090", 256, 41_408),
    Run("rtxpro6000", "RTX-PRO-6000-Server", 128, 574_608),
)


def main() -> None:
    """Print one row a run and constants."""
    traces = Path(sys.argv[1])
    print("| run | constants | requests | TTFT mean | TTFT P99 | TPOT mean | waiting | running |")
    print("|---|---|---|---:|---:|---:|---:|---:|")
    for run in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            _print_run(run, traces, Path(folder))


def _print_run(run: Run, traces: Path, folder: Path) -> None:
    (folder / "logs").mkdir()
    source = traces / f"vllm_requests_{run.name}_llama31_8b.jsonl.gz"
    shutil.copy(source, folder / "logs" / "requests.jsonl.gz")
    api.ingest(folder / "logs", output=folder / "out")
    scenario = folder / "scheduler.toml"
    fields = {"running": run.running, "kv_tokens": run.kv_tokens}
    scenario.write_text(SCHEDULER.format(hardware=run.hardware, **fields), encoding="utf-8")
    asked = CalibrationAsk(scenario=str(scenario), output=folder / "fitted.toml")
    fitted = cost_calibrate(folder / "out", asked=asked).calibrations[0].values()
    series = _series(traces / f"vllm_timeseries_{run.name}_llama31_8b.csv.gz")
    for words, hardware in (("built in", run.hardware), ("fitted", str(folder / "fitted.toml"))):
        if words == "built in" or fitted:
            _print_rows(run, words, hardware, scenario, folder / "out", series)


def _print_rows(
    run: Run,
    words: str,
    hardware: str,
    scenario: Path,
    dataset: Path,
    series: dict[str, FloatArray],
) -> None:
    opened = api.open_dataset(dataset)
    trace = whole_trace(opened)
    if trace is None:
        raise SystemExit(f"{run.name} has no requests")
    bench = Bench(opened, resolve_settings({}, environment={}), trace)
    ready = make_ready(bench, [Case(load_scenario(str(scenario)))], Load())[0]
    times, _ = request_times(opened)
    result = _replayed(ready, trace, hardware)
    timeline = result.timeline
    depth = occupancy(result, trace.arrived_at_ns / NS_PER_S, series["t"])
    late = np.arange(trace.requests) >= trace.requests // 2
    for which, rows in (("all", late | True), ("later half", late)):
        seen, found = times.ttft_s[rows], timeline.ttft_s[rows]
        cells = [
            _off(found.mean(), seen.mean()),
            _off(np.quantile(found, 0.99), np.quantile(seen, 0.99)),
            _off(timeline.tpot_s[rows].mean(), times.tpot_s[rows].mean()),
            f"{depth.waiting.mean():.1f} of {series['waiting'].mean():.1f}",
            f"{depth.running.mean():.1f} of {series['running'].mean():.1f}",
        ]
        print(f"| {run.hardware} | {words} | {which} | {' | '.join(cells)} |")


def _replayed(ready: Ready, trace: RequestTrace, hardware: str) -> ReplayResult:
    """The replay of the run on the hardware."""
    stated = ready.setup.deployment
    deployment = build_deployment(
        stated.llm, hardware, tp=1, weight_dtype=stated.weight_dtype, kv_dtype=stated.kv_dtype
    )
    priced = replace(
        ready.scenario,
        prefill=deployment.prefill,
        decode=deployment.decode,
        step=deployment.step,
    )
    return simulate(trace, priced)


def _series(path: Path) -> dict[str, FloatArray]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}


def _off(predicted: float, observed: float) -> str:
    return f"{100 * (predicted / observed - 1):+.1f} %"


if __name__ == "__main__":
    main()
