"""`kvtrace cost calibrate` from a log to a profile that other commands take."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kvtrace import api
from kvtrace.api.calibrate import CalibrationAsk, cost_calibrate
from kvtrace.audit.assumptions import from_constant
from kvtrace.cli.app import app
from kvtrace.config import Settings, resolve_settings
from kvtrace.cost import Deployment, build_deployment, load_hardware
from kvtrace.cost.calibration.parameters import with_values
from kvtrace.errors import UsageError

GEMM = "efficiency.sm90.gemm_bf16"
READ = "efficiency.hbm_read"
MODEL = build_deployment("Llama-3.1-8B", "H100-SXM5", tp=1, weight_dtype="bf16")
SLOW = with_values(MODEL, {GEMM: 0.5, READ: 0.6})
"""What served the requests: half of the peak, 60 % of the memory rate."""
COUNT = 48


def settings(**changed: str | int) -> Settings:
    served: dict[str, str | int] = {"llm": "Llama-3.1-8B", "hardware": "H100-SXM5", "tp": 1}
    return resolve_settings({**served, **changed}, environment={})


def timing_line(index: int, deployment: Deployment) -> str:
    """One request, 60 s after the one before it, as a benchmark harness stamps it."""
    prompt, output = 1_000 + index * 37 % COUNT * 300, 101
    queued = 1_000.0 + 60 * index
    first = queued + deployment.prefill.prefill_s(prompt, 0)
    last = first + (output - 1) * deployment.decode.step_s(1, prompt + output / 2)
    stamps = {"queued_ts": queued, "scheduled_ts": queued, "first_token_ts": first}
    row = {
        "request_id": f"bench-{index}",
        "input_toks": prompt,
        "output_toks": output,
        "arrival_time": 1_787_267_980.0 + 60 * index,
        **{name: round(value, 9) for name, value in stamps.items()},
        "last_token_ts": round(last, 9),
    }
    return json.dumps(row)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrate")
    lines = [timing_line(index, SLOW) for index in range(COUNT)]
    (folder / "requests.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    api.ingest(folder / "requests.jsonl", output=folder / "out")
    return folder / "out"


NAMES = ("prefill_rate", "decode_bandwidth")


@pytest.fixture(scope="module")
def profile(dataset: Path) -> Path:
    """The fitted hardware file."""
    path = dataset / "fitted.toml"
    cost_calibrate(
        dataset, asked=CalibrationAsk(parameters=NAMES, output=path), settings=settings()
    )
    return path


def test_what_served_the_log_is_in_the_profile(profile: Path) -> None:
    hardware = load_hardware(str(profile))
    assert hardware.efficiencies is not None
    gemm = hardware.efficiencies.family("sm90").gemm["bf16"]
    read = hardware.efficiencies.hbm_read("sm90")
    for constant, planted in ((gemm, 0.5), (read, 0.6)):
        assert constant.value == pytest.approx(planted, rel=0.02)
        assert constant.low is not None
        assert constant.high is not None
        assert constant.low < planted < constant.high
        assert constant.kind == "fitted"
        assert constant.source.startswith("calibration, 24 requests, dataset ")


def test_latency_moves_with_the_profile(profile: Path) -> None:
    fitted = build_deployment("Llama-3.1-8B", str(profile), tp=1, weight_dtype="bf16")
    assert fitted.prefill.prefill_s(8_000, 0) == pytest.approx(
        SLOW.prefill.prefill_s(8_000, 0), rel=0.02
    )
    assert fitted.decode.step_s(8, 40_000) == pytest.approx(SLOW.decode.step_s(8, 40_000), rel=0.05)
    before = api.ledger(settings=settings(), tokens=8_000, cached=4_000)
    after = api.ledger(settings=settings(hardware=str(profile)), tokens=8_000, cached=4_000)
    assert before.to_json() != after.to_json()


def test_the_report_says_which_constants_are_fitted(profile: Path) -> None:
    fitted = build_deployment("Llama-3.1-8B", str(profile), tp=1, weight_dtype="bf16")
    shown = {one.id: from_constant(one) for one in fitted.constants()}
    assert shown[GEMM].origin_state == "calibrated"
    assert shown[GEMM].origin == "calibration"
    assert shown[GEMM].is_confirmed
    assert shown["efficiency.prefill_fixed_s"].origin_state == "fitted"
    assert "fitted (calibration)" in "\n".join(api.hardware(str(profile)).lines())


def test_a_profile_of_another_llm_or_gpu_is_an_assumption_that_says_so(profile: Path) -> None:
    other = build_deployment("Llama-3.1-70B", str(profile), tp=4, weight_dtype="bf16")
    shown = {one.id: from_constant(one) for one in other.constants()}[GEMM]
    assert (shown.origin_state, shown.is_confirmed) == ("estimated", False)
    assert shown.source.endswith("fitted for Meta-Llama-3.1-8B, not Meta-Llama-3.1-70B")
    moved = profile.with_name("moved.toml")
    text = profile.read_text(encoding="utf-8")
    moved.write_text(text.replace('gpu = "H100-SXM5"', 'gpu = "H200"', 1), encoding="utf-8")
    table = load_hardware(str(moved)).efficiencies
    assert table is not None
    gemm = table.family("sm90").gemm["bf16"]
    assert gemm.kind == "assumed"
    assert "fitted for GPU H100-SXM5, not H200" in gemm.source


def test_a_calibration_on_top_of_a_profile_keeps_what_it_does_not_tell(
    dataset: Path, profile: Path
) -> None:
    again = cost_calibrate(dataset, settings=settings(hardware=str(profile)))
    assert again.calibrations[0].errors[0].median_before < 0.01
    assert again.calibrations[0].values() == {}
    path = profile.with_name("again.toml")
    path.write_text(again.profile, encoding="utf-8")
    first, second = load_hardware(str(profile)).efficiencies, load_hardware(str(path)).efficiencies
    assert first is not None
    assert second is not None
    assert first.shared["hbm_read"] == second.shared["hbm_read"]


def test_a_profile_keeps_the_hardware_file_that_was_calibrated(dataset: Path) -> None:
    ours = dataset / "ours.toml"
    ours.write_text(
        'gpu = "H100-SXM5"\nname = "ours"\n\n[rdma]\nrate = "22GB/s"\n', encoding="utf-8"
    )
    asked = CalibrationAsk(parameters=("prefill_rate",), output=dataset / "both.toml")
    cost_calibrate(dataset, asked=asked, settings=settings(hardware=str(ours)))
    both = load_hardware(str(dataset / "both.toml"))
    assert both.rdma.port.max_bytes_per_s.value == 22e9
    assert both.efficiencies is not None


def test_the_same_dataset_gives_the_same_bytes(dataset: Path) -> None:
    asked = CalibrationAsk(parameters=NAMES)
    one = cost_calibrate(dataset, asked=asked, settings=settings())
    two = cost_calibrate(dataset, asked=asked, settings=settings())
    assert (one.profile, one.to_json()) == (two.profile, two.to_json())


def test_a_date_is_stated_only_where_one_is_given(
    dataset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = CalibrationAsk(parameters=("prefill_rate",))
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert "as_of" not in cost_calibrate(dataset, asked=asked, settings=settings()).profile
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1790000000")
    dated = cost_calibrate(dataset, asked=asked, settings=settings()).profile
    assert 'as_of = "2026-09-21"' in dated


def test_the_command_prints_parameters_errors_and_refusals(dataset: Path) -> None:
    served = ["--llm", "Llama-3.1-8B", "--hardware", "H100-SXM5", "--tp", "1"]
    ran = CliRunner().invoke(
        app, ["cost", "calibrate", str(dataset), *served, "--parameter", "prefill_rate", "--json"]
    )
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.output)["calibrations"][0]
    assert found["parameters"][0]["is_identified"]
    assert found["parameters"][0]["low"] < 0.5 < found["parameters"][0]["high"]
    assert {"mean_before", "mean_after", "median_after"} <= set(found["errors"][0])
    assert {one["by"] for one in found["residuals"]} == {"prompt_tokens", "batch"}


def test_a_log_without_times_is_refused_with_what_it_lacks(tmp_path: Path) -> None:
    rows = "".join(f'{{"timestamp": {t}, "input_length": 900, "output_length": 9, '
                   f'"hash_ids": [0, {t + 1}]}}\n' for t in range(30))  # fmt: skip
    (tmp_path / "trace.jsonl").write_text(rows, encoding="utf-8")
    api.ingest(tmp_path / "trace.jsonl", output=tmp_path / "out")
    with pytest.raises(UsageError, match="nothing can be calibrated") as error:
        cost_calibrate(tmp_path / "out", settings=settings())
    assert error.value.code == "KVT-U082"
    assert "no request has a TTFT or a prefill time" in str(error.value.cause)


def test_an_unknown_parameter_is_refused(dataset: Path) -> None:
    with pytest.raises(UsageError, match="no parameter `prefil_rate`") as error:
        cost_calibrate(dataset, asked=CalibrationAsk(parameters=("prefil_rate",)))
    assert error.value.code == "KVT-U080"


@pytest.mark.parametrize(
    ("rows", "cause"),
    [
        ('id = "efficiency.hbm_raed"\nvalue = 0.5', "did you mean `efficiency.hbm_read`"),
        ("value = 0.5", "has no `id`"),
        ('id = "efficiency.hbm_read"', "has no `value`"),
        ('id = "efficiency.hbm_read"\nvalue = 0.5\nlow = 0.6', "lies outside its low and high"),
        ('id = "efficiency.hbm_read"\nvalue = 0.5\nhihg = 0.6', "unknown key"),
    ],
)
def test_a_profile_that_cannot_be_used_says_why(tmp_path: Path, rows: str, cause: str) -> None:
    path = tmp_path / "fitted.toml"
    path.write_text(f'gpu = "H100-SXM5"\n\n[[calibration.constant]]\n{rows}\n', encoding="utf-8")
    with pytest.raises(UsageError) as error:
        load_hardware(str(path))
    assert cause in str(error.value.cause)
