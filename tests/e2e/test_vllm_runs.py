"""Published vLLM runs against their replays: latencies and queue depth, before and after a fit.

The runs: 300 requests, ten a second, on one GPU that cannot keep up. No prompt text is published,
so that no prefix is taken as shared.
"""

from __future__ import annotations

import csv
import gzip
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from kvtrace import api
from kvtrace.api.calibrate import CalibrationAsk, CalibrationOutcome, cost_calibrate
from kvtrace.api.calibration_data import request_times
from kvtrace.api.opened import whole_trace
from kvtrace.cost import build_deployment
from kvtrace.replay.engine import simulate
from kvtrace.replay.occupancy import occupancy
from kvtrace.replay.result import ReplayResult
from kvtrace.replay.scenario import Scenario
from kvtrace.schema.arrays import FloatArray
from kvtrace.units import NS_PER_S

pytestmark = pytest.mark.shared
SCHEDULER = """\
base = "hbm_only"
llm = "Llama-3.1-8B"
hardware = "{gpu}"
tp = 1
instances = 1
weight_dtype = "bf16"
kv_dtype = "bf16"
hbm_blocks = {kv_tokens}
prefill_chunk_tokens = 2048
decode_in_chunk = true
running_requests = {most}
kv_admission = "as_needed"
kv_block_tokens = 16
"""


@dataclass(frozen=True)
class Run:
    """One published run, and its uncalibrated replay."""

    dataset: Path
    scenario: Path
    result: ReplayResult
    arrived_s: FloatArray
    ttft_s: FloatArray
    tpot_s: FloatArray
    series: dict[str, FloatArray]


def _replayed(folder: Path, gpu: str, most: int, kv_tokens: int) -> tuple[ReplayResult, FloatArray]:
    deployment = build_deployment("Llama-3.1-8B", gpu, tp=1, weight_dtype="bf16")
    trace = whole_trace(api.open_dataset(folder))
    assert trace is not None
    scenario = Scenario(
        option_id="run",
        title="the published run",
        instances=1,
        kv_bytes_per_token=deployment.kv_bytes_per_token,
        hbm_capacity_bytes=kv_tokens * deployment.kv_bytes_per_token,
        tiers=(),
        links={},
        prefill=deployment.prefill,
        decode=deployment.decode,
        step=deployment.step,
        prefill_chunk_tokens=2048,
        decode_in_chunk=True,
        running_requests=most,
        kv_admission="as_needed",
        kv_block_tokens=16,
    )
    return simulate(trace, scenario), trace.arrived_at_ns / NS_PER_S


@pytest.fixture(scope="module")
def load_run(
    shared_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str, int, int], Run]:
    """Makes a run ready; each is read once."""
    known: dict[str, Run] = {}

    def load(name: str, gpu: str, most: int, kv_tokens: int) -> Run:
        if name not in known:
            folder = tmp_path_factory.mktemp(name)
            (folder / "logs").mkdir()
            source = shared_dir / "traces" / f"vllm_requests_{name}_llama31_8b.jsonl.gz"
            shutil.copy(source, folder / "logs" / "requests.jsonl.gz")
            api.ingest(folder / "logs", output=folder / "out")
            scenario = folder / "scheduler.toml"
            text = SCHEDULER.format(gpu=gpu, most=most, kv_tokens=kv_tokens)
            scenario.write_text(text, encoding="utf-8")
            result, arrived = _replayed(folder / "out", gpu, most, kv_tokens)
            times, _ = request_times(api.open_dataset(folder / "out"))
            series = shared_dir / "traces" / f"vllm_timeseries_{name}_llama31_8b.csv.gz"
            with gzip.open(series, "rt", encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
            columns = {key: np.array([float(row[key]) for row in rows]) for key in rows[0]}
            known[name] = Run(
                folder / "out", scenario, result, arrived, times.ttft_s, times.tpot_s, columns
            )
        return known[name]

    return load


@pytest.fixture(params=["rtx4090", "rtxpro6000"])
def run(request: pytest.FixtureRequest, load_run: Callable[[str, str, int, int], Run]) -> Run:
    """Each of the two runs."""
    if request.param == "rtx4090":
        return load_run("rtx4090", "RTX-4090", 256, 41_408)
    return load_run("rtxpro6000", "RTX-PRO-6000-Server", 128, 574_608)


def _off(predicted: FloatArray, observed: FloatArray, quantile: float | None = None) -> float:
    if quantile is None:
        return abs(float(predicted.mean() / observed.mean()) - 1)
    return abs(float(np.quantile(predicted, quantile) / np.quantile(observed, quantile)) - 1)


def test_latencies_are_predicted_without_any_fit(run: Run) -> None:
    timeline = run.result.timeline
    assert _off(timeline.ttft_s, run.ttft_s) < 0.15
    assert _off(timeline.ttft_s, run.ttft_s, 0.99) < 0.15
    assert _off(timeline.tpot_s, run.tpot_s) < 0.05


def test_the_queue_is_as_deep_as_the_engine_said(run: Run) -> None:
    seen = run.series
    found = occupancy(run.result, run.arrived_s, seen["t"])
    assert found.waiting.mean() == pytest.approx(seen["waiting"].mean(), rel=0.1)
    assert found.waiting.max() == pytest.approx(seen["waiting"].max(), rel=0.1)
    assert found.running.mean() == pytest.approx(seen["running"].mean(), rel=0.05)
    assert np.corrcoef(found.waiting, seen["waiting"])[0, 1] > 0.99


def _after(outcome: CalibrationOutcome, metric: str) -> tuple[float, float]:
    error = next(one for one in outcome.calibrations[0].errors if one.metric == metric)
    assert error.p99_after is not None
    return abs(error.mean_after), abs(error.p99_after)


def test_after_a_fit_to_the_first_half_the_second_is_predicted_closely(run: Run) -> None:
    outcome = cost_calibrate(run.dataset, asked=CalibrationAsk(scenario=str(run.scenario)))
    assert len(outcome.calibrations[0].parameters) == 2
    ttft, ttft_p99 = _after(outcome, "ttft")
    assert ttft < 0.05
    assert ttft_p99 < 0.05
    assert _after(outcome, "tpot")[0] < 0.03
