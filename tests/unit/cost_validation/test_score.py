"""Scores of files, and the command that prints them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvtrace.api.cost import cost_validate
from kvtrace.cli.app import run
from kvtrace.cost.validation import validate
from kvtrace.errors import ExitCode
from tests.unit.cost_validation.cases import csv_text

SIZE = {"kind": "kv_size", "metric": "kv_bytes_per_token", "unit": "B", "tol_rel": 0.1,
        "model": "Meta-Llama-3.1-70B"}  # fmt: skip
# the model says 327 680: errors 0, 1/9 (outside 10 %) and 1/11
SIZES = (
    {**SIZE, "value": 327_680},
    {**SIZE, "value": 294_912},
    {**SIZE, "value": 360_448},
    {**SIZE, "value": 1, "model": "GPT-9"},
)


def _file(folder: Path, *rows: dict[str, object]) -> Path:
    path = folder / "points.csv"
    path.write_text(csv_text(*rows))
    return path


def test_errors_are_those_of_what_is_predicted(tmp_path: Path) -> None:
    found = validate(_file(tmp_path, *SIZES))
    score = found.kinds["kv_size"]
    assert (score.n, score.predicted, score.within_tolerance) == (4, 3, 2)
    assert score.median_error == pytest.approx(1 / 11)
    # between the second and third of three sorted errors: 0.8 of the way
    assert score.p90_error == pytest.approx(1 / 11 + 0.8 * (1 / 9 - 1 / 11))
    assert found.series["kv_size/s"] == score


def test_a_kind_without_predictions_has_no_errors(tmp_path: Path) -> None:
    found = validate(_file(tmp_path, {"kind": "weather", "metric": "x"}))
    score = found.kinds["weather"]
    assert (score.n, score.predicted, score.median_error, score.p90_error) == (1, 0, None, None)


def test_signs_are_counted_where_there_are_sides(tmp_path: Path) -> None:
    good = {"kind": "economics", "metric": "ttft_reduction", "unit": "ratio", "value": 0.5}
    found = validate(_file(tmp_path, good, {**good, "value": -0.5}, *SIZES))
    assert (found.kinds["economics"].signs, found.kinds["economics"].signs_right) == (2, 1)
    assert found.kinds["kv_size"].signs == 0


def test_dense_llms_are_apart_from_mixtures(tmp_path: Path) -> None:
    row = {"kind": "prefill_ttft", "metric": "ttft_ms", "gpu": "H200", "tp": 8, "new_tokens": 512}
    found = validate(
        _file(tmp_path, {**row, "model": "Llama-3.1-8B"}, {**row, "model": "DeepSeek-V3"})
    )
    assert sorted(found.groups) == ["prefill_ttft dense", "prefill_ttft experts"]


def test_the_document_has_each_point_with_a_value_or_a_reason(tmp_path: Path) -> None:
    document = json.loads(cost_validate(_file(tmp_path, *SIZES)).to_json())
    assert set(document) == {"schema_version", "kinds", "groups", "series", "points"}
    assert document["kinds"]["kv_size"]["n"] == 4
    first, *_, last = document["points"]
    assert (first["id"], first["predicted"], first["measured"], first["error"]) == (
        "P0",
        327_680,
        327_680,
        0,
    )
    assert "reason" not in first
    assert last["predicted"] is None
    assert "GPT-9" in last["reason"]
    assert "error" not in last


def test_the_text_names_every_point_once(tmp_path: Path) -> None:
    text = "\n".join(cost_validate(_file(tmp_path, *SIZES)).summary())
    points, reasons = text.split("Not predicted")
    assert [points.count(f"P{number} ") for number in range(4)] == [1, 1, 1, 0]
    assert "P3" in reasons


def test_the_command_prints_text_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _file(tmp_path, *SIZES)
    assert run(["cost", "validate", str(path)]) == ExitCode.DONE
    assert "kv_size" in capsys.readouterr().out
    assert run(["cost", "validate", str(path), "--json"]) == ExitCode.DONE
    assert json.loads(capsys.readouterr().out)["kinds"]["kv_size"]["predicted"] == 3


def test_the_command_says_where_a_row_is_bad(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _file(tmp_path, {**SIZE, "value": "much"})
    assert run(["cost", "validate", str(path)]) == ExitCode.INPUT_UNUSABLE
    assert f"{path}:2" in capsys.readouterr().err
