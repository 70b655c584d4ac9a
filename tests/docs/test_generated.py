"""Pages that a script writes are as the script would write them now."""

from __future__ import annotations

import pytest

from kvtrace.cli.reference import render_cli_docs
from kvtrace.schema.docs import render_metric_docs
from kvtrace.schema.metrics import METRICS, MetricName
from kvtrace.schema.table import Column, Table
from kvtrace.schema.tables import TABLES
from tests.conftest import REPO


def _page(name: str) -> str:
    return (REPO / "docs" / name).read_text(encoding="utf-8")


def test_the_command_reference_is_up_to_date() -> None:
    assert _page("cli.md") == render_cli_docs(), "run scripts/gen_cli_docs.py"


def test_the_dictionary_is_up_to_date() -> None:
    assert _page("metrics.md") == render_metric_docs(), "run scripts/gen_metric_docs.py"


def test_the_command_reference_has_nested_verbs_options_defaults_and_examples() -> None:
    page = render_cli_docs()
    calibrate = page.partition("\n## kvtrace cost calibrate\n")[2].partition("\n## ")[0]
    assert "```bash\nkvtrace cost calibrate reports/chat" in calibrate
    analyze = page.partition("\n## kvtrace analyze\n")[2].partition("\n## ")[0]
    assert "| `-o, --output \\<path>` | Output folder [reports/\\<input name>]. |" in analyze
    assert "| 70 | a bug of kvtrace |" in page


def test_a_metric_and_a_column_show_unit_and_meaning_of_null() -> None:
    table = Table(
        "waits",
        "one wait",
        (Column("wait_ns", "int64", "ns", "a | b", "nobody measured it"),),
        ("wait_ns",),
    )
    page = render_metric_docs([MetricName("waits_s", "s", "mean wait")], [table])
    assert "| `waits_s` | s | mean wait |" in page
    assert "| `wait_ns` | int64 | ns | a \\| b | nobody measured it |" in page
    assert "| [`waits`](#waits) | one wait |" in page


@pytest.mark.parametrize("name", [*METRICS, *TABLES])
def test_every_metric_and_table_stands_in_the_dictionary(name: str) -> None:
    assert f"`{name}`" in _page("metrics.md")
