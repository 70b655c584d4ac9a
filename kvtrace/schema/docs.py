"""The page docs/metrics.md: every metric of samples, and every column of every table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kvtrace.schema.metrics import METRICS, MetricName
from kvtrace.schema.table import Column, Table
from kvtrace.schema.tables import TABLES

_HEAD: Final = """# Metrics and columns

What each metric and each column of a dataset means, in which unit, and what null says. Unknown is
null, zero is measured. One name has one meaning, whatever program wrote the log: readers map by
formula, not by name. `kvtrace explain NAME` says the same on a terminal, and SQL of your own may
ask any table:

```bash
kvtrace explain ttft_from
```

```sql title="metrics.sql"
select metric, unit, count(*) as rows
from samples
group by metric, unit
order by metric
```

Written by `scripts/gen_metric_docs.py` from `kvtrace/schema`.
"""
_SAMPLES: Final = """## Metrics of `samples`

Rows of the table [`samples`](#samples): what an engine, a KV layer, a gateway or an exporter said
of itself. A counter is stored as what it gained between two observations.

| metric | unit | meaning |
|---|---|---|
"""


def render_metric_docs(
    metrics: Iterable[MetricName] = tuple(METRICS.values()),
    tables: Iterable[Table] = tuple(TABLES.values()),
) -> str:
    """The page: metrics as they are grouped in the vocabulary, then tables in their order."""
    tables = tuple(tables)
    listed = ["| table | one row is |", "|---|---|"]
    listed += [f"| [`{table.name}`](#{table.name}) | {_cell(table.grain)} |" for table in tables]
    rows = [f"| `{metric.name}` | {metric.unit} | {_cell(metric.meaning)} |" for metric in metrics]
    return "\n".join(
        [
            _HEAD,
            "## Tables\n",
            "\n".join(listed) + "\n",
            _SAMPLES + "\n".join(rows) + "\n",
            *(_table(table) for table in tables),
        ]
    )


def _table(table: Table) -> str:
    order = ", ".join(f"`{name}`" for name in table.order_by)
    lines = [f"## {table.name}", "", f"One row is {table.grain}. In order of {order}.", ""]
    lines += ["| column | type | unit | meaning | null |", "|---|---|---|---|---|"]
    lines += [_column(column) for column in table.columns]
    return "\n".join(lines) + "\n"


def _column(column: Column) -> str:
    return (
        f"| `{column.name}` | {column.dtype} | {_cell(column.unit)} | {_cell(column.meaning)} |"
        f" {_cell(column.null)} |"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<")
